"""`holdfast doctor`: its lines, its JSON, and its exit code."""

import asyncio
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from holdfast.cli.doctor import verdict
from holdfast.core.errors import Unavailable
from holdfast.objects.memory import MemoryObjects
from holdfast.ports import Finding, Level, Topic, VersionedStore, VersionToken
from holdfast.stores.cas.store import CasStore
from holdfast.stores.sqlite import filesystem
from holdfast.system import SystemClock, SystemIds
from tests.cli.command_line import CommandLine, on_a_terminal
from tests.conftest import STORES, open_on

NOBODY = 65534
PROMISE = "This store keeps what it acknowledges."


class Report(msgspec.Struct, forbid_unknown_fields=True):
    """What docs/doctor.md says of --json."""

    verdict: str
    faults: int
    warnings: int
    findings: list[Finding]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A store with one job, on a disk of a known kind with room, whatever this machine has."""
    cli = CommandLine(tmp_path)
    mounted(monkeypatch, tmp_path, "ext4")
    room = os.statvfs_result((1024, 1024, 400_000_000, 100_000_000, 100_000_000, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda file: room)
    cli.submit()
    cli.file.chmod(0o600)
    return cli


def mounted(monkeypatch: pytest.MonkeyPatch, folder: Path, kind: str) -> None:
    mounts = folder / "mountinfo"
    mounts.write_text(f"99 27 0:9 / {folder} rw - {kind} server:/export rw\n")
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)


def test_every_finding_is_one_line_and_the_verdict_is_the_last(cli: CommandLine) -> None:
    lines = cli.run("doctor").stdout.replace(str(cli.file), "FILE").splitlines()

    numbers = re.compile(r"\d+(\.\d+)+|\d+\.\d+")
    assert [numbers.sub("N", line) for line in lines] == [
        "good     store       A SQLite file: FILE.",
        "good     version     SQLite N; since N several processes may safely write one file.",
        "good     schema      Schema 4, the newest.",
        "good     durability  Acknowledged writes survive kill -9 and power loss:"
        " journal mode wal, synchronous full.",
        "good     sharing     Any number of processes on this machine may use it (ext4),"
        " but no other machine.",
        "good     clock       Its time and this machine's clock differ by N s;"
        " setting that clock moves no lease.",
        "good     privileges  Only you may write it (mode 0600).",
        "good     disk        N GB of N GB are free (25%); the file has N kB, its log 0 bytes.",
        "good     integrity   Every page is in order (N kB read); changed values are not seen.",
        "good     jobs        1 queued.",
        "note     backup      It does not survive the loss of its disk."
        " Keep copies on another one: holdfast backup FILE",
        PROMISE,
    ]


def test_json_has_the_documented_shape(cli: CommandLine) -> None:
    report = msgspec.json.decode(cli.run("doctor", "--json").stdout, type=Report)

    assert (report.verdict, report.faults, report.warnings) == (PROMISE, 0, 0)
    assert [finding.topic for finding in report.findings][:2] == ["store", "version"]
    assert report.findings[-1] == Finding(
        "backup",
        "note",
        "It does not survive the loss of its disk.",
        "Keep copies on another one: holdfast backup FILE",
    )


def test_a_fault_exits_with_one_and_is_the_verdict(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted(monkeypatch, cli.file.parent, "nfs4")

    said = cli.run("doctor", code=1).stdout.splitlines()
    report = msgspec.json.decode(cli.run("doctor", "--json", code=1).stdout, type=Report)

    assert said[-1] == report.verdict
    assert said[-1].startswith("1 fault: It is on a network file system (nfs4), where several")
    assert (report.faults, report.warnings) == (1, 0)


def test_a_warning_is_no_failure(cli: CommandLine) -> None:
    cli.file.chmod(0o666)

    said = cli.run("doctor").stdout.splitlines()

    assert said[-1] == "1 warning: Every user of this machine may change it (mode 0666)."
    assert any(line.startswith("warning  privileges  ") and "chmod o-rw" in line for line in said)


def test_memory_is_told_to_forget(cli: CommandLine) -> None:
    said = cli.run("doctor", "--store", "memory://").stdout.splitlines()

    assert said[-1] == "1 warning: Everything is lost when this process ends."
    assert "Keep jobs in a file: --store sqlite:///jobs.db" in said[1]


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ([], "No faults, no warnings."),
        ([("store", "good")], "No faults, no warnings."),
        ([("durability", "note")], "No faults, no warnings."),
        ([("durability", "good"), ("backup", "note")], PROMISE),
        ([("durability", "good"), ("disk", "warning")], "1 warning: disk!"),
        ([("disk", "warning"), ("disk", "warning")], "2 warnings: disk."),
        ([("clock", "warning"), ("disk", "warning")], "2 warnings: clock, disk."),
        ([("clock", "fault"), ("disk", "warning")], "1 fault: clock! And 1 warning."),
        ([("clock", "fault"), ("disk", "fault")], "2 faults: clock, disk."),
    ],
)
def test_the_verdict_is_one_line(levels: list[tuple[Topic, Level]], words: str) -> None:
    assert verdict([Finding(topic, level, f"{topic}!") for topic, level in levels]) == words


def future(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 999)
    connection.close()


def foreign(path: Path) -> None:
    path.unlink()
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE customers (name TEXT)").fetchall()
    connection.close()


@pytest.mark.parametrize(
    ("trouble", "code", "words"),
    [
        (lambda path: path.unlink(), 3, "There is no store at"),
        (future, 2, "was written by a newer holdfast"),
        (foreign, 2, "a database of another program"),
        (lambda path: path.write_text("dear diary " * 500), 70, "damaged or not a database"),
    ],
)
def test_a_store_that_cannot_be_opened_is_explained_as_by_every_command(
    cli: CommandLine, trouble: Callable[[Path], object], code: int, words: str
) -> None:
    trouble(cli.file)

    said = cli.run("doctor", code=code)
    document = cli.run("doctor", "--json", code=code)
    report = msgspec.json.decode(document.stdout, type=Report)

    assert (said.stdout, said.stderr) == ("", cli.run("list", code=code).stderr)
    assert words in said.stderr
    assert document.stderr == said.stderr
    assert report.verdict.startswith("1 fault: ")
    assert [(f.topic, f.level) for f in report.findings] == [("store", "fault")]
    assert words in report.findings[0].words


@pytest.fixture
def common_folder() -> Iterator[Path]:
    """A folder that everybody may enter, which those below /tmp/pytest-of-... are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes nobody")
