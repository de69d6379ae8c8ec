"""One file call after the other fails, in every way it can; how a store bears it."""

import faulthandler
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from holdfast.core.errors import HoldfastError
from verify.disk_verdict import STEPS, contradictions, differences, holds
from verify.disk_workload import Workload
from verify.faulty_disk import Fault, FaultyDisk
from verify.shadow_disk import ShadowDisk

RUN_SECONDS_MAX = 90
MANY = 40
WRITING = {"xWrite", "xSync", "xTruncate"}


@dataclass(frozen=True)
class Family:
    """One way to fail, tried at every call it applies to."""

    words: str
    call: str
    code: int
    sticky: bool = False
    landed: float = 0.0

    def fault(self, number: int) -> Fault:
        return Fault(self.call, number, self.code, self.sticky, self.landed)


SYNC_FAILS = Family("a sync fails", "xSync", apsw.SQLITE_IOERR_FSYNC)
FAMILIES = (
    Family("a write fails, half landed", "xWrite", apsw.SQLITE_IOERR_WRITE, landed=0.5),
    Family("a write fails, all landed", "xWrite", apsw.SQLITE_IOERR_WRITE, landed=1.0),
    Family("the disk is full once", "xWrite", apsw.SQLITE_FULL),
    Family("the disk is full until freed", "xWrite", apsw.SQLITE_FULL, sticky=True),
    SYNC_FAILS,
    Family("every sync fails from then on", "xSync", apsw.SQLITE_IOERR_FSYNC, sticky=True),
    Family("a truncate fails", "xTruncate", apsw.SQLITE_IOERR_TRUNCATE),
    Family("a read fails", "xRead", apsw.SQLITE_IOERR_READ),
    Family("every read fails from then on", "xRead", apsw.SQLITE_IOERR_READ, sticky=True),
    Family("an open fails", "xOpen", apsw.SQLITE_CANTOPEN),
    Family("shared memory cannot be mapped", "xShmMap", apsw.SQLITE_IOERR_SHMMAP),
    Family("a lock is busy", "xShmLock", apsw.SQLITE_BUSY),
    Family("a lock fails", "xShmLock", apsw.SQLITE_IOERR_SHMLOCK),
)


@dataclass
class Swept:
    """What one family did: runs, runs in which the fault struck, answers to steps, bad runs."""

    family: Family
    runs: int = 0
    struck: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    bad: int = 0
    troubles: list[str] = field(default_factory=list)


class Sweep:
    """Strikes one disk with family after family."""

    def __init__(self, disk: FaultyDisk, scratch: Path) -> None:
        self._disk = disk
        self._scratch = scratch

    async def calls(self) -> Counter[str]:
        """How many calls of each kind a run makes when nothing fails."""
        troubles, _ = await self._one(None)
        assert not troubles, troubles
        return Counter(self._disk.calls)

    async def run(self, family: Family, calls: int, *, most: int | None = None) -> Swept:
        """A run for each call; where there are many, `most` of them, evenly spread."""
        swept = Swept(family)
        for number in range(1, calls + 1, calls // most if most and calls > MANY else 1):
            troubles, answers = await self._one(family.fault(number))
            swept.runs += 1
            swept.struck += self._disk.struck > 0
            swept.answers.update(answers.values())
            swept.bad += bool(troubles)
            swept.troubles += [f"{family.words}, {family.call} {number}: {t}" for t in troubles]
        return swept

    async def find(self, family: Family, calls: int) -> Swept:
        """Runs until one is bad: for a store that is known to be wrong."""
        swept = Swept(family)
        while not swept.bad and swept.runs < calls:
            swept.runs += 1
            troubles, answers = await self._one(family.fault(swept.runs))
            swept.answers.update(answers.values())
            swept.bad += bool(troubles)
        return swept

    async def _one(self, fault: Fault | None) -> tuple[list[str], dict[str, str]]:
        faulthandler.dump_traceback_later(RUN_SECONDS_MAX, exit=True)
        folder = self._scratch / "run"
        folder.mkdir()
        try:
            return await _live(self._disk, fault, folder)
        finally:
            self._disk.shadow = None
            shutil.rmtree(folder)
            faulthandler.cancel_dump_traceback_later()


async def _live(disk: FaultyDisk, fault: Fault | None, folder: Path) -> tuple[list[str], dict[str, str]]:
    """A store's whole life with this fault in it: what went wrong, and what was answered."""
    workload = Workload(folder / "jobs.db")
    disk.shadow = shadow = ShadowDisk()
    disk.arm(fault)
    await workload.run()
    if not disk.struck:
        await workload.close()
    disk.free()
    answers = dict(workload.answers)
    found = workload.troubles + await _look(workload)
    disk.shadow = None
    found += await _images(folder, shadow, answers)

    workload.troubles = []
    disk.shadow = shadow
    await workload.run()
    disk.shadow = None
    if fault and fault.call in WRITING:
        found += await _cut(folder / "cut-at-the-end", shadow, workload.answers)
    await workload.close()
    rest = [
        step for step in (*STEPS, "read", "watch", "close") if workload.answers.get(step) != "acknowledged"
    ]
    found += [f"{step} does not work although the disk does" for step in rest]
    ended = workload.troubles + await contradictions(workload.path, workload.answers)
    return found + [f"at the end: {one}" for one in ended], answers


async def _look(workload: Workload) -> list[str]:
    """The store as the process sees it that met the fault."""
    if workload.registry is None:
        return []
    try:
        found = differences(workload.answers, await holds(workload.registry))
        if not (await workload.registry.verify()).equal:
            found.append("log and state differ")
    except HoldfastError as error:
        found = [f"it cannot be read although the disk works: {error!r}"]
    return [f"same process: {one}" for one in found]


async def _images(folder: Path, shadow: ShadowDisk, answers: dict[str, str]) -> list[str]:
    """The store as it is found after a kill at this point, and after a power cut at this point."""
    killed = folder / "killed"
    killed.mkdir()
    for name in ("jobs.db", "jobs.db-wal", "jobs.db-journal"):
        if (folder / name).exists():
            shutil.copyfile(folder / name, killed / name)
    found = [f"killed: {one}" for one in await contradictions(killed / "jobs.db", answers)]
    return found + await _cut(folder / "cut", shadow, answers)


async def _cut(image: Path, shadow: ShadowDisk, answers: dict[str, str]) -> list[str]:
    """The store as a power cut leaves it: what a failed sync has forgotten is not there."""
    shadow.lay_out(image)
    return [f"{image.name}: {one}" for one in await contradictions(image / "jobs.db", answers)]
