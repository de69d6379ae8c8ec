"""kill -9 at any moment: nothing acknowledged is lost, and log and state stay one.

`python -m verify.kills` is the long form: more passings of each failpoint, and 500 random kills.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.ports import Registry, Verification
from holdfast.sdk.backup import backup, restore
from verify.kills_harness import ForkedProcesses, asked, url
from verify.kills_runs import (
    Load,
    chosen,
    control,
    kill_at_failpoints,
    rehearse,
)

RANDOM_KILLS = 20
SEED = 28
WARDEN_SECONDS = 1.2
"""Less than the slow command lasts that is started last: nobody is gone by itself."""


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkedProcesses]:
    with ForkedProcesses() as processes:
        yield processes


def test_a_process_killed_at_any_failpoint_loses_nothing_and_others_finish_its_work(
    processes: ForkedProcesses, tmp_path: Path
) -> None:
    cases = chosen(rehearse(processes, tmp_path), short=True)

    tally = kill_at_failpoints(processes, tmp_path, cases)

    assert tally.lost == []
    assert tally.wrong == []
    assert tally.kills == len(cases)
    assert tally.crashes > 20  # the kills hit work


def test_processes_killed_at_random_under_load_lose_nothing_and_all_jobs_end(
    processes: ForkedProcesses, tmp_path: Path
) -> None:
    load = Load(processes, tmp_path / "load", SEED)

    load.run(RANDOM_KILLS)

    assert load.tally.lost == []
    assert load.tally.wrong == []
    assert load.tally.kills == RANDOM_KILLS
    assert load.tally.crashes > 0  # the kills hit work


def test_a_process_that_acknowledges_too_early_is_found_out(
    processes: ForkedProcesses, tmp_path: Path
) -> None:
    tally = control(processes, tmp_path)

    assert any("done b queued 1" in loss for loss in tally.lost), tally.lost
    assert tally.wrong == []


def test_a_command_that_has_just_been_started_dies_with_its_worker(
    processes: ForkedProcesses, tmp_path: Path
) -> None:
    pid = processes.start("commands", tmp_path, failpoint="worker.process_started", passing=2)
    processes.ended(pid)

    until = time.monotonic() + WARDEN_SECONDS
    while (left := at_work_in(tmp_path)) and time.monotonic() < until:
        time.sleep(0.02)

    assert left == []


def test_a_restore_beside_the_log_of_a_killed_store_is_whole(
    processes: ForkedProcesses, tmp_path: Path
) -> None:
    processes.ended(
        processes.start("safekeeping", tmp_path, failpoint="backup.synced", passing=1), seconds=30
    )
    processes.ended(processes.start("life", tmp_path, failpoint="sqlite.returned", passing=5))
    (tmp_path / "jobs.db").unlink()

    asyncio.run(restore(tmp_path / "backup.db", url(tmp_path), force=True))

    assert asked(tmp_path, verified).equal


def test_a_backup_that_is_killed_has_not_the_name_of_a_backup_and_hinders_no_other(
    processes: ForkedProcesses, tmp_path: Path
) -> None:
    for _ in range(2):
        pid = processes.start("safekeeping", tmp_path, failpoint="backup.copied", passing=1)
        processes.ended(pid, seconds=30)

    drafts = {file.suffix for file in tmp_path.glob("backup.db*")}
    asyncio.run(backup(url(tmp_path), tmp_path / "backup.db"))

    assert drafts == {".unfinished"}
    assert asyncio.run(restore(tmp_path / "backup.db", url(tmp_path), force=True)).jobs == 4


def test_what_a_backup_leaves_that_is_killed_at_its_start_is_not_restored(tmp_path: Path) -> None:
    (tmp_path / "backup.db").touch()

    with pytest.raises(HoldfastError):
        asyncio.run(restore(tmp_path / "backup.db", url(tmp_path)))


async def verified(registry: Registry) -> Verification:
    return await registry.verify()


def at_work_in(folder: Path) -> list[str]:
    """The pids of the processes that have this folder as their own."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.append(process.name)
        except OSError:
            continue  # it is gone, or was never ours to look at
    return found
