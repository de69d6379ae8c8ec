"""What a worker costs when it has nothing to do, and what it carries when a job talks without end."""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import worker_app
from holdfast import AsyncClient, Handle
from worker_fleet import Memory, Worker, fleet
from worker_stores import Postgres, Store

SETTLE_SECONDS = 3.0
JOB_SECONDS = 300.0
IDLE_DATABASE = "idle"
TALKING = """
import sys
for start in range(0, {lines}, 1000):
    many = range(start, min(start + 1000, {lines}))
    text = "".join(f"{{n:09d}} ".ljust({bytes} - 1, "x") + "\\n" for n in many)
    sys.stdout.buffer.write(text.encode())
"""


@dataclass(frozen=True)
class Idle:
    """An idle worker: per cent of one core, its processes' memory, and what the server hears of it."""

    cpu_percent: float
    memory: list[Memory]
    queries: float | None = None
    transactions: float | None = None

    @property
    def rss(self) -> float:
        return sum(process.rss for process in self.memory) / 1e6

    @property
    def pss(self) -> float:
        return sum(process.pss for process in self.memory) / 1e6


async def idle(store: Store, seconds: float) -> Idle:
    if not isinstance(store, Postgres):
        return (await _rested(store, await store.fresh(), seconds, list))[0]
    ground = store.setup
    ground.server.create_database(IDLE_DATABASE)
    url = await ground.schema(IDLE_DATABASE, IDLE_DATABASE)

    def counted() -> list[int]:
        """Queries and transactions there; asked from another database, so that we do not count."""
        answer = ground.server.sql(
            "SELECT (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE dbid = oid"
            " AND query !~ '^(BEGIN|COMMIT|ROLLBACK)'),"
            " pg_stat_get_db_xact_commit(oid) + pg_stat_get_db_xact_rollback(oid)"
            f" FROM pg_database WHERE datname = '{IDLE_DATABASE}';"
        )
        return [int(word) for word in answer.split("|")]

    found, [queries, transactions] = await _rested(store, url, seconds, counted)
    return Idle(found.cpu_percent, found.memory, queries / seconds, transactions / seconds)


async def _rested(
    store: Store, url: str, seconds: float, count: Callable[[], list[int]]
) -> tuple[Idle, list[int]]:
    """Let a worker rest for so long; answers also by how much the counts have grown."""
    async with fleet(url, store.folder / "idle") as (workshop, client):
        worker = workshop.start()
        await worker.ready(client)
        await client.close()
        await asyncio.sleep(SETTLE_SECONDS)
        before, used, began = count(), _used(worker), time.monotonic()
        await asyncio.sleep(seconds)
        share = (_used(worker) - used) / (time.monotonic() - began)
        grown = [now - then for now, then in zip(count(), before, strict=True)]
        worker.check()
        found = Idle(share * 100, worker.memory())
    words = f"{found.cpu_percent:.2f} % CPU, RSS {found.rss:.1f} MB, PSS {found.pss:.1f} MB"
    print(f"{store.name}: idle: {words}", file=sys.stderr)
    return found, grown


def _used(worker: Worker) -> float:
    return sum(worker.cpu_seconds().values())


@dataclass(frozen=True)
class Talk:
    """Megabytes per second until the job had succeeded, and lines that are not as they were written."""

    rate: float
    lines: int
    wrong: int


async def output(store: Store, how: str, megabytes: int) -> Talk:
    """Numbered lines at full speed by a command, or by a function that prints; then all read back."""
    lines = megabytes * 1_000_000 // worker_app.LINE_BYTES
    async with fleet(await store.fresh(), store.folder / f"output-{how}") as (workshop, client):
        worker = workshop.start("--commands")
        await worker.ready(client)
        now = time.monotonic()
        handle = await _talking(client, how, lines)
        await handle.result_async(timeout=JOB_SECONDS)
        seconds = time.monotonic() - now
        pieces = [
            piece.data async for piece in client.logs(handle.job_id, follow=False) if piece.stream == "stdout"
        ]
    wrong = wrong_lines(b"".join(pieces), lines)
    talk = Talk(lines * worker_app.LINE_BYTES / 1e6 / seconds, lines, wrong)
    print(f"{store.name}: output of a {how}: {talk.rate:.1f} MB/s, {wrong} wrong", file=sys.stderr)
    return talk


async def _talking(client: AsyncClient, how: str, lines: int) -> Handle[None]:
    if how == "function":
        return await client.enqueue(worker_app.talk.call(lines))
    script = TALKING.format(lines=lines, bytes=worker_app.LINE_BYTES)
    return await client.submit([sys.executable, "-c", script])


def wrong_lines(text: bytes, lines: int) -> int:
    """How many lines are lost, out of their place, changed, or too many."""
    found = text.split(b"\n")
    wanted = [*(worker_app.line(n).encode() for n in range(lines)), b""]
    return sum(a != b for a, b in zip(found, wanted, strict=False)) + abs(len(found) - len(wanted))
