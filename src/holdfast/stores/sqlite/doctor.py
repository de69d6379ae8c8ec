"""Doctor: what a file guarantees and what it does not, found by reading, never by writing."""

import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import apsw

from holdfast.core.clock_step import ClockStepSummary
from holdfast.core.errors import HoldfastError
from holdfast.core.explanation import describe_clock_step, format_duration
from holdfast.ports import Clock, Finding, Topic
from holdfast.stores.records import DAMAGED
from holdfast.stores.sqlite import filesystem, queries
from holdfast.stores.sqlite.clock import steps_of
from holdfast.stores.sqlite.connection import SAFE_SQLITE, translated
from holdfast.stores.sqlite.files import check_names
from holdfast.stores.sqlite.filesystem import Filesystem, filesystem_of, size
from holdfast.stores.sqlite.statements import migrations, statement
from holdfast.stores.sqlite.timestamps import from_microseconds, to_microseconds
from holdfast.system import SystemClock, boot_id

CHECKED_BYTES_MAX = 200_000_000  # 175 MB took 0.2 s, from memory; a disk takes longer
CLOCK_NEAR = timedelta(seconds=2)
CLOCK_FAR = timedelta(minutes=1)
OVERDUE = timedelta(minutes=1)
_SYNCHRONOUS = ("off", "normal", "full", "extra")


def doctor(
    connection: apsw.Connection,
    path: Path,
    clock: Clock,
    check_place: Callable[[], None],
    durable: list[Finding],
) -> list[Finding]:
    """Return all findings, in the order in which they are shown. `durable` is what `durability` returned
    for the writer's connection."""
    under = filesystem_of(path)
    checks: tuple[tuple[Topic, Callable[[], Iterable[Finding]]], ...] = (
        ("store", lambda: _store(path, check_place)),
        ("version", _version),
        ("schema", lambda: _schema(connection)),
        ("durability", lambda: durable),
        ("sharing", lambda: _sharing(path, under)),
        ("clock", lambda: _clock(clock, steps_of(connection))),
        ("privileges", lambda: filesystem.privileges(path)),
        ("disk", lambda: filesystem.disk(path)),
        ("integrity", lambda: _integrity(connection, path)),
        ("jobs", lambda: _jobs(connection, clock)),
        ("backup", _backup),
    )
    return [finding for topic, check in checks for finding in _checked(topic, path, check)]


def durability(connection: apsw.Connection, path: Path) -> list[Finding]:
    """Return the durability of the connection that writes, and of the filesystem under the file."""
    under = filesystem_of(path)
    return _checked("durability", path, lambda: _durability(connection, under))


