"""The kills: at failpoints one by one, and at random under load; and what came of them."""

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.errors import HoldfastError
from holdfast.core.job import Job
from holdfast.core.state import ENDED
from holdfast.registry.counters import EXPIRE_ACTOR
from verify.environment import damage, say
from verify.kills_harness import (
    NOTHING,
    ForkedProcesses,
    StoreSnapshot,
    acknowledged,
    losses,
    snapshot,
)

SCENES = ("commands", "life", "safekeeping", "outputs")
OWN = {
    "worker": "commands",
    "backup": "safekeeping",
    "restore": "safekeeping",
    "outputs": "outputs",
}
WIDTH = 16
SUBMITTERS, WORKERS = 2, 3
PROCESSES = SUBMITTERS + WORKERS
FUSE_MAX = 400
ALL_AT_ONCE = 0.04
LOOK_KILLS = 50
TURNS_PER_KILL = 20
LOAD_SECONDS_MAX = 120.0
WORK_SECONDS_MAX = 3.0


class Case(Struct, frozen=True):
    """One death: in this scene, at this passing of this failpoint."""

    scene: str
    failpoint: str
    passing: int
    early: bool = False
    again: int = 0
    """The passing that did not come, for which it is killed at the first."""

    @property
    def name(self) -> str:
        words = (
            self.scene,
            self.failpoint,
            self.passing,
            *(f"for-{self.again}",) * bool(self.again),
        )
        return "-".join(map(str, words))

    @property
    def inside(self) -> bool:
        """Whether it is between two writes of SQLite, in a commit or a checkpoint."""
        return self.failpoint.startswith(("file.", "log."))


class Tally:
    """What came of some kills. `wrong` is whatever else must not be."""

    def __init__(self) -> None:
        self.kills = 0
        self.inside = 0
        self.acknowledged = 0
        self.verified = 0
        self.transitions = 0
        self.crashes = 0
        self.brought = 0
        self.lost: list[str] = []
        self.wrong: list[str] = []

    def look(self, where: str, folder: Path) -> StoreSnapshot:
        """Open the store anew, and hold it against what was acknowledged before."""
        lines = acknowledged(folder)
        try:
            found, troubles = snapshot(folder), damage(folder / "jobs.db")
        except HoldfastError as error:
            self.wrong.append(f"{where}: cannot be opened: {error!r}")
            return NOTHING
        verification = found.verification
        self.verified += 1
        missing = [f"{folder.name}: {loss}" for loss in losses(found, lines)]
        self.lost += [loss for loss in missing if loss not in self.lost]
        if not verification.equal:
            self.wrong.append(f"{where}: log and state differ: {verification}")
        self.wrong += [f"{where}: {trouble}" for trouble in troubles]
        return found

    def end(self, where: str, folder: Path, before: StoreSnapshot) -> None:
        """Count what was brought to its end since, all of it, and nothing before its time."""
        after = self.look(where, folder)
        self.acknowledged += len(acknowledged(folder))
        self.transitions += after.verification.transitions
        self.crashes += sum(job.crashes for job in after.jobs.values())
        open_ = [job.job_id for job in before.jobs.values() if job.state not in ENDED]
        self.brought += len(open_)
        left = [job.job_id for job in after.jobs.values() if job.state not in ENDED]
        if left or not after.jobs:
            self.wrong.append(f"{where}: not brought to an end: {left}")
        early = [job.job_id for job in before.held if _too_early(job, after)]
        if early:
            self.wrong.append(f"{where}: claimed while the dead held them: {early}")


def _too_early(held: Job, after: StoreSnapshot) -> bool:
    """Whether the job was taken from its owner before the lease had ended."""
    assert held.lease is not None  # the caller has looked
    for event in after.events.get(held.job_id, []):
        if (event.offset or 0) > held.version and event.to_state is not None:
            taken = event.actor == EXPIRE_ACTOR or event.event_type == EventType.CLAIMED
            return taken and event.occurred_at < held.lease.expires_at
    return False


def rehearse(processes: ForkedProcesses, root: Path) -> dict[str, Counter[str]]:
    """Play every scene undisturbed: how often each passes which failpoint."""
    folders = {scene: root / f"rehearsal-{scene}" for scene in SCENES}
    for folder in folders.values():
        folder.mkdir()
    pids = {
        scene: processes.start(scene, folder, name="p", files=scene == "life")
        for scene, folder in folders.items()
    }
    for scene, pid in pids.items():
        assert processes.ended(pid) == 0, f"the scene {scene} does not play"
    return {
        scene: Counter(json.loads((folder / "passed-p").read_text("ascii")))
        for scene, folder in folders.items()
    }


def chosen(passed: dict[str, Counter[str]], *, short: bool) -> list[Case]:
    """Each failpoint once, in the scene it belongs to; or at its first, second, last and some other
    passings there, and once in every other scene that passes it."""
    cases = []
    for scene, counts in passed.items():
        for name, most in sorted(counts.items()):
            draw = random.Random(f"{scene} {name}").randint
            own = OWN.get(name.partition(".")[0], "life") == scene
            passings = {1, min(2, most), most, draw(1, most), draw(1, most)}
            if short or not own:
                passings = {draw(1, most)}
            if own or not short:
                cases += [Case(scene, name, passing) for passing in sorted(passings)]
    return cases


