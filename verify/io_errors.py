"""I/O errors at every file call of a run through all verbs, crash images of it, and a full disk."""

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import apsw

from holdfast.core.errors import HoldfastError
from holdfast.stores.sqlite.connection import _prepare, translated
from verify.backup_faults import BackupFaults
from verify.crash_images import Images, cut_everywhere, record
from verify.disk_verdict import STEPS
from verify.disk_workload import small
from verify.environment import CANNOT_RUN, say, scratch
from verify.fault_sweep import FAMILIES, SYNC_FAILS, Sweep, Swept
from verify.faulty_disk import FaultyDisk
from verify.full_disk import Filled, fill
from verify.loop_disk import Forbidden, LoopDisk, mount_tmpfs, private_mounts, unmount

SCRATCH_MEBIBYTES = 48
SHORT_RUNS = 6
SHORT_INSTANTS = 15
Applied = Literal["no", "unknown"]


@dataclass
class Proof:
    """All that was done and found."""

    swept: list[Swept] = field(default_factory=list)
    backups: list[Swept] = field(default_factory=list)
    planted: dict[str, Swept] = field(default_factory=dict)
    images: Images = field(default_factory=Images)
    careless: Images = field(default_factory=Images)
    filled: list[Filled] = field(default_factory=list)
    forbidden: str = ""

    @property
    def troubles(self) -> list[str]:
        found = [one for swept in self.swept + self.backups for one in swept.troubles[:5]]
        found += [f"{s.family.words}: never struck" for s in self.swept + self.backups if not s.struck]
        found += [f"NOT FOUND: {words}" for words, s in self.planted.items() if not s.bad]
        found += self.images.troubles[:5]
        if not self.careless.bad:
            found.append("NOT FOUND: synchronous=NORMAL lost nothing in the crash images")
        for filled in self.filled:
            found += [f"full {filled.kind}: {one}" for one in filled.troubles]
            if not filled.refused:
                found.append(f"full {filled.kind}: the disk was never full")
        return found


async def prove(proof: Proof, scratch: Path, *, short: bool) -> None:
    most = SHORT_RUNS if short else None
    with small(), FaultyDisk() as disk:
        sweep = Sweep(disk, scratch)
        calls = await sweep.calls()
        for family in FAMILIES:
            started = time.monotonic()
            swept = await sweep.run(family, calls[family.call], most=most)
            proof.swept.append(swept)
            seconds = time.monotonic() - started
            say(f"{family.words}: {swept.runs} runs, {swept.bad} bad, {seconds:.0f} s")
        for words, plant in PLANTS.items():
            with patch("holdfast.stores.sqlite.store.translated", plant):
                looking = sweep.find if short else sweep.run
                proof.planted[words] = await looking(SYNC_FAILS, calls["xSync"])
            say(f"planted: {words}: {proof.planted[words].bad} bad")
        faults = BackupFaults(disk, scratch)
        await faults.prepare()
        for what in ("backup", "restore"):
            proof.backups += await faults.sweep(what, most=most)
        troubles = sum(len(swept.troubles) for swept in proof.backups)
        say(f"backup and restore: {troubles} troubles")
        torn, each = (1, SHORT_INSTANTS) if short else (4, 1)
        proof.images = await _cut(disk, scratch, torn=torn, every=each)
        with patch("holdfast.stores.sqlite.connection._prepare", _prepare_normal):
            proof.careless = await _cut(disk, scratch, torn=0, every=40)
        say(f"crash images: {proof.images.made}, {proof.images.bad} bad")


async def _cut(disk: FaultyDisk, scratch: Path, *, torn: int, every: int) -> Images:
    folder = scratch / "recorded"
    folder.mkdir()
    recording = await record(disk, folder)
    shutil.rmtree(folder)
    return await cut_everywhere(recording, scratch, torn=torn, every=every)


async def _fill_disks(scratch: Path) -> list[Filled]:
    mount_tmpfs(scratch / "memory", 8)
    try:
        filled = [await fill(scratch / "memory", "tmpfs")]
    finally:
        unmount(scratch / "memory")
    with LoopDisk(scratch, 24) as disk:
        filled.append(await fill(disk.folder, "ext4"))
    return filled


@contextmanager
def _passed_over(path: Path, applied: Applied = "no") -> Iterator[None]:
    """Whatever goes wrong at a COMMIT is taken for success."""
    try:
        with translated(path, applied):
            yield
    except HoldfastError:
        if applied == "no":
            raise