def _checked(topic: Topic, path: Path, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of one check; if it fails, that is the finding."""
    try:
        with translated(path):
            return list(check())
    except HoldfastError as error:
        return [Finding(topic, "fault", error.message, error.advice if error.advised else None)]
    except OSError as error:
        return [Finding(topic, "warning", f"This could not be checked: {error}.")]
    except DAMAGED as error:
        return [Finding(topic, "fault", f"{path} holds something unreadable: {error!r}")]


def _store(path: Path, check_place: Callable[[], None]) -> Iterator[Finding]:
    check_place()
    yield Finding("store", "good", f"A SQLite file: {path.absolute()}.")


def _version() -> Iterator[Finding]:
    version = apsw.sqlite_lib_version()
    safe = ".".join(map(str, SAFE_SQLITE))
    if tuple(map(int, version.split("."))) >= SAFE_SQLITE:
        words = f"SQLite {version}; since {safe} several processes may safely write one file."
        yield Finding("version", "good", words)
    else:
        words = f"SQLite {version} can corrupt a file that several processes write."
        yield Finding("version", "fault", words, f"Install apsw {safe} or newer.")


def _schema(connection: apsw.Connection) -> Iterator[Finding]:
    version, newest = connection.pragma("user_version"), len(migrations())
    if version == newest:
        yield Finding("schema", "good", f"Schema {version}, the newest.")
        return
    words = f"Schema {version}, while this holdfast knows {newest}"
    if isinstance(version, int) and version > newest:
        words += ": a newer one has changed it since this process opened it."
        yield Finding("schema", "fault", words, "Upgrade holdfast here, then start it anew.")
    else:
        advice = "Stop everything that uses the file; then the next command brings it forward."
        yield Finding("schema", "fault", f"{words}.", advice)


def _durability(connection: apsw.Connection, under: Filesystem | None) -> Iterator[Finding]:
    mode, level = connection.pragma("journal_mode"), connection.pragma("synchronous")
    known = isinstance(level, int) and level < len(_SYNCHRONOUS)
    settings = f"journal mode {mode}, synchronous {_SYNCHRONOUS[level] if known else level}"
    move = "Move it to a disk: holdfast backup FILE makes a copy."
    if mode != "wal" or not isinstance(level, int) or level < _SYNCHRONOUS.index("full"):
        words = f"A power cut may lose acknowledged writes: {settings}."
        yield Finding("durability", "fault", words, "Report this: holdfast sets wal and full.")
    elif under is not None and under.kind in filesystem.IN_MEMORY:
        words = f"It is in memory ({under.kind}): it survives kill -9, and is gone at reboot."
        yield Finding("durability", "warning", words, move)
    elif under is not None and (unsynced := under.options & filesystem.UNSYNCED):
        words = f"A power cut may lose acknowledged writes: the disk is mounted {min(unsynced)}."
        yield Finding("durability", "warning", words, "Mount the disk without that option.")
    elif sys.platform == "darwin" and not connection.pragma("fullfsync"):
        words = "It survives kill -9; at a power cut macOS may lose the last acknowledged writes."
        yield Finding("durability", "warning", words, "Keep what matters on Linux.")
    else:
        words = f"Acknowledged writes survive kill -9 and power loss: {settings}."
        yield Finding("durability", "good", words)
    if under is not None and under.kind == "overlay":
        words = "It is in a container's own layer (overlay): it is gone with the container."
        yield Finding("durability", "note", words, "Keep it on a volume.")


def _sharing(path: Path, under: Filesystem | None) -> Iterator[Finding]:
    check_names(path)
    yield from filesystem.sharing(under)


def _clock(clock: Clock, steps: ClockStepSummary) -> Iterator[Finding]:
    ahead = clock.now() - SystemClock().now()
    if boot_id() is None:
        words = "Leases follow this machine's wall clock: a step of it ends them early or late."
        yield Finding("clock", "note", words, "Let NTP slew the clock, never step it.")
    elif abs(ahead) <= CLOCK_NEAR:
        yield Finding(
            "clock",
            "good",
            f"Its time and this machine's clock differ by {abs(ahead).total_seconds():.3f} s; setting"
            " that clock moves no lease.",
        )
    else:
        yield Finding(
            "clock",
            "warning" if abs(ahead) > CLOCK_FAR else "note",
            f"Its time is {format_duration(abs(ahead))} {'ahead of' if ahead > CLOCK_NEAR else 'behind'} this"
            " machine's clock. Leases keep their length, but --at comes at the wrong moment.",
            "See that the machine's clock is right (timedatectl); the store follows it with the first"
            " commit after a few seconds.",
        )
    if note := describe_clock_step(steps):
        yield Finding("clock", "note", note, "See that NTP slews this machine's clock after boot.")


def _integrity(connection: apsw.Connection, path: Path) -> Iterator[Finding]:
    bytes_there = path.stat().st_size
    if bytes_there > CHECKED_BYTES_MAX:
        words = f"Not checked: {size(bytes_there)} are more than is read here in passing."
        yield Finding("integrity", "note", words, "Check every job by its log: holdfast verify")
        return
    found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    if found == ["ok"]:
        words = f"Every page is in order ({size(bytes_there)} read); changed values are not seen."
        yield Finding("integrity", "good", words)
    else:
        lines = [line for text in found for line in text.splitlines() if not line.startswith("***")]
        yield Finding(
            "integrity",
            "fault",
            f"The file is damaged: {'; '.join(line.rstrip('.') for line in lines)}.",
            "Stop its workers, keep the file as it is, and restore the newest backup: holdfast restore FILE",
        )


def _jobs(connection: apsw.Connection, clock: Clock) -> Iterator[Finding]:
    counts = queries.counts(connection, None)
    states = ", ".join(f"{number:,} {state}" for state, number in counts.items())
    yield Finding("jobs", "good", f"{states}." if states else "No jobs yet.")
    overdue = (to_microseconds(clock.now() - OVERDUE),)
    [(due,)] = connection.execute(statement("select_overdue"), overdue)
    if isinstance(due, int) and (late := clock.now() - from_microseconds(due)) > OVERDUE:
        words = (
            f"A lease or deadline passed {format_duration(late)} ago and was not handled: no worker is"
            " running."
        )
        yield Finding("jobs", "note", words, "Start one: holdfast worker")


def _backup() -> Iterator[Finding]:
    words = "It does not survive the loss of its disk."
    yield Finding("backup", "note", words, "Keep copies on another one: holdfast backup FILE")