@pytest.mark.parametrize(
    ("mode", "owner", "code", "words"),
    [
        (0o644, 0, 75, "is read-only here; nothing was written"),
        (0o600, 0, 2, "cannot be opened"),
        (0o644, NOBODY, 75, "is read-only here; nothing was written"),
    ],
)
def test_somebody_without_the_right_to_write_is_told_so(
    common_folder: Path, mode: int, owner: int, code: int, words: str
) -> None:
    cli = CommandLine(common_folder)
    cli.submit()
    cli.run("list")  # whatever it imports, nobody may not read below /root
    cli.run("doctor")
    cli.file.chmod(mode)
    os.chown(cli.file, owner, owner)

    os.seteuid(NOBODY)
    try:
        listed, examined = cli.run("list", code=code), cli.run("doctor", code=code)
    finally:
        os.seteuid(0)

    assert (examined.stdout, examined.stderr) == ("", listed.stderr)
    assert words in examined.stderr


def test_on_a_terminal_levels_have_colours_and_advice_a_line_of_its_own(cli: CommandLine) -> None:
    cli.file.chmod(0o666)

    code, seen = on_a_terminal(cli, "doctor")
    _, colourless = on_a_terminal(cli, "doctor", NO_COLOR="1")
    _, dumb = on_a_terminal(cli, "doctor", TERM="dumb")

    assert code == 0
    assert "\x1b[32mgood" in seen
    assert "\x1b[33mwarning" in seen
    assert "\x1b[33m" not in colourless
    assert "\x1b" not in dumb
    text = re.sub(r"\x1b\[[0-9;]*m", "", colourless)
    assert re.search(r"^ {21}chmod o-rw .*jobs\.db *\r?$", text, re.MULTILINE)


def test_a_hostile_name_reaches_no_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b]0;evil\x07b"
    folder.mkdir()
    cli = CommandLine(folder)
    cli.submit()

    assert "\x1b" not in cli.run("doctor").stdout
    assert "\x1b]0" not in on_a_terminal(cli, "doctor")[1]


@pytest.mark.parametrize("name", [*STORES, "server"])
async def test_every_store_says_what_it_is_first_and_how_durable_it_is(tmp_path: Path, name: str) -> None:
    async with open_on(name, tmp_path) as cli:
        found = await cli.registry.doctor()

        again = await cli.store.doctor()
        assert [(one.topic, one.level) for one in found] == [(one.topic, one.level) for one in again]
        assert (found[0].topic, found[0].level) == ("store", "good")
        assert "durability" in {finding.topic for finding in found}
        assert all(finding.words.endswith(".") for finding in found)


class Bucket(MemoryObjects):
    """Objects that answer as long as they are well."""

    well = True

    async def get(self, key: str) -> tuple[bytes, VersionToken] | None:
        if not self.well:
            raise Unavailable("the bucket is gone")
        return await super().get(key)


class Elsewhere:
    """Objects in some other place than memory."""

    def __init__(self) -> None:
        self.get = Bucket().get


def test_documents_are_as_durable_as_their_objects() -> None:
    bucket = Bucket()
    away: VersionedStore = Elsewhere()  # type: ignore[assignment]  # only `get` is asked for

    def findings(objects: VersionedStore) -> list[tuple[str, str]]:
        found = asyncio.run(CasStore(objects, SystemClock(), SystemIds()).doctor())
        return [(finding.topic, finding.level) for finding in found]

    assert findings(bucket) == [("store", "good"), ("durability", "warning")]
    assert findings(away) == [("store", "good"), ("durability", "note"), ("clock", "note")]
    bucket.well = False
    assert findings(bucket) == [("store", "fault")]
