"""The service: what it costs beside a server that does nothing, and how long its callers wait.

python bench/wire.py [--quick]
"""

import argparse
import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # verify/postgres_server.py

import uvloop

from postgres_setup import PostgresSetup
from report import Figure, Outcome, at_most, conclude
from wire_load import Load, enqueues, fan_out

CLIENTS = 64
SERVER = Path(__file__).parent / "wire_server.py"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def server(url: str, *more: str) -> Iterator[tuple[str, float]]:
    """A server over the store, and how many seconds it took to its first answer."""
    port = free_port()
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, str(SERVER), url, str(port), *more], stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(4_000):
            if answers(port):
                break
            time.sleep(0.005)
        yield f"http://127.0.0.1:{port}", time.perf_counter() - begun
    finally:
        process.terminate()
        process.wait(20)


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as one:
            one.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            return one.recv(12) == b"HTTP/1.1 200"
    except OSError:
        return False


def in_turn(url: str, seconds: float, rounds: int) -> tuple[float, float, float]:
    """The best rates of the constant server and of ours, and the shortest start."""
    best, start = {"--constant": 0.0, "": 0.0}, 60.0
    for _ in range(rounds):
        for kind, known in best.items():
            with server(url, *([kind] if kind else [])) as (address, began):
                rate = uvloop.run(enqueues(address, seconds, CLIENTS))
                best[kind] = max(known, rate)
                start = start if kind else min(start, began)
    return best["--constant"], best[""], start


def waits(name: str, load: Load) -> list[Figure]:
    found = []
    for call, times in sorted(load.times.items()):
        times.sort()
        p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
        found.append(at_most(f"{name}: {call}, p50", p50 * 1e3))
        found.append(at_most("… p99", p99 * 1e3, must=100, gate=True))
    return found


def measure(name: str, url: str, *, quick: bool) -> list[Figure]:
    constant, ours, start = in_turn(url, 2 if quick else 6, 1 if quick else 3)
    title = f"{name}: EnqueueJob, {CLIENTS} clients, beside a constant answer"
    found = [Figure(title, ours, "/s", constant, floor=None if quick else 0.5)]
    found.append(at_most(f"{name}: start to first answer", start, "s", must=1))
    with server(url) as (address, _):
        load = Load(address)
        uvloop.run(load.run(200, CLIENTS, 5 if quick else 30))
        found += waits(f"{name}, 200 jobs/s, {CLIENTS} workers", load)
        events = 2_000 if quick else 50_000
        seconds, wrong = uvloop.run(fan_out(address, events, 10))
    title = f"{name}: {events:,} outputs published and read by 10 streams"
    found.append(Figure(title, 10 * events / seconds, "events/s"))
    found.append(at_most("… lost, doubled or out of order", wrong, "", must=0, gate=True))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with PostgresSetup() as setup, tempfile.TemporaryDirectory() as folder:
        found = measure("SQLite", f"sqlite:///{Path(folder) / 'jobs.db'}", quick=quick)
        found += measure("PostgreSQL", asyncio.run(setup.schema("wire")), quick=quick)
        version = setup.server.sql("SHOW server_version;").strip()
    notes = [
        "server and clients are a process each, on the machine's two cores; requests have a request_id",
        "the constant server is the same one: it parses, checks and answers, and asks no store",
    ]
    return conclude("wire", Outcome("Service", version, found, notes), quick=quick)


if __name__ == "__main__":
    sys.exit(main())
