"""What traces cost at 1 % sampling: a job from submit to its end, with them and without, turn by turn.

python bench/tracing.py [--quick]

Both are measured in the same process, in small portions: a machine that slows down slows both down.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import apsw

import worker_app
from holdfast import AsyncClient, tracing
from holdfast.core.job import Job
from holdfast.ports import Grant
from holdfast.runner import RUNNER_ARGV
from holdfast.system import SystemClock, SystemIds, tune_garbage_collector
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.function_executor import FunctionExecutor
from holdfast.worker.processes import Processes
from holdfast.worker.spool import FileSpool
from holdfast.worker.worker import Worker
from report import Figure, Outcome, at_most, conclude

PORTION = 200
CLIENTS = 50
SLOTS = 100
SHARE = "0.01"
OVERHEAD_MAX = 5.0
LOADED = "opentelemetry.sdk.trace"


class Ends:
    """A report that counts the jobs that have ended."""

    def __init__(self) -> None:
        self._left = 0
        self._none = asyncio.Event()

    def expect(self, jobs: int) -> None:
        self._left = jobs
        self._none.clear()

    async def all(self) -> None:
        await self._none.wait()

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None:
        self._left -= 1
        if not self._left:
            self._none.set()

    def lost(self, grant: Grant, why: str) -> None: ...

    def trouble(self, why: str) -> None:
        print(why, file=sys.stderr)

    def paused(self, seconds: float, why: str) -> None:
        print(why, file=sys.stderr)

    def resumed(self) -> None: ...


@asynccontextmanager
async def working(client: AsyncClient, folder: Path, ends: Ends) -> AsyncIterator[None]:
    """A worker at work, with a runner as any worker has."""
    clock, ids = SystemClock(), SystemIds()
    spool = FileSpool(folder / "spool", "bench")
    processes = Processes(clock, inherited=[spool.lock])
    functions = FunctionExecutor(
        processes,
        worker_app.NAME,
        runner_argv=RUNNER_ARGV,
        slots=SLOTS,
        env=os.environ,
        url=client.url,
    )
    await functions.load()
    worker = Worker(
        client.registry,
        WorkerSettings(owner="bench", slots=SLOTS),
        ends,
        clock=clock,
        ids=ids,
        executors=[functions],
        spool=spool,
    )
    running = asyncio.create_task(worker.run())
    yield
    worker.leave()
    await running
    await processes.close()
    spool.close()


async def portion(client: AsyncClient, ends: Ends, beside: list[Path]) -> float:
    """Make some jobs, each by a call of its own, and see them to their ends: microseconds of CPU a job."""
    numbers = iter(range(PORTION))

    async def some() -> None:
        for number in numbers:
            await client.enqueue(worker_app.nothing.call(n=number))

    ends.expect(PORTION)
    began = used(beside)
    await asyncio.gather(*(some() for _ in range(CLIENTS)))
    await ends.all()
    return (used(beside) - began) / PORTION * 1e6


def used(beside: list[Path]) -> float:
    """Seconds of CPU: of this process, with client and worker, and of the runner."""
    return time.process_time() + sum(int(one.read_text().split()[0]) for one in beside) / 1e9


def started() -> list[Path]:
    """What says the CPU of every thread of every process that this one has started."""
    family = {os.getpid()}
    for place in sorted(Path("/proc").glob("[0-9]*"), key=lambda one: int(one.name)):
        with suppress(OSError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            family |= {int(place.name)} if parent in family else set()
    family.remove(os.getpid())
    return [one for pid in family for one in Path(f"/proc/{pid}/task").glob("*/schedstat")]


@contextmanager
def switched(loaded: object, *, on: bool) -> Iterator[None]:
    """Inside, traces are on or off."""
    if on:
        sys.modules[LOADED] = loaded  # type: ignore[assignment]
    else:
        sys.modules.pop(LOADED, None)
    try:
        yield
    finally:
        sys.modules[LOADED] = loaded  # type: ignore[assignment]


async def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    """CPU of a job without traces, with them, and of sending them."""
    found: dict[str, list[float]] = {"off": [], "on": [], "send": []}
    loaded, ends = sys.modules[LOADED], Ends()
    beside: list[Path] = []
    async with (
        AsyncClient(f"sqlite:///{folder / 'jobs.db'}") as client,
        working(client, folder, ends),
    ):
        for turn in range(rounds + 4):
            order = ("off", "on") if turn % 2 else ("on", "off")
            for how in order:
                with switched(loaded, on=how == "on"):
                    found[how].append(await portion(client, ends, beside))
            began = time.process_time()
            if turn % 25 == 24:
                await asyncio.to_thread(tracing.flush)
            found["send"].append((time.process_time() - began) / PORTION * 1e6)
            if turn == 3:  # everything has been done once
                beside = started()
                tune_garbage_collector(own_code_only=True)
                for figures in found.values():
                    figures.clear()
    return found


class Sink(BaseHTTPRequestHandler):
    """A collector that takes everything and keeps nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody wants to know."""


@contextmanager
def collector() -> Iterator[str]:
    """A process of its own: what it does is not our cost."""
    process = subprocess.Popen([sys.executable, __file__, "--collector"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def collect() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Sink) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


def figures(rounds: int) -> list[Figure]:
    with collector() as endpoint, tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "HOLDFAST_TRACES": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_TRACES_SAMPLER_ARG": SHARE,
            "OTEL_BSP_SCHEDULE_DELAY": "3600000",  # they are sent where that is measured
            "PYTHONPATH": str(Path(__file__).parent),
        }
        end = tracing.configure("otlp", "bench", SystemIds().chance())
        found = asyncio.run(measure(Path(folder), rounds))
        end()
    off, on = (statistics.quantiles(found[how], n=4)[0] for how in ("off", "on"))
    more = on - off
    send = statistics.fmean(found["send"])
    percent = 100 * (more + send) / off
    return [
        at_most("a job from submit to its end, off", off, "µs of CPU"),
        at_most("1 % sampled: more", more, "µs of CPU"),
        at_most("… and to send the spans", send, "µs of CPU"),
        at_most("overhead", percent, "%", OVERHEAD_MAX, gate=True),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--collector", action="store_true")
    options = parser.parse_args()
    if options.collector:
        collect()
    rounds = options.rounds or (50 if options.quick else 400)
    notes = [
        f"portions of {PORTION} jobs, each made by a call of its own ({CLIENTS} at once) and run by a"
        " worker in the same process, with a runner beside it, on SQLite",
        f"{rounds} portions with and without, turn by turn; of each the lower quartile, which others"
        " on the machine disturb least",
        f"with: OTLP over HTTP to a collector that keeps nothing; a share of {SHARE} is sampled",
        "two halves without any traces differed by up to 4 % on a machine in use: run it on one at rest",
    ]
    outcome = Outcome("Tracing", f"SQLite {apsw.sqlite_lib_version()}", figures(rounds), notes)
    return conclude("tracing", outcome, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
