"""Record what 64 claimers are told on one SQLite file, check it in linear time, and plant faults in it.

`--short` does the same with fewer jobs, operations and faults.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Timer

from msgspec import Struct, field

from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.sdk.open import open_registry
from holdfast.system import SystemIds
from holdfast.testing.history import Entry, Operation, Violation, check, join
from holdfast.testing.recorder import read_lines, recorded
from verify.environment import say
from verify.history_faults import FAULTS
from verify.history_part import NoPlace, Part

PROCESS = Path(__file__).parents[1] / "tests" / "load" / "history_process.py"
CLAIMERS = 64
SECONDS_MAX = 600
CHECK_SECONDS_MAX = 1.0


class Size(Struct, frozen=True, kw_only=True):
    processes: int
    jobs: int
    operations: int
    places: int


LONG = Size(processes=8, jobs=1_000, operations=100_001, places=200)
SHORT = Size(processes=4, jobs=100, operations=4_000, places=20)


class Recorded(Struct, frozen=True):
    """A history, the logs of its jobs, and whether every record equals the fold of its log."""

    entries: list[Entry]
    logs: dict[str, list[Event]]
    equal: bool


class Planting(Struct):
    """How often a fault was planted and found, and by which invariants."""

    planted: int = 0
    found: int = 0
    invariants: Counter[str] = field(default_factory=Counter)


def record(folder: Path, size: Size) -> Recorded:
    """Let the claimers loose on one file; everything they were told, and what the file says after."""
    url = f"sqlite:///{folder}/jobs.db"
    asyncio.run(_made(url))
    with _started(url, folder, size) as processes:
        for word in ("go", "finish"):
            for process in processes:
                assert process.stdout is not None
                heard = process.stdout.readline()
                if heard not in ("ready\n", "enough\n"):
                    raise RuntimeError("a process of the run stopped before its time")
            say(f"history: {word}")
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{word}\n")
                process.stdin.flush()
        codes = [process.wait(SECONDS_MAX) for process in processes]
    if any(codes):
        raise RuntimeError(f"the processes of the run ended with {codes}")
    entries = list(read_lines(sorted(folder.glob("history-*.jsonl"))))
    return asyncio.run(_read(url, entries, size.jobs))


async def _made(url: str) -> None:
    registry = await open_registry(url)
    await registry.close()


@contextmanager
def _started(url: str, folder: Path, size: Size) -> Iterator[list[subprocess.Popen[str]]]:
    share = size.operations * 11 // (10 * size.processes)  # some claims get nothing
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, str(PROCESS), url, str(folder / f"history-{n}.jsonl")),
                *map(str, (n, size.processes, size.jobs, share)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(size.processes)
    ]

    def stop() -> None:
        for process in processes:
            process.kill()

    watchdog = Timer(SECONDS_MAX, stop)
    watchdog.start()
    try:
        yield processes
    finally:
        watchdog.cancel()
        stop()
        for process in processes:
            process.communicate()


async def _read(url: str, entries: list[Entry], jobs: int) -> Recorded:
    """Read every job once more, on the record, and every log."""
    registry = await open_registry(url)
    try:
        reader = recorded(registry, SystemIds(), entries.append, process="reader")
        verification = await registry.verify()
        logs = {}
        for job_id in (f"job-{n}" for n in range(jobs)):
            await reader.status(job_id)
            logs[job_id] = await registry.history(job_id)
    finally:
        await registry.close()
    return Recorded(entries, logs, verification.equal and verification.jobs == jobs)


def timed(recorded: Recorded) -> tuple[list[Operation], list[Violation], float, float]:
    """Join and check: the least processor seconds and wall-clock seconds of three times."""
    processor, wall = [], []
    for _ in range(3):
        started = time.process_time(), time.perf_counter()
        operations = join(recorded.entries)
        found = check(operations, recorded.logs)
        processor.append(time.process_time() - started[0])
        wall.append(time.perf_counter() - started[1])
    return operations, found, min(processor), min(wall)


def seen(operations: list[Operation], logs: dict[str, list[Event]]) -> dict[str, int]:
    """What must have happened in a history for it to prove anything."""
    written = {(event.op_id, job_id) for job_id, log in logs.items() for event in log}
    somewhere = {op_id for op_id, _ in written}
    sent = Counter(op.op_id for op in operations)
    lost = {op.op_id for op in operations if op.answer == "info"} - {None}
    landed = sum(op_id in somewhere for op_id in lost)
    return {
        "leases that lapsed": sum((op_id or "").startswith("expire:") for op_id, _ in written),
        "refusals of stale tokens": sum(op.error == "Fenced" for op in operations),
        "refusals by the state of a job": sum(op.error == "Conflict" for op in operations),
        "unknown answers, applied": landed,
        "unknown answers, not applied": len(lost) - landed,
        "repeats under one op_id": sum(
            op.answer == "ok" and op.op_id in lost and sent[op.op_id] > 1 for op in operations
        ),
    }


def parts(
    operations: list[Operation], logs: dict[str, list[Event]]
) -> dict[str, tuple[list[Operation], list[Event]]]:
    """The history job by job. A claim whose answer was lost belongs to every job it got."""
    jobs_of = defaultdict(set)
    for job_id, log in logs.items():
        for event in log:
            jobs_of[event.op_id].add(job_id)
    split: dict[str, tuple[list[Operation], list[Event]]] = {j: ([], log) for j, log in logs.items()}
    for op in operations:
        for job_id in (op.job_id,) if op.job_id else jobs_of.get(op.op_id, ()):
            split[job_id][0].append(op)
    return split


def plant(operations: list[Operation], logs: dict[str, list[Event]], places: int) -> dict[str, Planting]:
    """Plant each fault in random places of random jobs, one at a time, and let it be found.

    Jobs are checked one by one, since each fault is in one; the first of each kind is looked for in the
    whole history.
    """
    chance = Random(7)
    split = parts(operations, logs)
    results = {}
    for name, (fault, invariant) in FAULTS.items():
        result = results[name] = Planting()
        for job_id in chance.choices(list(split), k=20 * places):
            if result.planted == places:
                break
            try:
                changed, log = fault(Part(*split[job_id], chance))
            except NoPlace:
                continue
            if result.planted == 0:
                rest = [op for op in operations if op.job_id not in (job_id, None)]
                free = [op for op in operations if op.job_id is None]
                found = check([*rest, *changed, *free], {**logs, job_id: log})
                found = found if {v.job_id for v in found} == {job_id} else []
            else:
                found = check(changed, {job_id: log})
            result.planted += 1
            named = {violation.invariant for violation in found}
            result.found += invariant in named
            result.invariants.update(named)
    return results


def section(size: Size, recorded: Recorded) -> tuple[str, bool]:
    """The report, and whether its claim holds."""
    operations, found, processor, wall = timed(recorded)
    count = sum(op.job_id is not None for op in operations)
    happened = seen(operations, recorded.logs)
    plantings = plant(operations, recorded.logs, size.places)
    figures = {
        "operations": f"{count:,}",
        "jobs": f"{len(recorded.logs):,}",
        "claimers": f"{CLAIMERS} in {size.processes} processes",
        "events in the logs": f"{sum(map(len, recorded.logs.values())):,}",
        **{what: f"{times:,}" for what, times in happened.items()},
        "records equal to the fold of their logs": "all" if recorded.equal else "**NOT ALL**",
        "join and check": f"{processor:.2f} s of processor time, {wall:.2f} s by the clock",
        "violations": f"{len(found)}",
    }
    failures = [f"{v.job_id}: {v.invariant}: {v.details}" for v in found[:20]]
    failures += [f"the run saw none of: {what}" for what, times in happened.items() if not times]
    failures += [] if recorded.equal else ["a record differs from its log"]
    failures += [] if count >= size.operations else [f"{count} operations are too few"]
    failures += [] if processor < CHECK_SECONDS_MAX else [f"checking took {processor:.2f} s"]
    failures += [
        f"{name}: found {result.found} of {result.planted}, {size.places} wanted"
        for name, result in plantings.items()
        if not result.found == result.planted == size.places
    ]
    return _page(figures, plantings, failures), not failures


def _page(figures: dict[str, str], plantings: dict[str, Planting], failures: list[str]) -> str:
    planted = [
        f"| {name} | {result.found} of {result.planted} | {_names(result)} |"
        for name, result in plantings.items()
    ]
    return "\n".join(
        [
            "## Linear history",
            "",
            "Claimers on one SQLite file claim, renew, fail, release, cancel and read the same jobs, let"
            " leases lapse, act under stale tokens, and leave before the answer comes. Every call and"
            " answer is checked against the logs: one order of versions explains what everybody was told,"
            " and every fault that is planted into that history is found.",
            "",
            "| figure | value |",
            "|---|---|",
            *(f"| {what} | {value} |" for what, value in figures.items()),
            "",
            "| planted fault | found | by |",
            "|---|---|---|",
            *planted,
            "",
            *(f"**FAILED**: {failure}\n" for failure in failures),
            "Repeat it: `python -m verify.history`",
        ]
    )


def _names(result: Planting) -> str:
    """The invariants that found a fault, the most frequent first."""
    return ", ".join(name for name, _ in result.invariants.most_common(3))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    size = SHORT if parser.parse_args().short else LONG
    with tempfile.TemporaryDirectory(prefix="holdfast-history-") as folder:
        try:
            page, holds = section(size, record(Path(folder), size))
        except (RuntimeError, subprocess.TimeoutExpired, HoldfastError) as error:
            page, holds = _page({}, {}, [f"the run did not come to its end: {error}"]), False
    print(page)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
