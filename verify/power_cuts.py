"""Power cuts under load, on a real file system: is everything there that was acknowledged?"""

import argparse
import asyncio
import os
import random
import shutil
import statistics
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from verify.environment import CANNOT_RUN, say, scratch
from verify.loop_disk import Forbidden, LoopDisk, private_mounts
from verify.power_cut_check import check
from verify.power_cut_load import Line, Listener, end, fork

DISK_MEBIBYTES = 96
STORE_CUTS = 3
"""How many cuts one store goes through before the next is created."""
OURS = "FULL"
ACKNOWLEDGING = ("job", "line", "beat")
OPENING_SECONDS_MAX = 10.0
CUTS = {OURS: 500, "NORMAL": 30, "OFF": 30}
SHORT_CUTS = {OURS: 12, "OFF": 4}


@dataclass
class Tally:
    """What the cuts under one setting did."""

    synchronous: str
    cuts: int = 0
    acknowledged: int = 0
    lost: int = 0
    losing_cuts: int = 0
    damaged: int = 0
    in_creation: int = 0
    in_checkpoint: int = 0
    two_processes: int = 0
    late: int = 0
    late_lost: int = 0
    seconds: list[float] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)


@dataclass
class Store:
    """A store on the disk, and everything that was ever acknowledged about it."""

    path: Path
    lines: list[Line] = field(default_factory=list)
    opened: bool = False


class Cutter:
    """Cuts the power of one disk again and again, under one setting of `synchronous`."""

    def __init__(self, disk: LoopDisk, synchronous: str) -> None:
        self.tally = Tally(synchronous)
        self._disk = disk
        self._chance = random.Random(synchronous)
        self._store: Store | None = None
        self._ours = synchronous == OURS

    def run(self, cuts: int) -> Tally:
        """So many cuts; up to three times as many while a control has lost nothing."""
        for number in range(3 * cuts):
            if number >= cuts and (self._ours or self.tally.lost):
                break
            started = time.monotonic()
            self._one(number)
            self.tally.seconds.append(time.monotonic() - started)
            if number % 20 == 19:
                say(f"{self.tally.synchronous}: {number + 1} cuts, {self.tally.lost} lost")
        self._forget()
        return self.tally

    def _one(self, number: int) -> None:
        if number % STORE_CUTS == 0 or self._store is None:
            self._renew(number)
        store, tally = self._store, self.tally
        assert store is not None
        known = len(store.lines)
        late, troubles = self._load_and_cut(store, number)
        self._disk.unmount()
        self._disk.mount()
        found = asyncio.run(check(store.path, store.lines + late))
        lost = [line for line in found.lost if line not in late]
        tally.cuts += 1
        tally.acknowledged += len(store.lines) - known
        tally.late += len(late)
        tally.late_lost += len(found.lost) - len(lost)
        tally.lost += len(lost)
        tally.losing_cuts += bool(lost)
        tally.damaged += bool(found.damage)
        troubles += found.damage + [f"{line} was acknowledged, but is not there" for line in lost]
        tally.troubles += [f"cut {number}: {trouble}" for trouble in troubles[:3]]
        store.lines += found.written
        if lost or found.damage:
            self._store = None

    def _wait(self, store: Store, number: int, listener: Listener) -> list[Line]:
        """Let the load go on until the cut; what was heard. Every second new store of ours is cut while
        it is created, which takes some 15 ms; for the others the count begins when it is open."""
        if self._ours and not store.opened and number % 2:
            return listener.hear(self._chance.uniform(0, 0.03))
        heard: list[Line] = []
        until = time.monotonic() + OPENING_SECONDS_MAX
        while not heard and time.monotonic() < until:
            heard = listener.hear(0.005)
        return heard + listener.hear(self._chance.uniform(0 if self._ours else 0.05, 0.12))

    def _load_and_cut(self, store: Store, number: int) -> tuple[list[Line], list[str]]:
        """Load the store, cut the power at some instant, end the processes; what was heard too late.

        What counts was heard before the cut began. In the milliseconds that a process outlives its
        disk, ext4 answers some `fdatasync` with success whose journal transaction was dropped (a bare
        loop of `pwrite` and `fdatasync` shows the same); after a real cut nobody is there to hear it.
        """
        hear, tell = os.pipe()
        pages = self._chance.choice((30, 100, 1000))
        processes = 2 if number % 4 == 3 else 1
        self.tally.two_processes += processes == 2
        pids = [
            fork(
                store.path,
                f"{number}-{n}",
                tell,
                synchronous=self.tally.synchronous,
                checkpoint_pages=pages,
            )
            for n in range(processes)
        ]
        os.close(tell)
        listener = Listener(hear)
        try:
            before = self._wait(store, number, listener)
            self._look(store, before)
            before += listener.hear(0)
            self._disk.cut(log_flush=self._chance.random() < 0.25)
        finally:
            ended = end(pids)
            late = listener.hear(10)
            os.close(hear)
        store.opened = store.opened or any(line.kind == "opened" for line in before + late)
        store.lines += [line for line in before if line.kind in ACKNOWLEDGING]
        crashes = [line.job_id for line in before + late if line.kind == "crash"] + ended
        self.tally.crashes += [f"cut {number}: {crash}" for crash in crashes]
        troubles = [line.job_id for line in before if line.kind == "trouble"]
        return [line for line in late if line.kind in ACKNOWLEDGING], troubles

    def _look(self, store: Store, lines: list[Line]) -> None:
        """What the cut is about to interrupt."""
        opened = store.opened or any(line.kind == "opened" for line in lines)
        self.tally.in_creation += not opened and store.path.exists()
        self.tally.in_checkpoint += _in_checkpoint(store.path)

    def _renew(self, number: int) -> None:
        self._forget()
        folder = self._disk.folder / f"{self.tally.synchronous}-{number}"
        folder.mkdir()
        os.sync()
        self._store = Store(folder / "jobs.db")

    def _forget(self) -> None:
        for folder in self._disk.folder.glob(f"{self.tally.synchronous}-*"):
            shutil.rmtree(folder)
        self._store = None


