"""Recovery: what a killed worker left in its spool is told by the next one, as far as it still counts."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.core.errors import Exhausted, HoldfastError, Unavailable
from holdfast.core.job import Failure
from holdfast.core.limits import LEASE_MAX, OUTPUT_BATCH_BYTES_MAX, OUTPUT_BATCH_ITEMS_MAX
from holdfast.ports import Clock, Grant, Ids, Registry
from holdfast.worker.endings import Note, tell
from holdfast.worker.executor import Ending
from holdfast.worker.output import as_event
from holdfast.worker.spool import (
    UNREADABLE,
    Piece,
    Record,
    Seal,
    Title,
    attempts,
    batches,
    read_file,
    remove_folder,
)

RECOVER_SECONDS = 5.0
KEPT_SECONDS = 2 * LEASE_MAX.total_seconds()
"""What is left for other stores is theirs, until no lease can be left of it."""

KILLED = Failure(message="The worker that ran it was killed.", code="WorkerKilled", crash=True)


class Report(Protocol):
    """Whoever wants to know what was left, and told."""

    def recovered(self, attempts: int) -> None: ...

    def trouble(self, why: str) -> None: ...


async def recover_always(
    root: Path, store: str, registry: Registry, report: Report, *, clock: Clock, ids: Ids
) -> None:
    """Look now, and then every few seconds: neighbours die too. Runs until cancelled."""
    while True:
        try:
            if count := await recover(root, store, registry, clock=clock, ids=ids):
                report.recovered(count)
        except (HoldfastError, OSError) as error:
            report.trouble(f"what a killed worker left could not be told: {error}")
        await clock.sleep(RECOVER_SECONDS)


async def recover(root: Path, store: str, registry: Registry, *, clock: Clock, ids: Ids) -> int:
    """Publish and end what dead workers of this store left under `root`; answers how many attempts
    that were.

    A worker holds the lock of its folder, and so does its warden until every process of its jobs is
    dead: whoever gets the lock may speak for them. The fencing token they had decides what counts.
    """
    count, now = 0, clock.now().timestamp()
    for folder in _folders(root):
        with _locked(folder) as ours:
            if ours and _store(folder) == store:
                count += await _tell_all(folder, registry, ids)
            elif ours and now - folder.stat().st_mtime > KEPT_SECONDS:
                remove_folder(folder)
    return count


async def _tell_all(folder: Path, registry: Registry, ids: Ids) -> int:
    """Tell what is in this folder, and remove it; a file that cannot be read is set aside."""
    count = 0
    for path in attempts(folder):
        records = read_file(path)
        if records and isinstance(records[0], Title):
            count += await _finish(records[0], records, registry, ids)
            path.unlink()
        else:
            path.rename(path.with_name(f"{path.name}{UNREADABLE}"))
    if not _keeps(folder):
        remove_folder(folder)
    return count


def _keeps(folder: Path) -> bool:
    """Whether anything was set aside here, for people to look at."""
    return any(path.suffix == UNREADABLE for path in folder.iterdir())


def _folders(root: Path) -> list[Path]:
    return sorted(root.iterdir())


def _store(folder: Path) -> str | None:
    try:
        return (folder / "store").read_text()
    except FileNotFoundError:
        return None


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    try:
        lock = os.open(folder / "lock", os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(lock)


async def _finish(title: Title, records: list[Record], registry: Registry, ids: Ids) -> bool:
    """Whether the attempt was still its owner's, and is ended now."""
    [job] = await registry.get_many([title.job_id])
    if job is None or not job.leased or job.fencing_token != title.fencing_token:
        return False
    grant = Grant(
        job=job,
        fencing_token=title.fencing_token,
        attempt=title.attempt,
        lease_seconds=0.0,
        task_token=title.task_token,
    )
    unsent = [r for r in records if isinstance(r, Piece) and r.sequence > job.published]
    try:
        for batch in batches(unsent, OUTPUT_BATCH_ITEMS_MAX, OUTPUT_BATCH_BYTES_MAX):
            await registry.publish(grant, [as_event(piece) for piece in batch])
        await tell(registry, grant, _note(records[-1], ids))
    except (Unavailable, Exhausted):  # the next look goes on behind what is settled by then
        raise
    except HoldfastError:  # somebody else owns it by now
        return False
    return True


def _note(last: Record, ids: Ids) -> Note:
    if isinstance(last, Seal):
        return msgspec.msgpack.decode(last.note, type=Note)
    return Note(ids.new(), None, Ending(failure=KILLED))
