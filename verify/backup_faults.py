"""Backup and restore on a disk that fails: the old store or the new one, and never half of either.

What fails is a file call of SQLite, or a call of our own to the system.
"""

import errno
import os
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from unittest.mock import patch

import apsw

from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.sdk.backup import backup, restore
from holdfast.sdk.open import open_registry
from verify.disk_workload import JOBS, Workload
from verify.fault_sweep import Family, Swept
from verify.faulty_disk import Fault, FaultyDisk

NO_SYNC = Family("a sync fails", "xSync", apsw.SQLITE_IOERR_FSYNC)
NO_LINK = Family("a name cannot be given", "link", errno.ENOSPC)
NO_RENAME = Family("a rename fails", "replace", errno.EIO)
DISK_FAMILIES = (
    Family("the disk is full once", "xWrite", apsw.SQLITE_FULL),
    Family("the disk is full until freed", "xWrite", apsw.SQLITE_FULL, sticky=True),
    NO_SYNC,
    Family("a read fails", "xRead", apsw.SQLITE_IOERR_READ),
    Family("an open fails", "xOpen", apsw.SQLITE_CANTOPEN),
)
SYSTEM_FAMILIES = (
    Family("a file cannot be made or opened", "open", errno.ENOSPC),
    Family("a sync of ours fails", "fsync", errno.EIO),
    Family("permissions cannot be set", "chmod", errno.EIO),
    Family("a file cannot be removed", "unlink", errno.EIO),
    NO_LINK,
    NO_RENAME,
)


