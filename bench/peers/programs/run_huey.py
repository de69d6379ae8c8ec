"""huey on SQLite: `huey_consumer`, no results; durable, or with PEERS_VARIANT `sync off`."""

import side
from huey import SqliteHuey

DURABLE = side.VARIANT != "sync off"
OPTIONS = ["-w", "1", "-k", "thread", "-d", "0.001", "-m", "0.01", "-n", "-q"]
PATH = side.URL.removeprefix("sqlite:///")
huey = SqliteHuey(filename=PATH, results=False, fsync=DURABLE, timeout=60)


@huey.task()
def noop():
    side.count()


@huey.task()
def timed(sent):
    side.waited(sent)


@huey.task()
def holds():
    side.hold()


def many(size):
    """There is no call that writes many at once."""
    for _ in range(size):
        noop()


def main():
    side.main(
        settings=lambda: (
            f"1 process, `huey_consumer {' '.join(OPTIONS)}`, WAL, "
            f"synchronous {'FULL' if DURABLE else 'OFF'}, no results"
        ),
        bulk=lambda jobs: side.bulk(side.chunks(jobs, 500), many),
        single=lambda jobs: side.single(jobs, noop),
        clients=lambda k, jobs: side.client_threads(k, jobs, noop),
        work=lambda: side.script("huey_consumer", "run_huey.huey", *OPTIONS),
        waits=lambda times: side.waits(times, timed),
        hold=holds,
        left=huey.pending_count,
        recovery=lambda: "none: a job is deleted when it is taken, and lost with its worker",
    )


if __name__ == "__main__":
    import run_huey  # a task goes by the name of its module, which must be the worker's

    run_huey.main()