def _always_no(path: Path, applied: Applied = "no") -> AbstractContextManager[None]:
    """Whatever goes wrong at a COMMIT is said not to be applied."""
    return translated(path, "no")


def _prepare_normal(connection: apsw.Connection) -> None:
    _prepare(connection)
    connection.pragma("synchronous", "NORMAL")


PLANTS = {
    "a store that passes over a failed COMMIT": _passed_over,
    "a store that says `no` for every failed COMMIT": _always_no,
}


def section(proof: Proof, *, short: bool) -> str:
    runs = sum(swept.runs for swept in proof.swept)
    lines = [
        "## I/O errors and a full disk",
        "",
        f"A run through every verb of the registry, with checkpoints between ({len(STEPS)} writes:"
        f" {', '.join(STEPS)}; then every kind of reading) is repeated {runs:,} times; each time one"
        " file call of SQLite fails. Claimed: the caller gets `Unavailable` (an open may be `Invalid`),"
        " nothing hangs, what was acknowledged is there and what was said not to be applied is not, in"
        " the same process, after a kill and after a power cut at that point (a failed sync forgets its"
        " pages); and with the disk back the same process finishes the run, log and state equal.",
        "",
        "| fault | file call | runs | acknowledged | `no` | `unknown` | bad runs |",
        "|---|---|---:|---:|---:|---:|---:|",
        *(_row(swept, swept.family.words) for swept in proof.swept),
        *(_row(swept, f"planted, must be bad: {w}") for w, swept in proof.planted.items()),
        "",
        "**Backup and restore** under the same faults, and with our own calls to the system failing."
        " Claimed: a file under the backup's name is a whole backup, and a restore leaves the old store"
        " as it was or the new one without owners.",
        "",
        "| fault | file call | runs | bad runs |",
        "|---|---|---:|---:|",
        *(f"| {s.family.words} | {s.family.call} | {s.runs} | {s.bad} |" for s in proof.backups),
        "",
        _crash_images(proof, short=short),
        "",
        *(_full_disk(filled) for filled in proof.filled),
    ]
    if proof.forbidden:
        lines.append(f"**NOT PROVED: NO FULL DISK CAN BE MADE ON THIS MACHINE.** {proof.forbidden}")
    form = " --short" if short else ""
    return "\n".join([*lines, "", f"Repeat (as root): `.venv/dev/bin/python -m verify.io_errors{form}`"])


def _row(swept: Swept, words: str) -> str:
    kinds = " | ".join(f"{swept.answers[kind]:,}" for kind in ("acknowledged", "no", "unknown"))
    return f"| {words} | {swept.family.call} | {swept.runs} | {kinds} | {swept.bad} |"


def _crash_images(proof: Proof, *, short: bool) -> str:
    images, careless = proof.images, proof.careless
    every = f"every {SHORT_INSTANTS}th" if short else "each"
    return (
        f"**Crash images.** The {images.calls} writes, truncates, syncs and deletes of one run, cut"
        f" after {every} of them: {images.made:,} images (un-synced writes dropped, or kept in part,"
        " out of order and torn at 512 bytes; a deleted file back again), of which"
        f" {images.bad} lack something acknowledged, or are damaged or unequal. Control with"
        f" `synchronous=NORMAL`, which must lose: {careless.bad} of {careless.made} images."
    )


def _full_disk(filled: Filled) -> str:
    return (
        f"**A full disk for real** ({filled.kind}): {filled.before} jobs until it was full,"
        f" {filled.refused} refusals, freed, then {filled.after} more from the same process;"
        f" {len(filled.troubles)} lost, refused but there, or otherwise wrong.\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="some of the calls only")
    short = parser.parse_args().short
    proof = Proof()
    try:
        # In memory: nothing here depends on what the real disk does.
        with scratch("holdfast-errors-", SCRATCH_MEBIBYTES) as folder:
            asyncio.run(prove(proof, folder, short=short))
            private_mounts()
            proof.filled = asyncio.run(_fill_disks(folder))
    except Forbidden as error:
        proof.forbidden = str(error)
    print(section(proof, short=short))
    for one in proof.troubles[:20]:
        print(f"\n**{one}**")
    if proof.troubles:
        return 1
    return CANNOT_RUN if proof.forbidden else 0


if __name__ == "__main__":
    sys.exit(main())
