"""The isolation of keys: how long a worker's calls take while another key lists as fast as it can.

python bench/key_isolation.py [--jobs N] [--large N] [--seconds S] [--store sqlite|postgresql] [--save]
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # verify/postgres_server.py

import uvloop
from msgspec import Raw

from holdfast.core.access import Scope
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_local
from key_isolation_load import Worker
from postgres_setup import PostgresSetup
from report import HERE, Figure, Outcome, at_most, machine, row
from wire import answers, free_port

LISTERS = 200
BATCH = 500
PAYLOAD = Raw(b'{"text": "%b"}' % (b"x" * (255 * 1024)))
MEMORY_MIB_MAX = 400
LOAD = HERE / "key_isolation_load.py"


async def fill(url: str, small: int, large: int) -> tuple[str, str]:
    """So many jobs of another tenant, and two keys: of whoever lists, and of a worker."""
    registry = await open_local(url)
    spec, wide = Spec(queue="full"), Spec(queue="abig", payload=PAYLOAD)
    for start in range(0, small, BATCH):
        requests = [JobRequest(spec=spec)] * min(BATCH, small - start)
        await registry.enqueue_many(requests, actor="user:bench")
    for _ in range(0, large, 20):
        await registry.enqueue_many([JobRequest(spec=wide)] * 20, actor="user:bench")
    reads = (Scope.SUBMIT, Scope.OBSERVE, Scope.DATA)
    _, lister = await registry.create_key(
        name="lister", scopes=reads, queues=("a*", "zz*"), actor="user:bench"
    )
    works = (Scope.SUBMIT, Scope.WORK)
    _, worker = await registry.create_key(name="worker", scopes=works, queues=("work",), actor="user:bench")
    await registry.close()
    return lister, worker


@contextmanager
def served(url: str) -> Iterator[tuple[int, int]]:
    """The port and the process of a server over the store, with keys."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("holdfast")), "serve", "--keys"]
    process = subprocess.Popen(
        [*command, "--store", url, "--listen", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL
    )
    try:
        while process.poll() is None and not answers(port):
            time.sleep(0.02)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(20)


def memory(pid: int, what: str) -> float:
    """Of a process in MiB: VmRSS is now, VmHWM the most it ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


@contextmanager
def listing(port: int, key: str, path: str) -> Iterator[None]:
    """So many connections that list all the time, in a process of their own."""
    arguments = [str(port), key, path, str(LISTERS)]
    process = subprocess.Popen([sys.executable, str(LOAD), *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # all of them have asked
    try:
        yield
    finally:
        process.terminate()
        print(path, process.stdout.read().decode().strip(), file=sys.stderr)
        process.wait(20)


def figures(name: str, worker: Worker, *, gate: bool) -> list[Figure]:
    found = []
    for call, times in sorted(worker.times.items()):
        times.sort()
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        must = 100 if gate and call == "heartbeat" else None
        found.append(at_most(f"{name}: {call}, p50", p50 * 1e3))
        found.append(at_most("… p99", p99 * 1e3, must=must, gate=must is not None))
        found.append(at_most("… most", times[-1] * 1e3))
    found.append(at_most("… leases lost", worker.lost, "", must=0, gate=gate))
    return found


ATTACKS = {
    "large pages": "/v1/jobs?queue=abig&limit=1000",
    "a scan for nothing": "/v1/jobs?labels%5Buser%5D=nope&limit=1000",
    "empty pages": "/v1/jobs?labels%5Buser%5D=nope&states=failed&limit=1000",
}


def measure(name: str, url: str, small: int, large: int, seconds: float) -> list[Figure]:
    lister, key = uvloop.run(fill(url, small, large))
    with served(url) as (port, pid):
        worker = Worker(port, key)
        uvloop.run(worker.work(min(seconds, 10)))
        found = figures(f"{name}, alone", worker, gate=False)
        for attack, path in ATTACKS.items():
            worker = Worker(port, key)
            with listing(port, lister, path):
                uvloop.run(worker.work(seconds))
            found += figures(f"{name}, {LISTERS} of {attack}", worker, gate=True)
        most = memory(pid, "VmHWM")
        found.append(at_most(f"{name}: memory, most", most, "MiB", MEMORY_MIB_MAX, gate=True))
        time.sleep(15)
        found.append(at_most("… 15 s later", memory(pid, "VmRSS"), "MiB"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--store", choices=("sqlite", "postgresql"))
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    size = asked.jobs, asked.large, asked.seconds
    found: list[Figure] = []
    if asked.store != "postgresql":
        with tempfile.TemporaryDirectory() as folder:
            found += measure("SQLite", f"sqlite:///{Path(folder) / 'jobs.db'}", *size)
    if asked.store != "sqlite":
        with PostgresSetup() as setup:
            found += measure("PostgreSQL", asyncio.run(setup.schema("crowd")), *size)
    notes = [
        f"{asked.jobs:,} small jobs and {asked.large:,} of 255 KiB; server, lister and worker are a process"
        " each, on the same cores",
        f"the lister has {LISTERS} connections, each of which asks again as soon as it is answered",
        "the worker renews a lease of 10 s every 100 ms, and enqueues, claims and completes beside it",
    ]
    outcome = Outcome("Crowd", "in a file", found, notes)
    text = "\n".join(
        [
            "# One key against all others",
            "",
            *(f"- {name}: {value}" for name, value in machine(outcome).items()),
            *(f"- {note}" for note in outcome.notes),
            "",
            "| figure | ours | limit | ratio | must | goal |",
            "|---|---|---|---|---|---|",
            *map(row, found),
            "",
        ]
    )
    print(text)
    if asked.save:
        (HERE / "results" / "crowd.md").write_text(text, encoding="utf-8")
    return int(any(figure.missed for figure in found))


if __name__ == "__main__":
    sys.exit(main())
