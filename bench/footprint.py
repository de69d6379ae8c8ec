"""What holdfast takes: disk for each job on both stores, memory of a server for each client that waits.

python bench/footprint.py [--quick]
"""

import argparse
import asyncio
import base64
import random
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # verify/postgres_server.py

import apsw
import msgspec
import uvloop
from pyqwest import Client, HTTPTransport

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from holdfast.ports.registry import Completion
from holdfast.sdk.open import open_registry
from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.generated.job.v1.job_connect import JobEventsServiceClient, JobServiceClient
from postgres_setup import PostgresSetup
from report import Figure, Outcome, conclude
from verify.postgres_server import PostgresServer
from wire import SERVER, answers, free_port

ACTOR = "user:bench"
CHUNK = 500
KB = 1000
EVENTS = 4
Size = Callable[[], int]


class Kind(msgspec.Struct, frozen=True):
    """What a job carries, in bytes. It is noise, so that no database can press it."""

    name: str
    payload: int
    output: int = 0


KINDS = (
    Kind("60 bytes of payload, no output", 60),
    Kind("1 kB of payload, no output", KB),
    Kind("60 bytes of payload, 10 kB of output", 60, 10 * KB),
)


def noise(count: int) -> bytes:
    return base64.b64encode(random.randbytes(count))[:count]


async def enqueue(registry: Registry, kind: Kind, jobs: int) -> None:
    for _ in range(0, jobs, CHUNK):
        payloads = [msgspec.Raw(b'"%s"' % noise(kind.payload - 2)) for _ in range(CHUNK)]
        asked = [JobRequest(spec=Spec(kind="echo", payload=payload)) for payload in payloads]
        await registry.enqueue_many(asked, actor=ACTOR)


async def drain(registry: Registry, kind: Kind) -> None:
    while grants := await registry.claim(["default"], owner="w1", limit=CHUNK):
        if kind.output:
            now = await registry.now()
            await asyncio.gather(*(registry.publish(grant, [said(kind.output, now)]) for grant in grants))
        await registry.complete_many([Completion(grant, Success()) for grant in grants])


def said(size: int, now: datetime) -> Event:
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=now,
        sequence=1,
        stream="stdout",
        data=noise(size),
    )


async def disk(name: str, url: str, size: Size, kind: Kind, jobs: int) -> list[Figure]:
    """Bytes per job while they wait and when they have ended; how it grows when all are pruned and as
    many come again."""
    registry = await open_registry(url)
    empty = size()
    await enqueue(registry, kind, jobs)
    waiting = size() - empty
    await drain(registry, kind)
    ended = size() - empty
    verified = await registry.verify()
    assert verified.equal
    assert verified.events == EVENTS * jobs
    await registry.prune(older_than=timedelta(), output_older_than=timedelta())
    size()
    await enqueue(registry, kind, jobs)
    await drain(registry, kind)
    again = size() - empty
    await registry.close()
    return [
        Figure(f"{name}: {kind.name}: waiting", waiting / jobs, "bytes per job"),
        Figure("… ended", ended / jobs, "bytes per job"),
        Figure("… pruned, and as many again", again / ended, "times the room"),
    ]


async def disks(folder: Path, setup: PostgresSetup, jobs: int) -> list[Figure]:
    found: list[Figure] = []
    for number, kind in enumerate(KINDS):
        file = folder / f"{number}.db"
        found += await disk("SQLite", f"sqlite:///{file}", partial(file_bytes, file), kind, jobs)
    for number, kind in enumerate(KINDS):
        schema = f"disk_{number}"
        url = await setup.schema(schema)
        size = partial(schema_bytes, setup.server, schema)
        found += await disk("PostgreSQL", url, size, kind, jobs)
    return found


def file_bytes(file: Path) -> int:
    """The file, once its log has gone into it."""
    other = apsw.Connection(str(file))
    other.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
    other.close()
    return file.stat().st_size


