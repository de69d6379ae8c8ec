"""awa on PostgreSQL: its asynchronous client as a worker."""

import asyncio
from dataclasses import dataclass

import awa
import handler

LIMITS = {
    "heartbeat_interval_ms": 1000,
    "heartbeat_staleness_ms": 4000,
    "heartbeat_rescue_interval_ms": 1000,
    "leader_election_interval_ms": 1000,
    "promote_interval_ms": 250,
}


@dataclass
class Waits:
    """The job's arguments."""

    name: str = "waits"


async def setup():
    await awa.migrate(handler.URL)


async def work():
    client = awa.AsyncClient(handler.URL)

    @client.task(Waits, queue=handler.QUEUE)
    async def waits(job):
        await handler.job_async(job.attempt, str(job.id))

    await client.start([(handler.QUEUE, 1)], **LIMITS)
    await asyncio.sleep(3600)


async def enqueue():
    return str((await awa.AsyncClient(handler.URL).insert(Waits(), queue="default")).id)


async def state(job_id):
    job = await awa.AsyncClient(handler.URL).get_job(int(job_id))
    name = str(job.state).rpartition(".")[2].lower()
    return {"name": name, "over": name in {"completed", "failed", "cancelled"}, "result": None}


if __name__ == "__main__":
    handler.main(
        settings=lambda: ", ".join(f"{name}={value}" for name, value in LIMITS.items()),
        setup=setup,
        work=work,
        enqueue=enqueue,
        state=state,
    )
