"""Recovery: publishes and reports what a killed worker left in its spool, while its lease still counts."""

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
from holdfast.worker.completion_reporter import PendingCompletion, report
from holdfast.worker.executor import Ending
from holdfast.worker.output import as_event
from holdfast.worker.spool import (
    UNREADABLE,
    AttemptHeader,
    Record,
    Seal,
    SpooledEvent,
    attempt_files,
    batches,
    read_file,
    remove_folder,
)

RECOVER_SECONDS = 5.0
KEPT_SECONDS = 2 * LEASE_MAX.total_seconds()
"""A folder for another store is kept this long: after that, no lease of it can be left."""

KILLED = Failure(message="The worker that ran it was killed.", code="WorkerKilled", crash=True)


class RecoveryObserver(Protocol):
    """Is told what was recovered, and what could not be."""

    def recovered(self, attempts: int) -> None: ...

    def trouble(self, why: str) -> None: ...


async def recover_forever(
    root: Path,
    store: str,
    registry: Registry,
    observer: RecoveryObserver,
    *,
    clock: Clock,
    ids: Ids,
) -> None:
    """Recover now and every few seconds, since other workers may die later. Runs until cancelled."""
    while True:
        try:
            if count := await recover(root, store, registry, clock=clock, ids=ids):
                observer.recovered(count)
        except (HoldfastError, OSError) as error:
            observer.trouble(f"the spool of a killed worker could not be recovered: {error}")
        await clock.sleep(RECOVER_SECONDS)


async def recover(root: Path, store: str, registry: Registry, *, clock: Clock, ids: Ids) -> int:
    """Publish and end what dead workers of this store left under `root`; return the number of attempts.

    A worker holds the lock of its folder, and so does its process supervisor until every process of its
    jobs is dead: the owner of the lock may report for them. Their fencing token decides what is accepted.
    """
    count, now = 0, clock.now().timestamp()
    for folder in _folders(root):
        with _locked(folder) as ours:
            if ours and _store(folder) == store:
                count += await _recover_folder(folder, registry, ids)
            elif ours and now - folder.stat().st_mtime > KEPT_SECONDS:
                remove_folder(folder)
    return count


async def _recover_folder(folder: Path, registry: Registry, ids: Ids) -> int:
    """Report what is in this folder, and remove it; a file that cannot be read is kept under another
    name."""
    count = 0
    for path in attempt_files(folder):
        records = read_file(path)
        if records and isinstance(records[0], AttemptHeader):
            count += await _end_attempt(records[0], records, registry, ids)
            path.unlink()
        else:
            path.rename(path.with_name(f"{path.name}{UNREADABLE}"))
    if not _has_unreadable(folder):
        remove_folder(folder)
    return count


def _has_unreadable(folder: Path) -> bool:
    """Whether it has files that could not be read, which are kept for people."""
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


async def _end_attempt(title: AttemptHeader, records: list[Record], registry: Registry, ids: Ids) -> bool:
    """End the attempt; return whether its lease was still held."""
    [job] = await registry.status_many([title.job_id])
    if job is None or not job.leased or job.fencing_token != title.fencing_token:
        return False
    grant = Grant(
        job=job,
        fencing_token=title.fencing_token,
        attempt=title.attempt,
        lease_seconds=0.0,
        task_token=title.task_token,
    )
    unsent = [r for r in records if isinstance(r, SpooledEvent) and r.sequence > job.published]
    try:
        for batch in batches(unsent, OUTPUT_BATCH_ITEMS_MAX, OUTPUT_BATCH_BYTES_MAX):
            await registry.publish(grant, [as_event(spooled) for spooled in batch])
        await report(registry, grant, _completion(records[-1], ids))
    except (Unavailable, Exhausted):  # the next recovery goes on behind what is published by then
        raise
    except HoldfastError:  # another worker owns it by now
        return False
    return True


def _completion(last: Record, ids: Ids) -> PendingCompletion:
    if isinstance(last, Seal):
        return msgspec.msgpack.decode(last.completion, type=PendingCompletion)
    return PendingCompletion(ids.new(), None, Ending(failure=KILLED))
