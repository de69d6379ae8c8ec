"""PgQueuer: its worker on PostgreSQL, with asyncpg."""

from datetime import timedelta

import asyncpg
import handler
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

LIMITS = {"heartbeat_timeout": timedelta(seconds=2), "dequeue_timeout": timedelta(seconds=1)}


async def work():
    connection = await asyncpg.connect(handler.URL)
    app = PgQueuer(AsyncpgDriver(connection))

    @app.entrypoint("waits")
    async def waits(job):
        await handler.job_async(job.attempts)

    await app.run(**LIMITS)


async def queries(verb, *arguments):
    connection = await asyncpg.connect(handler.URL)
    try:
        return await getattr(Queries(AsyncpgDriver(connection)), verb)(*arguments)
    finally:
        await connection.close()


async def enqueue():
    [job_id] = await queries("enqueue", "waits", b"")
    return str(job_id)


async def state(job_id):
    connection = await asyncpg.connect(handler.URL)
    row = await connection.fetchrow("SELECT status FROM pgqueuer WHERE id = $1", int(job_id))
    log = "SELECT status FROM pgqueuer_log WHERE job_id = $1 ORDER BY id DESC LIMIT 1"
    last = await connection.fetchval(log, int(job_id))
    await connection.close()
    if row is None:
        return {"name": f"row deleted, log says {last}", "over": True, "result": None}
    return {"name": row["status"], "over": False, "result": None}


if __name__ == "__main__":
    handler.main(
        settings=lambda: "heartbeat_timeout 2 s, dequeue_timeout 1 s",
        setup=lambda: queries("install"),
        work=work,
        enqueue=enqueue,
        state=state,
    )
