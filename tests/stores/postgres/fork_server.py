"""The fork server of the kill tests for processes on a PostgreSQL store."""

import asyncio
import os
import sys
from contextlib import suppress

import asyncpg
import msgspec

from holdfast.core.errors import Unavailable
from holdfast.core.lifecycle import Success
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.stores.postgres.partitions import JOBS_PER_PARTITION
from holdfast.stores.postgres.store import PostgresStore
from tests.load import claimer_process, failpoint_process, fork_server
from tests.load.claimer_process import Acknowledged, Task, enqueue, work

WORKERS_PER_CREW = 4


class PostgresTask(Task, frozen=True, kw_only=True):
    """What a process is to be, on which store."""

    store: str

    @property
    def url(self) -> str:
        return self.store


async def crew(task: Task) -> None:
    """Several workers, each with a registry of its own; at their end, what their commits came to."""
    opened: list[LocalRegistry] = []

    async def remembered(url: str) -> LocalRegistry:
        for _ in range(20):  # opening does not wait for a server that is away, and some are cut off here
            with suppress(Unavailable):
                opened.append(await open_local(url))
                return opened[-1]
            await asyncio.sleep(0.2)
        return await open_local(url)

    vars(claimer_process)["open_registry"] = remembered
    acknowledged = Acknowledged(task)
    names = [f"{task.name}-{n}" for n in range(WORKERS_PER_CREW)]
    await asyncio.gather(*(work(msgspec.structs.replace(task, name=name)) for name in names))
    for registry in opened:
        assert isinstance(registry._store, PostgresStore)
        acknowledged.add("commits", registry._store.commits, registry._store.retries)


async def upkeep(task: Task) -> None:
    """Prune until a partition is empty, and open a store that was restored from a backup."""
    acknowledged = Acknowledged(task)
    registry = await open_local(task.url)
    await enqueue(registry, acknowledged, "a", "b", "c")
    grant, _ = await failpoint_process.claim(registry, acknowledged, 2)
    acknowledged.done(await registry.complete(grant, Success()))
    await execute(task, f"SELECT setval('{{schema}}.job_seq', {3 * JOBS_PER_PARTITION})")
    await enqueue(registry, acknowledged, "d")
    await failpoint_process.prune(registry, acknowledged)
    await registry.close()
    await execute(task, "UPDATE {schema}.meta SET value = 'elsewhere' WHERE name = 'home'")
    registry = await open_local(task.url)
    await enqueue(registry, acknowledged, "e")
    await registry.close()


async def execute(task: Task, sql: str) -> None:
    url, _, schema = task.url.partition("?schema=")
    connection = await asyncpg.connect(url)
    await connection.execute(sql.format(schema=schema))
    await connection.close()


def main() -> None:
    fork_server.ROLES |= {
        "crew": crew,
        "upkeep": upkeep,
        "finish_upkeep": failpoint_process.finish_life,
    }
    for line in sys.stdin:
        if line.startswith("{"):
            answer = fork_server.fork(msgspec.json.decode(line, type=PostgresTask))
        else:
            answer = os.waitpid(int(line), 0)[1]
        os.write(sys.stdout.fileno(), f"{answer}\n".encode())


if __name__ == "__main__":
    main()