def schema_bytes(server: PostgresServer, schema: str) -> int:
    """Tables, indexes and what lies beside them, once autovacuum has been there."""
    tables = f"FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r'"
    names = server.sql(f"SELECT string_agg(oid::regclass::text, ', ') {tables};")
    server.sql(f"VACUUM {names.strip()};")
    return int(server.sql(f"SELECT sum(pg_total_relation_size(oid)) {tables};"))


def memory_bytes(pid: int) -> int:
    """What the process has for itself."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    [line] = [line for line in rollup.splitlines() if line.startswith("Pss:")]
    return int(line.split()[1]) * 1024


async def with_clients(pid: int, clients: list[Callable[[], Awaitable[None]]]) -> float:
    """Bytes for each client, once all of them are there and nothing happens."""
    before = memory_bytes(pid)
    tasks = [asyncio.create_task(_endless(client)) for client in clients]
    await asyncio.sleep(4)
    after = memory_bytes(pid)
    assert not any(task.done() for task in tasks), "a client was sent away"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return (after - before) / len(clients)


async def _endless(client: Callable[[], Awaitable[None]]) -> None:
    while True:
        await client()


async def waiting_clients(address: str, pid: int, many: int) -> list[Figure]:
    plain = {"send_compression": None, "accept_compression": ()}

    def http() -> Client:
        return Client(HTTPTransport(enable_otel=False))

    jobs = JobServiceClient(address, http_client=http(), **plain)  # type: ignore[arg-type]
    log = JobEventsServiceClient(address, http_client=http(), **plain)  # type: ignore[arg-type]
    params = pb.JobParams(command="echo", args=["hi"])
    made = [
        (await jobs.enqueue_job(pb.EnqueueJobRequest(queue="q", job_params=params))).job_id
        for _ in range(many // 10)
    ]

    async def claim() -> None:
        async for _ in jobs.dequeue_job(pb.DequeueJobRequest(queue="empty")):
            pass

    def follower(job_id: str) -> Callable[[], Awaitable[None]]:
        async def follow() -> None:
            async for _ in log.stream_job_events(pb.StreamJobEventsRequest(job_id=job_id)):
                pass

        return follow

    idle = memory_bytes(pid)
    streams = await with_clients(pid, [follower(made[n % len(made)]) for n in range(many)])
    claims = await with_clients(pid, [claim] * many)
    return [
        Figure("server, idle", idle / 1e6, "MB"),
        Figure(f"… for each of {many} streams that follow a job", streams / KB, "kB"),
        Figure(f"… for each of {many} clients that wait for a job", claims / KB, "kB"),
    ]


def memory(folder: Path, many: int) -> list[Figure]:
    port = free_port()
    url = f"sqlite:///{folder / 'served.db'}"
    process = subprocess.Popen([sys.executable, str(SERVER), url, str(port)])
    try:
        for _ in range(2_000):
            if answers(port):
                break
            process.poll()
            asyncio.run(asyncio.sleep(0.01))
        return uvloop.run(waiting_clients(f"http://127.0.0.1:{port}", process.pid, many))
    finally:
        process.terminate()
        process.wait(20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    jobs = 5_000 if quick else 50_000
    with PostgresSetup() as setup, tempfile.TemporaryDirectory() as name:
        found = memory(Path(name), 100 if quick else 400)
        found += asyncio.run(disks(Path(name), setup, jobs))
        postgres = setup.server.sql("SHOW server_version;").strip()
    version = f"SQLite {apsw.sqlite_lib_version()}, PostgreSQL {postgres}"
    notes = [
        f"{jobs:,} jobs of each kind, every one with its record and {EVENTS} events; indexes are in",
        "SQLite: the file after a checkpoint; PostgreSQL: tables and indexes after a VACUUM, WAL aside",
        "payload and output are noise: text that can be pressed takes less on PostgreSQL beyond 2 kB",
        "memory is PSS of the server's process, over SQLite; each client has a connection of its own",
    ]
    return conclude("footprint", Outcome("Footprint", version, found, notes), quick=quick)


if __name__ == "__main__":
    sys.exit(main())