class FaultySystem:
    """Inside its `with` block our own calls to the system pass here, and fail on demand."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.struck = 0
        self._fault: Fault | None = None
        self._counting = False
        self._patches = ExitStack()

    def arm(self, fault: Fault | None) -> None:
        """Count the calls anew, and let this one fail; None for a system that works."""
        self.calls.clear()
        self.struck = 0
        self._fault = fault
        self._counting = True

    def free(self) -> None:
        self._fault = None
        self._counting = False

    def __enter__(self) -> "FaultySystem":
        for call in {family.call for family in SYSTEM_FAMILIES}:
            self._patches.enter_context(patch.object(os, call, self._wrapped(call)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._patches.close()

    def _wrapped(self, call: str) -> Callable[..., object]:
        original = getattr(os, call)

        def wrapped(*values: object, **options: object) -> object:
            self.calls[call] += self._counting
            fault = self._fault
            if fault and fault.call == call and fault.number == self.calls[call]:
                self.struck += 1
                raise OSError(fault.code, os.strerror(fault.code))
            answer: object = original(*values, **options)
            return answer

        return wrapped


Layer = FaultyDisk | FaultySystem
Attempt = Callable[[Layer, Fault | None], Awaitable[list[str]]]


@contextmanager
def _passed_over(path: Path, words: str, applied: str = "no") -> Iterator[None]:
    """Whatever the system refuses is taken for done."""
    with suppress(OSError):
        yield


def _not_made_whole(path: Path) -> None:
    """The log stays beside the draft if closing has not brought it in."""


PLANTS = {
    "backup": (
        (
            "a failed call is passed over",
            "holdfast.sdk.backup._translate_errors",
            _passed_over,
            NO_LINK,
        ),
    ),
    "restore": (
        (
            "a failed call is passed over",
            "holdfast.sdk.backup._translate_errors",
            _passed_over,
            NO_RENAME,
        ),
        (
            "the draft is not made whole",
            "holdfast.stores.sqlite.restore._make_whole",
            _not_made_whole,
            NO_SYNC,
        ),
    ),
}


class BackupFaults:
    """One store and one backup of it, in a folder; and the files of it that a killed process leaves."""

    def __init__(self, disk: FaultyDisk, folder: Path) -> None:
        self._disk = disk
        self._system = FaultySystem()
        self._folder = folder
        self._store = folder / "jobs.db"
        self._copy = folder / "copy.db"
        self._live = folder / "live.db"
        self._killed: dict[Path, Path] = {}
        self._versions: dict[str, int] = {}

    async def prepare(self) -> None:
        """Make the files; all that the killed process has committed is in its log."""
        with patch("holdfast.stores.sqlite.connection.CHECKPOINT_PAGES", 1_000_000):
            workload = Workload(self._store)
            await workload.run()
            for name in ("", "-wal"):
                kept = self._folder / f"killed.db{name}"
                shutil.copyfile(f"{self._store}{name}", kept)
                self._killed[kept] = Path(f"{self._live}{name}")
            await workload.close()
        registry = await open_registry(f"sqlite:///{self._store}")
        jobs = (await registry.list_jobs(limit=1000)).jobs
        self._versions = {job.job_id: job.version for job in jobs}
        assert self._versions.keys() == set(JOBS)
        assert any(job.leased for job in jobs)
        await registry.close()
        await backup(f"sqlite:///{self._store}", self._copy)
        shutil.copyfile(self._folder / "killed.db", self._live)
        assert await self._faults_of(self._live, restored=False), "the log is of no use"

    async def sweep(self, what: str, *, most: int | None) -> list[Swept]:
        """Let each call of a backup, or of a restore, fail in each way; then the planted bugs."""
        attempt = self._backup if what == "backup" else self._replace
        found = await self._each(what, self._disk, DISK_FAMILIES, attempt, most)
        with self._system:
            found += await self._each(what, self._system, SYSTEM_FAMILIES, attempt, most)
            if what == "restore":
                words = "restore to a new file"
                found += await self._each(words, self._system, SYSTEM_FAMILIES, self._make_new, most)
            for words, place, plant, family in PLANTS[what]:
                with patch(place, plant):
                    swept = Swept(Family(f"planted, must be bad: {what}: {words}", family.call, 0))
                    found.append(await self._find(swept, family, attempt))
        return found

    async def _each(
        self,
        what: str,
        layer: Layer,
        families: tuple[Family, ...],
        attempt: Attempt,
        most: int | None,
    ) -> list[Swept]:
        troubles = await attempt(layer, None)
        assert not troubles, troubles
        calls = Counter(layer.calls)
        found = []
        for family in families:
            swept = Swept(Family(f"{what}: {family.words}", family.call, family.code))
            count = calls[family.call]
            for number in range(1, count + 1, max(1, count // most) if most else 1):
                troubles = await attempt(layer, family.fault(number))
                swept.runs += 1
                swept.struck += layer.struck > 0
                swept.bad += bool(troubles)
                swept.troubles += [f"{what}: {family.words}, call {number}: {t}" for t in troubles]
            if count:  # a restore to a new file renames nothing
                found.append(swept)
        return found

    async def _find(self, swept: Swept, family: Family, attempt: Attempt) -> Swept:
        """Let one call after the other fail, the last one first, until an attempt is bad."""
        layer: Layer = self._disk if family in DISK_FAMILIES else self._system
        await attempt(layer, None)
        for number in range(layer.calls[family.call], 0, -1):
            swept.runs += 1
            swept.bad += bool(await attempt(layer, family.fault(number)))
            swept.struck += layer.struck > 0
            if swept.bad:
                return swept
        swept.troubles.append(f"NOT FOUND: {swept.family.words}")
        return swept

    async def _backup(self, layer: Layer, fault: Fault | None) -> list[str]:
        """A file under the backup's name is a whole backup."""
        target = self._folder / "backup.db"
        target.unlink(missing_ok=True)
        ending = await self._try(layer, fault, lambda: backup(f"sqlite:///{self._store}", target))
        if ending.done or (ending.unknown and target.exists()):
            return ending.troubles + await self._faults_of(target, restored=False)
        if target.exists():
            ending.troubles.append("it failed, and left a file under the backup's name")
        return ending.troubles

    async def _replace(self, layer: Layer, fault: Fault | None) -> list[str]:
        """Either the restore succeeded and no owner is left, or the old store is as it was."""
        for kept, live in self._killed.items():
            shutil.copyfile(kept, live)
        ending = await self._restore(layer, fault, force=True)
        found = await self._faults_of(self._live, restored=ending.done)
        if found and ending.unknown:
            found = await self._faults_of(self._live, restored=True)
        return ending.troubles + found

    async def _make_new(self, layer: Layer, fault: Fault | None) -> list[str]:
        """Either the restore succeeded and no owner is left, or there is no store."""
        self._live.unlink(missing_ok=True)
        ending = await self._restore(layer, fault, force=False)
        if ending.done or (ending.unknown and self._live.exists()):
            return ending.troubles + await self._faults_of(self._live, restored=True)
        if self._live.exists():
            ending.troubles.append("it failed, and left a store")
        return ending.troubles

    async def _restore(self, layer: Layer, fault: Fault | None, *, force: bool) -> "_Ending":
        url = f"sqlite:///{self._live}"
        return await self._try(layer, fault, lambda: restore(self._copy, url, force=force))

    async def _try(
        self, layer: Layer, fault: Fault | None, call: Callable[[], Awaitable[object]]
    ) -> "_Ending":
        ending = _Ending(troubles=[])
        layer.arm(fault)
        try:
            await call()
            ending.done = True
        except HoldfastError as error:
            ending.unknown = isinstance(error, Unavailable) and error.applied == "unknown"
        except Exception as error:
            ending.troubles.append(f"it let out {error!r}")
        finally:
            layer.free()
        for draft in (*self._folder.glob("*.unfinished*"), *self._folder.glob("*.restoring*")):
            draft.unlink()
            if fault is None or fault.call != "unlink":
                ending.troubles.append(f"it left {draft.name}")
        return ending

    async def _faults_of(self, path: Path, *, restored: bool) -> list[str]:
        """What is wrong with a store that should be as it was, or all of whose owners are shut out."""
        try:
            registry = await open_registry(f"sqlite:///{path}")
            try:
                jobs = (await registry.list_jobs(limit=1000)).jobs
                equal = (await registry.verify()).equal
            finally:
                await registry.close()
        except Exception as error:  # whatever it is, this store cannot be used
            return [f"{path.name} cannot be used: {error!r}"]
        found = [] if equal else ["log and state differ"]
        if {job.job_id for job in jobs} != self._versions.keys():
            found.append(f"{path.name} has {len(jobs)} jobs")
        elif restored and (held := sum(job.leased for job in jobs)):
            found.append(f"{path.name} has {held} jobs with owners from before")
        elif not restored and {job.job_id: job.version for job in jobs} != self._versions:
            found.append(f"{path.name} is not as it was")
        return found


@dataclass
class _Ending:
    """How a call ended, and what was wrong with that."""

    troubles: list[str]
    done: bool = False
    unknown: bool = False