def kill_at_failpoints(processes: ForkedProcesses, root: Path, cases: Sequence[Case]) -> Tally:
    """Let a process die in each case; let another one finish what it has left."""
    tally = Tally()
    before: dict[Case, StoreSnapshot] = {}
    todo = list(cases)
    while todo:
        batch, todo = todo[:WIDTH], todo[WIDTH:]
        for case, status in _played(processes, root, batch):
            if status == 0 and not case.again:
                # How often a worker asks for jobs is up to its clock: this one asked less often.
                todo.append(replace(case, passing=1, again=case.passing))
                continue
            tally.kills += status == signal.SIGKILL
            tally.inside += case.inside
            if status != signal.SIGKILL:
                tally.wrong.append(f"{case.name}: was not killed, but ended with {status}")
            before[case] = tally.look(f"{case.name}, dead", root / case.name)
        say(f"{tally.kills} of {len(cases)} kills at failpoints, {len(tally.lost)} lost")
    for some in _batches(list(before)):
        for case, status in _finished(processes, root, some):
            if status:
                tally.wrong.append(f"{case.name}: its heir ended with {status}")
            tally.end(f"{case.name}, finished", root / case.name, before[case])
    return tally


def _batches(cases: Sequence[Case]) -> Iterator[Sequence[Case]]:
    """Those that are killed side by side: most of their time they wait, for a disk or for a lease."""
    for start in range(0, len(cases), WIDTH):
        yield cases[start : start + WIDTH]


def _played(processes: ForkedProcesses, root: Path, batch: Sequence[Case]) -> list[tuple[Case, int]]:
    pids = []
    for case in batch:
        folder = root / case.name
        folder.mkdir()
        pids.append(
            processes.start(
                case.scene,
                folder,
                failpoint=case.failpoint,
                passing=case.passing,
                files=case.inside,
                early=case.early,
            )
        )
    return [(case, processes.ended(pid)) for case, pid in zip(batch, pids, strict=True)]


def _finished(processes: ForkedProcesses, root: Path, batch: Sequence[Case]) -> list[tuple[Case, int]]:
    pids = [processes.start(f"finish_{case.scene}", root / case.name) for case in batch]
    return [(case, processes.ended(pid)) for case, pid in zip(batch, pids, strict=True)]


class Load:
    """Submitters and workers on one file, each replaced when it dies. Some carry a fuse that kills
    them at some failpoint; the others die by our hand, one by one or all at once."""

    def __init__(self, processes: ForkedProcesses, folder: Path, seed: int, *, early: bool = False) -> None:
        self._processes = processes
        self._folder = folder
        self._chance = random.Random(seed)
        self._early = early
        self._started = 0
        self._pids: dict[int, str] = {}
        self.tally = Tally()
        self.fused = 0
        self.at_once = 0

    def run(self, kills: int) -> None:
        self._folder.mkdir()
        for role in ("submit",) * SUBMITTERS + ("work",) * WORKERS:
            self._start(role)
        looked = 0
        for _ in range(TURNS_PER_KILL * kills):
            if self.tally.kills >= kills:
                break
            self._work_on()
            time.sleep(self._chance.uniform(0, 0.15))
            self._strike(kills - self.tally.kills)
            if self.tally.kills // LOOK_KILLS > looked:
                looked = self.tally.kills // LOOK_KILLS
                self.tally.look(f"after {self.tally.kills} kills", self._folder)
                say(f"{self.tally.kills} of {kills} random kills, {len(self.tally.lost)} lost")
        if self.tally.kills < kills:
            self.tally.wrong.append(f"only {self.tally.kills} of {kills} kills met a living process")
        before = self.tally.look("after all kills", self._folder)
        self._finish()
        if self._early:
            self.tally.lost.clear()  # until now some were merely not there yet
        self.tally.end("after the load", self._folder, before)

    def _work_on(self) -> None:
        """Wait until something was acknowledged since the last kill, so that on a busy machine, too, kills
        hit processes at work; but not for one that is stuck."""
        path = self._folder / "acknowledged"
        before, until = _size(path), time.monotonic() + WORK_SECONDS_MAX
        while _size(path) == before and time.monotonic() < until:
            time.sleep(0.01)

    def _start(self, role: str, *, fuse: bool = True) -> None:
        self._started += 1
        fused = fuse and self._chance.random() < 0.3
        pid = self._processes.start(
            role,
            self._folder,
            name=f"{role}-{self._started}",
            passing=self._chance.randrange(1, FUSE_MAX) if fused else 0,
            early=self._early,
        )
        self._pids[pid] = role

    def _strike(self, most: int) -> None:
        for pid in [pid for pid in self._pids if self._processes.is_gone(pid)]:
            self._judge(self._processes.ended(pid))
            self._start(self._pids.pop(pid))
        victims = [self._chance.choice(list(self._pids))]
        if self._chance.random() < ALL_AT_ONCE and most >= len(self._pids):
            victims = list(self._pids)
            self.at_once += 1
        self.tally.kills += self._processes.kill(*victims)
        for pid in victims:
            self._start(self._pids.pop(pid))

    def _finish(self) -> None:
        """Let all that live come to an end by themselves, and as many workers as are needed."""
        (self._folder / "stop").touch()
        until = time.monotonic() + LOAD_SECONDS_MAX
        self._start("work", fuse=False)
        for pid in self._pids:
            self._judge(self._processes.ended(pid, max(1.0, until - time.monotonic())), 0)

    def _judge(self, status: int, *also: int) -> None:
        """A process that we have not killed was killed by its fuse, or has no business to end."""
        self.fused += status == signal.SIGKILL
        if status not in (signal.SIGKILL, *also):
            self.tally.wrong.append(f"a process ended with {status}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def control(processes: ForkedProcesses, root: Path) -> Tally:
    """The same with a process that acknowledges before it is answered: its loss must be seen."""
    case = Case("life", "sqlite.written", 3, early=True)
    return kill_at_failpoints(processes, root, [case])


def control_under_load(processes: ForkedProcesses, root: Path, kills: int) -> Tally:
    load = Load(processes, root / "control", 7, early=True)
    load.run(kills)
    return load.tally
