"""REST: status reads a second, and how long 64 clients wait for their changes.

python bench/rest.py [--quick]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # verify/postgres_server.py

import msgspec
import uvloop
from pyqwest import Client, HTTPTransport

from holdfast.system import SystemIds
from postgres_setup import PostgresSetup
from report import Figure, Outcome, at_most, conclude
from wire import CLIENTS, server

JSON = {"content-type": "application/json", "accept-encoding": "identity"}
JOBS = 1_000
ids = SystemIds()


class Rest:
    """Clients of one server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = Client(HTTPTransport(enable_otel=False))
        self.times: dict[str, list[float]] = defaultdict(list)

    async def get(self, path: str) -> Any:
        answer = await self._http.get(self._url + path, headers=JSON)
        assert answer.status == 200, answer.content
        return answer.content

    async def post(self, path: str, body: object, *, name: str) -> Any:
        begun = time.perf_counter()
        headers = {**JSON, "idempotency-key": ids.new()}
        answer = await self._http.post(self._url + path, headers=headers, content=msgspec.json.encode(body))
        self.times[name].append(time.perf_counter() - begun)
        assert answer.status in (200, 201), (path, answer.content)
        return msgspec.json.decode(answer.content)


async def reads(url: str, seconds: float) -> tuple[float, float, float]:
    """Reads a second by /registry/job-status and by /v1/jobs/ID, and of a path that asks no store."""
    rest = Rest(url)
    requests = [{"spec": {"queue": "reads"}, "job_id": f"r-{n}"} for n in range(JOBS)]
    for start in range(0, JOBS, 500):
        await rest.post("/v1/jobs/batch", {"requests": requests[start : start + 500]}, name="batch")

    async def rate(path: str) -> float:
        done, until = 0, time.perf_counter() + seconds

        async def one(n: int) -> None:
            nonlocal done
            while time.perf_counter() < until:
                await rest.get(path.format(n % JOBS))
                done, n = done + 1, n + 7

        begun = time.perf_counter()
        await asyncio.gather(*(one(n) for n in range(CLIENTS)))
        return done / (time.perf_counter() - begun)

    return (
        await rate("/registry/job-status/r-{}"),
        await rate("/v1/jobs/r-{}"),
        await rate("/healthz"),
    )


async def changes(url: str, seconds: float) -> Rest:
    """Clients that each make a job, take it, show life and complete it, one after another."""
    rest = Rest(url)
    until = time.perf_counter() + seconds

    async def one(n: int) -> None:
        worker = f"w-{n}"
        while time.perf_counter() < until:
            job_id = ids.new()
            made = {"spec": {"kind": "load", "queue": f"q-{n % 8}"}, "job_id": job_id}
            await rest.post("/v1/jobs", made, name="POST /v1/jobs")
            taken = {"job_id": job_id, "worker_id": worker}
            got = await rest.post("/registry/acquire-job", taken, name="acquire-job")
            held = {**taken, "fencing_token": got["fencing_token"]}
            await rest.post("/registry/heartbeat", held, name="heartbeat")
            await rest.post("/registry/complete-job", {**held, "result": n}, name="complete-job")

    await asyncio.gather(*(one(n) for n in range(CLIENTS)))
    return rest


def measure(name: str, url: str, *, quick: bool) -> list[Figure]:
    with server(url) as (address, _):
        status, whole, bare = uvloop.run(reads(address, 1 if quick else 5))
        rest = uvloop.run(changes(address, 2 if quick else 20))
    must = 1_000 if name == "SQLite" else None
    found = [
        Figure(f"{name}: job-status, {CLIENTS} clients, beside /healthz", status, "/s", bare),
        Figure(f"{name}: /v1/jobs/ID, {CLIENTS} clients, beside /healthz", whole, "/s", bare),
    ]
    if must is not None:
        found.append(at_most("… ms for 1,000 status reads", 1e6 / status, "ms", must=1e3, gate=True))
    for call, times in rest.times.items():
        times.sort()
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        found.append(at_most(f"{name}: {call}, {CLIENTS} clients, p50", p50 * 1e3))
        found.append(at_most("… p99", p99 * 1e3, must=100, gate=True))
    done = sum(map(len, rest.times.values()))
    found.append(Figure(f"{name}: changes in all", done / (2 if quick else 20), "/s"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with PostgresSetup() as setup, tempfile.TemporaryDirectory() as folder:
        found = measure("SQLite", f"sqlite:///{Path(folder) / 'jobs.db'}", quick=quick)
        found += measure("PostgreSQL", asyncio.run(setup.schema("rest")), quick=quick)
        version = setup.server.sql("SHOW server_version;").strip()
    notes = [
        "server and clients are a process each, on the machine's two cores; every change has a key",
        "64 clients with a closed loop: as many changes as the server can take",
    ]
    return conclude("rest", Outcome("REST", version, found, notes), quick=quick)


if __name__ == "__main__":
    sys.exit(main())
