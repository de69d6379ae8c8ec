"""Backup and restore on a disk that fails: the old store or the new one, and never half of either."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw

from holdfast.core.errors import HoldfastError
from holdfast.sdk.backup import backup, restore
from holdfast.sdk.open import open_registry
from verify.disk_workload import JOBS, Workload
from verify.fault_sweep import Family, Swept
from verify.faulty_disk import FaultyDisk

FAMILIES = (
    Family("the disk is full once", "xWrite", apsw.SQLITE_FULL),
    Family("the disk is full until freed", "xWrite", apsw.SQLITE_FULL, sticky=True),
    Family("a sync fails", "xSync", apsw.SQLITE_IOERR_FSYNC),
    Family("a read fails", "xRead", apsw.SQLITE_IOERR_READ),
    Family("an open fails", "xOpen", apsw.SQLITE_CANTOPEN),
)
LEASED = 3
"""How many jobs have an owner after the workload."""

Attempt = Callable[[], Awaitable[list[str]]]


class BackupFaults:
    """One store and one backup of it, in a folder."""

    def __init__(self, disk: FaultyDisk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self._store = folder / "jobs.db"
        self._copy = folder / "copy.db"
        self._tries = 0

    async def prepare(self) -> None:
        workload = Workload(self._store)
        await workload.run()
        await workload.close()
        await backup(f"sqlite:///{self._store}", self._copy)

    async def sweep(self, what: str, *, most: int | None) -> list[Swept]:
        """Let each call of a backup, or of a restore, fail in each way."""
        attempt = self._backup if what == "backup" else self._restore
        self._disk.arm(None)
        troubles = await attempt()
        assert not troubles, troubles
        calls = dict(self._disk.calls)
        found = []
        for family in FAMILIES:
            swept = Swept(Family(f"{what}: {family.words}", family.call, family.code))
            count = calls[family.call]
            for number in range(1, count + 1, max(1, count // most) if most else 1):
                self._disk.arm(family.fault(number))
                troubles = await attempt()
                swept.runs += 1
                swept.struck += self._disk.struck > 0
                swept.bad += bool(troubles)
                swept.troubles += [f"{what}: {family.words}, call {number}: {t}" for t in troubles]
            found.append(swept)
        return found

    async def _backup(self) -> list[str]:
        """A file under the backup's name is a whole backup; what failed can be done again."""
        self._tries += 1
        target = self._folder / f"backup-{self._tries}.db"
        url = f"sqlite:///{self._store}"
        raised = await self._try(lambda: backup(url, target))
        found = raised.leaks
        if raised.refused and target.exists():
            found.append("it failed, and left a file under the backup's name")
        elif not raised.refused:
            found += await self._faults_of(target, leased=LEASED)
        for file in self._folder.glob(f"{target.name}*"):
            file.unlink()
        return found

    async def _restore(self) -> list[str]:
        """Either the restore succeeded and no owner is left, or the old store is as it was."""
        live = self._folder / "live.db"
        for file in self._folder.glob("live.db*"):
            file.unlink()
        shutil.copyfile(self._store, live)
        raised = await self._try(lambda: restore(self._copy, f"sqlite:///{live}", force=True))
        return raised.leaks + await self._faults_of(live, leased=LEASED if raised.refused else 0)

    async def _try(self, call: Callable[[], Awaitable[object]]) -> "_Raised":
        try:
            await call()
        except HoldfastError:
            return _Raised(refused=True, leaks=[])
        except Exception as error:
            return _Raised(refused=True, leaks=[f"it let out {error!r}"])
        finally:
            self._disk.free()
        return _Raised(refused=False, leaks=[])

    async def _faults_of(self, path: Path, *, leased: int) -> list[str]:
        try:
            registry = await open_registry(f"sqlite:///{path}")
            try:
                jobs = (await registry.list_jobs(limit=1000)).jobs
                equal = (await registry.verify()).equal
            finally:
                await registry.close()
        except Exception as error:  # whatever it is, this store cannot be used
            return [f"{path.name} cannot be used: {error!r}"]
        held = sum(job.leased for job in jobs)
        found = [] if equal else ["log and state differ"]
        if {job.job_id for job in jobs} != set(JOBS) or held != leased:
            found.append(f"{path.name} has {len(jobs)} jobs with {held} owners, not {leased}")
        return found


class _Raised:
    """How a call ended: refused or not, and what it let out that it should not have."""

    def __init__(self, *, refused: bool, leaks: list[str]) -> None:
        self.refused = refused
        self.leaks = leaks
