"""A pool of stubborn owners on one store, frozen beyond their leases and thawed, one after the other."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from verify.zombie_owner import LEASE, QUEUE, Task
from verify.zombie_record import DONE, GRANTED, STOPPED, THAWED, WRITE, Act, Record
from verify.zombie_resources import ASKED

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
"""For every process of the test: the code beside it, wherever it stands."""
OWNERS = 14
FROZEN_SHARE = 0.6
"""How many of them are frozen at a time; the others are there to take over."""
EARLY_SHARE = 0.2
"""Of the freezes, those that end as soon as a successor has the job, before it has written anything."""
FREEZE_SHARE = 0.9
HELD_SECONDS_MAX = 8.0
SILENT_SECONDS_MAX = 1.5
"""An owner stopped inside a commit keeps everybody else from theirs: it is let go."""
LOOK_SECONDS = 0.01
SECONDS_PER_FREEZE_MAX = 3.0
PATIENCE_SECONDS = 60.0
PATIENT = Retry(max_crashes=100, max_failures=100)


class Stuck(Exception):
    """The pool did not come to an end."""


@dataclass
class Frozen:
    """An owner that stands still, and the grant in its hand."""

    job: str
    token: int
    early: bool
    since: float


@dataclass
class Pool:
    """`told` hears of every freeze that outlived its lease, when it ends."""

    folder: Path
    store: str
    resources: str
    registry: Registry
    owners: int = OWNERS
    seed: int = 9
    check: bool = True
    told: Callable[[str], None] = lambda words: None
    freezes: int = 0
    acts: list[Act] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    _pids: dict[str, int] = field(default_factory=dict)
    _holding: dict[str, tuple[str, int]] = field(default_factory=dict)
    _planned: dict[str, float] = field(default_factory=dict)
    _frozen: dict[str, Frozen] = field(default_factory=dict)
    _granted: Counter[str] = field(default_factory=Counter)
    _written: Counter[str] = field(default_factory=Counter)
    _ended: set[str] = field(default_factory=set)
    _heard_at: float = 0.0

    async def run(self, freezes: int) -> None:
        """Freeze this many owners beyond their leases, then let all jobs come to their end."""
        self._chance = random.Random(self.seed)
        self._record = Record(self.folder / "acts.jsonl")
        self._forks = _forks()
        self._making = asyncio.create_task(self._enqueue(self.owners))
        try:
            for number in range(1, self.owners + 1):
                self._start(f"owner-{number}")
            until = time.monotonic() + PATIENCE_SECONDS + SECONDS_PER_FREEZE_MAX * freezes
            while self.freezes < freezes or not self._making.done() or len(self._ended) < len(self.jobs):
                if time.monotonic() > until:
                    raise Stuck(f"{self.freezes} of {freezes} freezes, {self._frozen}")
                await self._turn(freezes)
            self._making.result()
            (self.folder / "stop").touch()
            await asyncio.to_thread(self._await_owners)
            self._read()
        finally:
            self._making.cancel()
            self._forks.kill()  # whatever is left of the owners dies with it
            self._forks.communicate(timeout=PATIENCE_SECONDS)
            self._record.close()

    def _start(self, name: str) -> None:
        task = Task(
            name=name,
            store=self.store,
            resources=self.resources,
            record=str(self.folder / "acts.jsonl"),
            stop=str(self.folder / "stop"),
            seed=self.seed,
            check=self.check,
        )
        assert self._forks.stdin is not None  # we asked for pipes
        assert self._forks.stdout is not None
        self._forks.stdin.write(f"{json.dumps(msgspec.to_builtins(task))}\n")
        self._forks.stdin.flush()
        self._pids[name] = int(self._forks.stdout.readline())

    async def _turn(self, freezes: int) -> None:
        self._read()
        if dead := [who for who, pid in self._pids.items() if not _lives(pid)]:
            raise Stuck(f"{dead} ended by themselves")
        now = time.monotonic()
        for who, frozen in list(self._frozen.items()):
            if self._is_over(frozen, now):
                self._thaw(who, frozen)
        if self._frozen and now > self._heard_at + SILENT_SECONDS_MAX:
            last = max(self._frozen, key=lambda who: self._frozen[who].since)
            self._thaw(last, self._frozen[last])
        wanted = self.freezes + len(self._frozen) < freezes
        for who, at in list(self._planned.items()):
            if at <= now:
                del self._planned[who]
                if wanted and len(self._frozen) < FROZEN_SHARE * self.owners:
                    self._freeze(who)
                    wanted = self.freezes + len(self._frozen) < freezes
        if self._making.done() and self.freezes < freezes:
            self._making.result()
            # Beside us: an owner that is frozen in its commit holds up SQLite until we thaw it.
            most = self.owners + len(self._ended) - len(self.jobs)
            self._making = asyncio.create_task(self._enqueue(most))
        await asyncio.sleep(LOOK_SECONDS)

    async def _enqueue(self, most: int) -> None:
        """Keep enough jobs for all of them."""
        if most <= 0:
            return
        numbers = range(len(self.jobs) + 1, len(self.jobs) + most + 1)
        spec = Spec(kind="ledger", queue=QUEUE, lease=LEASE, retry=PATIENT)
        requests = [JobRequest(spec=spec, job_id=f"job-{number}") for number in numbers]
        jobs = await self.registry.enqueue_many(requests, actor="user:zombie-test")
        self.jobs += [job.job_id for job in jobs]

    def _read(self) -> None:
        for act in self._record.read():
            self.acts.append(act)
            self._heard_at = max(self._heard_at, act.ended)
            if act.verb == GRANTED:
                self._hold(act)
            elif act.verb == "complete" and act.answer == DONE:
                self._ended.add(act.job)
                self._let_go(act)
            elif act.verb == "release":
                self._let_go(act)
            elif act.verb == WRITE and act.form == ASKED and act.answer == DONE:
                self._written[act.job] = max(self._written[act.job], act.token)

    def _hold(self, act: Act) -> None:
        self._granted[act.job] = max(self._granted[act.job], act.token)
        self._holding[act.who] = act.job, act.token
        if self._chance.random() < FREEZE_SHARE:
            self._planned[act.who] = act.ended + self._chance.uniform(0, 0.7)

    def _let_go(self, act: Act) -> None:
        if self._holding.get(act.who) == (act.job, act.token):
            del self._holding[act.who]
            self._planned.pop(act.who, None)

    def _freeze(self, who: str) -> None:
        if who not in self._holding or who in self._frozen:
            return
        job, token = self._holding[who]
        early = self._chance.random() < EARLY_SHARE
        os.killpg(self._pids[who], signal.SIGSTOP)
        self._frozen[who] = Frozen(job, token, early, time.monotonic())
        self._note(STOPPED, who, self._frozen[who])

    def _is_over(self, frozen: Frozen, now: float) -> bool:
        seen = self._granted if frozen.early else self._written
        return seen[frozen.job] > frozen.token or now > frozen.since + HELD_SECONDS_MAX

    def _thaw(self, who: str, frozen: Frozen) -> None:
        self._note(THAWED, who, frozen)
        os.killpg(self._pids[who], signal.SIGCONT)
        del self._frozen[who]
        successor = self._granted[frozen.job]
        if successor > frozen.token:
            self.freezes += 1
            seconds = time.monotonic() - frozen.since
            self.told(
                f"{who} froze holding {frozen.job} under token {frozen.token}, and wakes up after"
                f" {seconds:.1f} s: token {successor} is out"
            )

    def _note(self, verb: str, who: str, frozen: Frozen) -> None:
        now = time.monotonic()
        act = Act(who=who, verb=verb, began=now, ended=now, job=frozen.job, token=frozen.token)
        self._record.write(act)

    def _await_owners(self) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        for who, pid in self._pids.items():
            while _lives(pid):
                if time.monotonic() > until:
                    raise Stuck(f"{who} did not come to an end")
                time.sleep(LOOK_SECONDS)


def _forks() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "verify.zombie_owner"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
