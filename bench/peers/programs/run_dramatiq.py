"""Dramatiq on Redis: the `dramatiq` command, no results."""

import os

import dramatiq
import side
from dramatiq.brokers.redis import RedisBroker

THREADS = 8
PREFETCH = 200
HEARTBEAT_MS = 10_000
ALWAYS = 1_000_000  # of a million
broker = RedisBroker(url=side.URL, heartbeat_timeout=HEARTBEAT_MS, maintenance_chance=ALWAYS)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop():
    side.count()


@dramatiq.actor
def timed(sent):
    side.waited(sent)


@dramatiq.actor
def holds():
    side.hold()


def many(size):
    """There is no call for many."""
    for _ in range(size):
        noop.send()


def enqueue(actor, *words):
    actor.send(*words)


def work():
    os.environ.update(dramatiq_queue_prefetch=str(PREFETCH))
    side.script("dramatiq", "run_dramatiq", "-p", "1", "-t", str(THREADS))


def left():
    return broker.client.hlen("dramatiq:default.msgs")


if __name__ == "__main__":
    side.main(
        settings=lambda: (
            f"2 processes of {THREADS} threads, dramatiq_queue_prefetch {PREFETCH}, "
            "its usual middleware, no results"
        ),
        bulk=lambda jobs: side.bulk(side.chunks(jobs, 500), many),
        single=lambda jobs: side.single(jobs, noop.send),
        clients=lambda k, jobs: side.client_threads(k, jobs, noop.send),
        work=work,
        waits=lambda times: side.waits(times, timed.send),
        hold=lambda: enqueue(holds),
        left=left,
        recovery=lambda: f"heartbeat_timeout {HEARTBEAT_MS} ms, maintenance_chance always",
    )
