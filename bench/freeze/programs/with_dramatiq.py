"""Dramatiq: `dramatiq` on Redis, results in Redis."""

import dramatiq
import handler
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import ResultMissing, Results
from dramatiq.results.backends import RedisBackend

HEARTBEAT_MS = 5_000
ALWAYS = 1_000_000  # of a million
broker = RedisBroker(url=handler.URL, heartbeat_timeout=HEARTBEAT_MS, maintenance_chance=ALWAYS)
backend = RedisBackend(url=handler.URL)
broker.add_middleware(Results(backend=backend))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True, max_retries=5, time_limit=600_000)
def waits():
    return handler.job()


def enqueue():
    message = waits.send()
    return f"{message.message_id}/{message.options['redis_message_id']}"


def state(ids):
    message_id, place = ids.split("/")
    waiting = broker.client.hexists("dramatiq:default.msgs", place)
    queue = "not acknowledged" if waiting else "acknowledged"
    try:
        result = waits.message().copy(message_id=message_id).get_result(backend=backend)
    except ResultMissing:
        return {"name": f"no result, {queue}", "over": not waiting, "result": None}
    return {"name": f"result there, {queue}", "over": True, "result": result}


if __name__ == "__main__":
    handler.main(
        settings=lambda: f"heartbeat_timeout {HEARTBEAT_MS} ms, maintenance_chance always, Results",
        work=lambda: handler.script("dramatiq", "with_dramatiq", "-p", "1", "-t", "1"),
        enqueue=enqueue,
        state=state,
    )