def _in_checkpoint(path: Path) -> bool:
    """Whether somebody has begun to copy pages from the log to the file, and has not finished: the
    shared memory beside the file says how far the copying is meant to go, and how far it is."""
    try:
        with path.with_name(f"{path.name}-shm").open("rb") as memory:
            head = memory.read(132)
    except OSError:
        return False
    if len(head) < 132:
        return False
    copied, meant = struct.unpack_from("I", head, 96)[0], struct.unpack_from("I", head, 128)[0]
    return bool(meant > copied)


def section(tallies: list[Tally], *, short: bool) -> str:
    full = tallies[0]
    rows = [
        f"| {t.synchronous}{' (ours)' if t is full else ' (control, must lose)'} | {t.cuts}"
        f" | {t.acknowledged:,} | {t.lost:,} | {t.losing_cuts} | {t.damaged} |"
        for t in tallies
    ]
    form = " --short" if short else ""
    return "\n".join(
        [
            "## Power cuts",
            "",
            "Processes write through the registry to a store on an ext4 file system whose power is cut"
            " (`EXT4_IOC_SHUTDOWN`) at random instants; then the file system's journal is played and"
            " the store opened again. Claimed: every acknowledged operation is there,"
            " `integrity_check` is ok, log and state are equal, and the store goes on working. The"
            " page cache is lost at a cut; a drive's own cache is not part of this, see the crash"
            " images for writes that are torn and out of order.",
            "",
            "| `synchronous` | cuts | acknowledged | lost | cuts that lost | damaged stores |",
            "|---|---:|---:|---:|---:|---:|",
            *rows,
            "",
            "An operation counts when the answer was heard, outside, before the cut began;"
            f" {full.late:,} answers came in the milliseconds that a process outlives its disk, when"
            f" the kernel answers some syncs with success for nothing ({full.late_lost} of them were"
            " lost); after a real cut nobody is left to give them.",
            "",
            f"Of our cuts {full.in_creation} fell into the creation of the file,"
            f" {full.in_checkpoint} into a checkpoint, {full.two_processes} hit two processes at"
            f" once; a cut with recovery and check took {statistics.median(full.seconds) * 1000:.0f}"
            f" ms (median). SQLite {apsw.sqlite_lib_version()}, Linux {os.uname().release}.",
            "",
            f"Repeat (as root): `.venv/dev/bin/python -m verify.power_cuts{form}`",
        ]
    )


def verdict(tallies: list[Tally], *, short: bool) -> list[str]:
    """What is wrong with the outcome; nothing when the claim holds."""
    full, *controls = tallies
    wrong = full.troubles[:20]
    wrong += [
        f"THE LOAD CRASHED {len(t.crashes)} TIMES under {t.synchronous}: {t.crashes[0]}"
        for t in tallies
        if t.crashes
    ]
    wrong += [
        f"THE CONTROL LOST NOTHING: {t.synchronous}, {t.cuts} cuts, {t.acknowledged} acknowledged;"
        " so these cuts prove nothing."
        for t in controls
        if not t.lost
    ]
    if not full.acknowledged:
        wrong.append("NOTHING WAS ACKNOWLEDGED BEFORE ANY CUT, so these cuts prove nothing.")
    if full.lost or full.damaged:
        wrong.append(f"LOST {full.lost} ACKNOWLEDGED OPERATIONS, {full.damaged} DAMAGED STORES.")
    if not short and not (full.in_creation and full.in_checkpoint):
        wrong.append("No cut fell into the creation of a file, or none into a checkpoint.")
    return wrong


def prove(*, short: bool) -> list[Tally]:
    private_mounts()
    cuts = SHORT_CUTS if short else CUTS
    # A disk in memory syncs in no time: more instants for a cut.
    with (
        scratch("holdfast-cuts-", DISK_MEBIBYTES) as folder,
        LoopDisk(folder, DISK_MEBIBYTES) as disk,
    ):
        return [Cutter(disk, synchronous).run(n) for synchronous, n in cuts.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few cuts only")
    short = parser.parse_args().short
    try:
        tallies = prove(short=short)
    except Forbidden as error:
        print(f"## Power cuts\n\n**NOT PROVED: NO POWER CAN BE CUT ON THIS MACHINE.** {error}")
        return CANNOT_RUN
    print(section(tallies, short=short))
    wrong = verdict(tallies, short=short)
    for one in wrong:
        print(f"\n**{one}**")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
