"""The workers of the scenarios: real processes on one setup, and what they did."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest, Registry
from holdfast.sdk.open import open_registry
from verify.faked_clock import FakedClock
from verify.zombie_pool import ENVIRONMENT, PATIENT
from verify.zombie_record import DONE, GRANTED, WRITE, Act, Record
from verify.zombie_resources import CHECKED, open_resources
from verify.zombie_setup import ZombieSetup
from verify.zombie_verdict import gone_back

T = TypeVar("T")
LEASE_SECONDS = 3
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.02


class ScenarioFailed(Exception):
    """A scenario did not go as it must."""


class WorkerFleet:
    def __init__(self, setup: ZombieSetup) -> None:
        self.setup = setup
        self.acts: list[Act] = []
        self.clock = FakedClock(setup.folder / "clock")
        self._record = Record(setup.folder / "acts.jsonl")
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._loop = asyncio.Runner()
        self._registry = self._loop.run(open_registry(setup.store))

    def close(self) -> None:
        for name in self._workers:
            self.kill(*self.tree(name))
        for worker in self._workers.values():
            worker.wait()
        self._loop.run(self._registry.close())
        self._loop.close()
        self._record.close()

    def use(self, work: Callable[[Registry], Coroutine[Any, Any, T]]) -> T:
        return self._loop.run(work(self._registry))

    def submit(self, job_id: str, lease_seconds: float = LEASE_SECONDS) -> None:
        payload = {
            "resources": self.setup.resources,
            "record": str(self.setup.folder / "acts.jsonl"),
            "finish": str(self.setup.folder / "finish"),
        }
        spec = Spec(
            kind="ledger",
            payload=msgspec.Raw(msgspec.json.encode(payload)),
            lease=timedelta(seconds=lease_seconds),
            retry=PATIENT,
        )
        request = JobRequest(spec=spec, job_id=job_id)
        self.use(lambda registry: registry.enqueue(request, actor="user:zombie-test"))

    def start(self, name: str, *options: str, store: str | None = None, clock: bool = False) -> None:
        """A worker, ready to work. With `clock`, its wall clock is what `clock` says."""
        command = [sys.executable, "-m", "holdfast", "worker", "verify.zombie_app:app"]
        command += ["--store", store or self.setup.store, "--name", name, "-c", "1"]
        command += ["--spool", str(self.setup.folder / f"spool-{name}"), *options]
        environment = dict(ENVIRONMENT)
        if clock:
            environment |= self.clock.environment(cache_seconds=1)
        with (self.setup.folder / f"{name}.log").open("wb") as log:
            self._workers[name] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.setup.folder, env=environment
            )
        self.until(lambda: "runs verify.zombie_app:app" in self.said(name), f"{name} is there")

    def finish(self) -> None:
        """Let every job that runs come to its end."""
        (self.setup.folder / "finish").touch()

    def said(self, name: str) -> str:
        return (self.setup.folder / f"{name}.log").read_text(errors="replace")

    def tree(self, name: str) -> list[int]:
        """The worker, its warden and its runners."""
        found = [self._workers[name].pid]
        for pid in found:
            found += children(pid)
        return found

    def worker(self, name: str) -> int:
        return self._workers[name].pid

    def stop(self, *pids: int) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self, *pids: int) -> None:
        for pid in pids:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGCONT)

    def kill(self, *pids: int) -> None:
        for pid in pids:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)

    def read(self) -> None:
        self.acts += self._record.read()

    def writes(self, job_id: str, token: int, after: float = 0.0, form: str = CHECKED) -> list[Act]:
        """What this owner of the job tried to write since."""
        self.read()
        return [
            act
            for act in self.acts
            if act.verb == WRITE
            and (act.job, act.token, act.form) == (job_id, token, form)
            and act.began > after
        ]

    def written(self, job_id: str, token: int, after: float = 0.0) -> Act:
        """The first write of this owner that was taken since, as soon as it was."""

        def found() -> list[Act]:
            return [act for act in self.writes(job_id, token, after) if act.answer == DONE]

        self.until(lambda: bool(found()), f"{job_id} is written to under token {token}")
        return found()[0]

    def granted_at(self, job_id: str, token: int) -> float:
        grants = [a for a in self.acts if (a.verb, a.job, a.token) == (GRANTED, job_id, token)]
        return grants[0].ended

    def until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            if time.monotonic() > deadline:
                said = "\n".join(f"{name}: {self.said(name)}" for name in self._workers)
                raise ScenarioFailed(f"It did not come true that {what}.\n{said}")
            time.sleep(LOOK_SECONDS)

    def job(self, job_id: str) -> Job:
        return self.use(lambda registry: registry.status(job_id))

    def succeeded(self, job_id: str) -> Job:
        self.until(lambda: self.job(job_id).ended, f"{job_id} has ended")
        job = self.job(job_id)
        if job.state is not State.SUCCEEDED or job.result != job.fencing_token:
            raise ScenarioFailed(f"{job_id} is {job.state} with the result of token {job.result}.")
        if not self.use(lambda registry: registry.verify()).equal:
            raise ScenarioFailed("Log and state differ.")
        return job

    def told(self, job_id: str) -> str:
        """The life of a job, for whoever has to find out what went wrong."""
        job, history = self.job(job_id), self.use(lambda registry: registry.history(job_id))
        lines = [f"{e.occurred_at:%T.%f} {e.event_type} {e.reason or ''}" for e in history]
        return "\n".join([f"{job_id}: {job.state}, {job.heartbeats} heartbeats", *lines])

    def events(self, job_id: str, kind: EventType) -> list[Event]:
        page = self.use(lambda registry: registry.logs(job_id, output=False))
        return [event for event in page.events if event.event_type == kind]

    def back(self, ledger: str) -> int:
        """How many rows of this ledger came behind one with a higher token."""

        async def read() -> int:
            resources = open_resources(self.setup.resources)
            rows = await resources.rows(ledger)
            await resources.close()
            return len(gone_back(rows))

        return self._loop.run(read())


@contextmanager
def opened(setup: ZombieSetup) -> Iterator[WorkerFleet]:
    fleet = WorkerFleet(setup)
    try:
        yield fleet
    finally:
        fleet.close()


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue  # it has just gone
    return found


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
