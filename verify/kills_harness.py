"""The harness of the kill tests: forked processes, a snapshot of a store, and what it lacks.

They need Linux, and so does all of tests/load: `pidfd_open`, `prctl` and /proc.
"""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from msgspec import Struct

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.state import ENDED, State
from holdfast.ports import JobFilter, Registry, Verification
from holdfast.sdk.open import open_registry

ROOT = Path(__file__).resolve().parent.parent
PROCESS = ROOT / "tests" / "load" / "fork_server.py"
PATIENCE_SECONDS = 60.0

T = TypeVar("T")


class ForkedProcesses:
    """Processes that are forked from a warm one in milliseconds, and end with it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROCESS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def start(self, role: str, folder: Path, **more: object) -> int:
        """Start a process; return its pid."""
        return self._ask(json.dumps({"role": role, "folder": str(folder), **more}))

    def ended(self, pid: int, seconds: float = PATIENCE_SECONDS) -> int:
        """Return how the process has ended: 0, the number of the signal, or an error. It must end in
        time."""
        if not self.is_gone(pid, seconds):
            os.kill(pid, signal.SIGKILL)
            self._ask(str(pid))
            raise AssertionError(f"process {pid} did not end within {seconds} s")
        return self._ask(str(pid))

    def is_gone(self, pid: int, seconds: float = 0.0) -> bool:
        """Whether the process has ended, or does so in this time. Its pid stays its own."""
        descriptor = os.pidfd_open(pid)
        try:
            return bool(select.select([descriptor], [], [], seconds)[0])
        finally:
            os.close(descriptor)

    def kill(self, *pids: int) -> int:
        """Kill all of these and wait for their end; return how many of them were alive."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return [self.ended(pid) for pid in pids].count(signal.SIGKILL)

    def _ask(self, line: str) -> int:
        assert self._process.stdin is not None  # we asked for pipes
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


class StoreSnapshot(Struct, frozen=True):
    """A whole store, as it is found after a crash."""

    jobs: dict[str, Job]
    events: dict[str, list[Event]]
    outputs: set[tuple[str, int, int]]
    facts: set[str]
    verification: Verification

    @property
    def held(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.lease is not None]


NOTHING = StoreSnapshot(
    {}, {}, set(), set(), Verification(jobs=0, transitions=0, events=0, control=0, mismatches=())
)


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/jobs.db"


def snapshot(folder: Path) -> StoreSnapshot:
    """Open the store as after a restart, and read all of it."""
    return asked(folder, _snapshot)


def asked(folder: Path, question: Callable[[Registry], Awaitable[T]]) -> T:
    async def body() -> T:
        registry = await open_registry(url(folder))
        try:
            return await question(registry)
        finally:
            await registry.close()

    return asyncio.run(body())


async def _snapshot(registry: Registry) -> StoreSnapshot:
    found = StoreSnapshot({}, {}, set(), set(), await registry.verify())
    cursor: str | None = None
    while True:
        page = await registry.list_jobs(JobFilter(), after=cursor, limit=1000)
        found.jobs.update({job.job_id: job for job in page.jobs})
        if (cursor := page.next) is None:
            break
    while (slice_ := await registry.events(after=cursor, limit=1000)).events:
        for event in slice_.events:
            _sort(found, event)
        cursor = slice_.cursor
    return found


def _sort(found: StoreSnapshot, event: Event) -> None:
    if event.given_id is not None:
        found.facts.add(event.given_id)
    elif event.sequence is not None:
        found.outputs.add((event.job_id or "", event.fencing_token or 0, event.sequence))
    else:
        found.events.setdefault(event.job_id or "", []).append(event)


def acknowledged(folder: Path) -> list[list[str]]:
    """What the processes knew to be done, line by line, in words."""
    path = folder / "acknowledged"
    return [line.split() for line in path.read_text("ascii").splitlines()] if path.exists() else []


def losses(found: StoreSnapshot, lines: list[list[str]]) -> list[str]:
    """What was acknowledged and is not there. A prune that was asked for takes all or nothing."""
    asked = lines[: lines.index(["pruning"])] if ["pruning"] in lines else []
    old = {line[1] for line in asked if line[0] == "done" and line[2] in ENDED}
    pruned = old if not old & found.jobs.keys() else set()
    lost = [" ".join(line) for line in lines if not _kept(found, line, pruned)]
    claims = Counter((line[1], line[2]) for line in lines if line[0] == "claimed")
    return lost + [f"claimed twice: {claim}" for claim, n in claims.items() if n > 1]


def _kept(found: StoreSnapshot, line: list[str], pruned: set[str]) -> bool:
    match line:
        case [_, job_id, *_] if job_id in pruned:
            return True
        case ["done", job_id, state, version]:
            return _reached(found.events.get(job_id, []), State(state), int(version))
        case ["claimed", job_id, token]:
            claims = [e for e in found.events.get(job_id, []) if e.event_type == EventType.CLAIMED]
            return int(token) in {event.fencing_token for event in claims}
        case ["output", job_id, token, sequence]:
            return (job_id, int(token), int(sequence)) in found.outputs
        case ["fact", event_id]:
            return event_id in found.facts
    return True


def _reached(events: list[Event], state: State, version: int) -> bool:
    """Whether the job was in this state at this version, and has gone nowhere since if it ended."""
    then = [event for event in events if (event.offset or 0) <= version]
    moves = [event.to_state for event in then if event.to_state is not None]
    after = [event for event in events[len(then) :] if event.to_state is not None]
    return len(then) == version and moves[-1:] == [state] and not (state in ENDED and after)
