"""File calls that fail, in short. The long form is `python -m verify.io_errors`."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local, open_registry
from verify.backup_faults import BackupFaults
from verify.disk_verdict import STEPS, differences
from verify.disk_workload import Workload, small
from verify.environment import CANNOT_RUN
from verify.faulty_disk import Fault, FaultyDisk
from verify.shadow_disk import ShadowDisk

ROOT = Path(__file__).parents[3]
JOBS = ("one", "two", "three")


@pytest.mark.slow
def test_every_failed_call_is_told_honestly_and_survived() -> None:
    command = [sys.executable, "-m", "verify.io_errors", "--short"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    if run.returncode == CANNOT_RUN:
        pytest.skip(f"NOT PROVED: NO FULL DISK CAN BE MADE ON THIS MACHINE. {run.stdout}")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.slow
async def test_a_prune_that_stops_half_way_does_not_say_that_nothing_was_done(
    tmp_path: Path,
) -> None:
    async def prune(disk: FaultyDisk, path: Path, fault: Fault | None) -> tuple[str, int]:
        """What a prune of three jobs answers, and how many of them are left."""
        registry = await open_registry(f"sqlite:///{path}")
        for job_id in JOBS:
            await registry.enqueue(JobRequest(spec=Spec(), job_id=job_id), actor="user:ana")
            await registry.cancel(job_id, actor="user:ana")
        disk.arm(fault)
        answer = "acknowledged"
        try:
            await registry.prune(older_than=timedelta(0))
        except Unavailable as error:
            answer = error.applied
        disk.free()
        left = len((await registry.list_jobs()).jobs)
        await registry.close()
        return answer, left

    with small(), FaultyDisk() as disk:
        assert await prune(disk, tmp_path / "jobs.db", None) == ("acknowledged", 0)
        for number in range(1, disk.calls["xWrite"] + 1, 3):
            fault = Fault("xWrite", number, apsw.SQLITE_FULL)
            answer, left = await prune(disk, tmp_path / f"jobs-{number}.db", fault)
            assert answer != "no" or left == len(JOBS), f"call {number}: {left} left"


async def test_an_open_that_fails_at_whatever_lock_raises_an_error_of_ours(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with FaultyDisk() as disk:
        await (await open_registry(url)).close()
        disk.arm(None)
        await (await open_registry(url)).close()
        for number in range(1, disk.calls["xShmLock"] + 1):
            disk.arm(Fault("xShmLock", number, apsw.SQLITE_IOERR_SHMLOCK))
            try:
                await (await open_registry(url)).close()
            except HoldfastError:
                continue
            finally:
                disk.free()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["backup", "restore"])
async def test_a_failed_backup_or_restore_leaves_nothing_half_done(what: str, tmp_path: Path) -> None:
    with FaultyDisk() as disk:
        faults = BackupFaults(disk, tmp_path)
        await faults.prepare()

        swept = await faults.sweep(what, most=2)

    assert [trouble for one in swept for trouble in one.troubles] == []


def test_the_faulty_disk_fails_the_very_call_it_was_told_to(tmp_path: Path) -> None:
    with FaultyDisk() as disk:
        connection = apsw.Connection(str(tmp_path / "any.db"))
        connection.execute("CREATE TABLE note (text)").fetchall()
        disk.arm(Fault("xWrite", 1, apsw.SQLITE_FULL))

        with pytest.raises(apsw.FullError):
            connection.execute("INSERT INTO note VALUES ('lost')").fetchall()

        assert disk.struck == 1
        connection.execute("INSERT INTO note VALUES ('kept')").fetchall()
        assert list(connection.execute("SELECT text FROM note")) == [("kept",)]
        connection.close()


def test_outside_its_block_the_disk_is_nobodys_business(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with disk:
        disk.arm(None)

    apsw.Connection(str(tmp_path / "any.db")).execute("CREATE TABLE note (text)").fetchall()

    assert not disk.calls


def test_what_a_failed_sync_forgot_no_later_sync_brings_back(tmp_path: Path) -> None:
    disk = ShadowDisk()
    disk.written("file", 0, b"first")
    disk.synced("file", failed=True)
    disk.written("file", 5, b"second")
    disk.synced("file", failed=False)

    disk.lay_out(tmp_path / "image")

    assert (tmp_path / "image" / "file").read_bytes() == b"\0\0\0\0\0second"


class RecordingRegistry:
    """A registry that notes which of its verbs are used."""

    def __init__(self, registry: LocalRegistry, used: set[str]) -> None:
        self._registry = registry
        self._used = used

    def __getattr__(self, name: str) -> object:
        self._used.add(name)
        return getattr(self._registry, name)


NO_FILE_CALL = {
    "calls_at_once",
    "change_mark",
    "changes",
    "counters",
    "describe",
    "now",
    "start_counting",
    "take_unvalidated",
}


async def test_the_workload_uses_every_verb_of_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[str] = set()

    async def opened(url: str) -> RecordingRegistry:
        return RecordingRegistry(await open_local(url), used)

    monkeypatch.setattr("verify.disk_workload.open_local", opened)
    workload = Workload(tmp_path / "jobs.db")
    await workload.run()
    await workload.close()

    assert workload.troubles == []
    assert workload.acknowledged((*STEPS, "read", "watch", "close"))
    verbs = {name for name in vars(LocalRegistry) if not name.startswith("_")}
    assert verbs - used - NO_FILE_CALL == set()


def test_an_answer_that_contradicts_the_store_is_noticed() -> None:
    assert differences({"claim": "acknowledged"}, set())
    assert differences({"claim": "no"}, {"claim"})
    assert differences({"replay": "unknown"}, {"replay in part: ['job']"})
    assert differences({"prune": "no", "enqueue-old": "acknowledged"}, set())
    assert not differences({"claim": "unknown"}, {"claim"})
    assert not differences({"claim": "unknown"}, set())
