"""What is found out about a file: by looking at a real one, in every state that has words of its own."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from holdfast.core.state import State
from holdfast.registry.local import LocalRegistry
from holdfast.stores.sqlite import doctor
from holdfast.stores.sqlite.statements import migrations
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from tests.stores.sqlite.doctor_file import diagnose, enqueue, finding_on, findings_on, owned_file


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return owned_file(tmp_path, monkeypatch)


def test_a_healthy_file_is_good_in_everything_but_what_no_file_can_do(path: Path) -> None:
    found = diagnose(path)

    assert [(finding.topic, finding.level) for finding in found if finding.topic != "disk"] == [
        ("store", "good"),
        ("version", "good"),
        ("schema", "good"),
        ("durability", "good"),
        ("sharing", "good"),
        ("clock", "good"),
        ("privileges", "good"),
        ("integrity", "good"),
        ("jobs", "good"),
        ("backup", "note"),
    ]
    assert finding_on(found, "jobs").words == "1 queued."
    assert "wal, synchronous full" in finding_on(found, "durability").words
    assert finding_on(found, "backup").advice == "Keep copies on another one: holdfast backup FILE"


async def test_examining_writes_nothing(path: Path) -> None:
    seen: list[dict[str, tuple[bytes, int]]] = []

    def look(store: SqliteStore) -> None:
        # Closing a file drops the locks of its connections, so another process reads it.
        script = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
        seen.append(
            {
                file.name: (
                    subprocess.check_output([sys.executable, "-c", script, str(file)]),
                    file.stat().st_mtime_ns,
                )
                for file in sorted(path.parent.iterdir())
                if not file.name.endswith("-shm")
            }
        )

    store = await SqliteStore.open(path, ids=SystemIds())
    look(store)
    await store.doctor()
    look(store)
    await store.close()

    assert {"jobs.db", "jobs.db-wal"} <= seen[0].keys()
    assert seen[0] == seen[1]


@pytest.mark.parametrize("level", ["OFF", "NORMAL"])
def test_a_writer_that_does_not_sync_is_a_fault(path: Path, level: str) -> None:
    def trouble(store: SqliteStore) -> None:
        store._write_connection.pragma("synchronous", level)

    finding = finding_on(diagnose(path, trouble), "durability")

    assert finding.level == "fault"
    assert f"synchronous {level.lower()}" in finding.words


def test_another_journal_mode_is_a_fault(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "DELETE")

    [finding] = doctor.durability(connection, path)
    connection.close()

    assert finding.level == "fault"
    assert "journal mode delete" in finding.words


def test_without_a_full_sync_macos_may_lose_the_last_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "WAL")
    monkeypatch.setattr(sys, "platform", "darwin")

    [loses] = doctor.durability(connection, path)
    connection.pragma("fullfsync", 1)
    [keeps] = doctor.durability(connection, path)
    connection.close()

    assert (loses.level, keeps.level) == ("warning", "good")
    assert "macOS" in loses.words


def test_a_newer_schema_under_an_open_store_is_a_fault(path: Path) -> None:
    def set_version(number: int) -> None:
        connection = apsw.Connection(str(path))
        connection.pragma("user_version", number)
        connection.close()

    newer = finding_on(diagnose(path, lambda store: set_version(999)), "schema")
    set_version(len(migrations()))
    older = finding_on(diagnose(path, lambda store: set_version(0)), "schema")

    assert (newer.level, older.level) == ("fault", "fault")
    assert "a newer one has changed it" in newer.words
    assert newer.advice is not None
    assert "Upgrade holdfast" in newer.advice
    assert "newer" not in older.words


def test_an_old_library_is_a_fault(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trouble(store: SqliteStore) -> None:
        monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")

    finding = finding_on(diagnose(path, trouble), "version")

    assert finding.level == "fault"
    assert finding.words.startswith("SQLite 3.51.2 can corrupt")


def damage(path: Path, name: str) -> None:
    """Overwrite the first page of a table or index."""
    connection = apsw.Connection(str(path))
    sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
    page = int(str(connection.execute(sql, (name,)).fetchall()[0][0]))
    connection.pragma("wal_checkpoint(TRUNCATE)")
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("event", "damaged or not a database"),
        ("event_chain", "The file is damaged: Tree "),
    ],
)
def test_a_damaged_page_is_a_fault_and_no_error(path: Path, name: str, words: str) -> None:
    damage(path, name)

    found = diagnose(path)

    finding = finding_on(found, "integrity")
    assert finding.level == "fault"
    assert words in finding.words
    assert "\n" not in finding.words
    assert finding_on(found, "jobs").level == "good"


def test_what_cannot_be_read_at_all_is_a_finding_and_no_error(path: Path) -> None:
    damage(path, "queue_count")

    found = diagnose(path)

    assert finding_on(found, "jobs").level == "fault"
    assert "damaged or not a database" in finding_on(found, "jobs").words
    assert finding_on(found, "backup").level == "note"


def test_a_state_that_nobody_knows_is_a_fault(path: Path) -> None:
    def trouble(store: SqliteStore) -> None:
        sql = "UPDATE queue_count SET state = 'nonsense'"
        store._write_connection.execute(sql).fetchall()

    finding = finding_on(diagnose(path, trouble), "jobs")

    assert finding.level == "fault"
    assert "unreadable" in finding.words


def test_a_large_file_is_not_read_in_passing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(path, "event")
    monkeypatch.setattr(doctor, "CHECKED_BYTES_MAX", 10_000)

    finding = finding_on(diagnose(path), "integrity")

    assert finding.level == "note"
    assert finding.words.startswith("Not checked: ")
    assert finding.advice == "Check every job by its log: holdfast verify"


@pytest.mark.parametrize(
    ("seconds", "level", "words"),
    [
        (0, "good", "differ by 0."),
        (30, "note", " s ahead of"),
        (-30, "note", " s behind"),
        (9000, "warning", "2.5 h ahead of"),
        (-9000, "warning", "2.5 h behind"),
    ],
)
def test_a_clock_that_has_gone_its_own_way_is_told(
    path: Path, seconds: float, level: str, words: str
) -> None:
    clock = ManualClock(datetime.now(UTC) + timedelta(seconds=seconds))

    finding = finding_on(diagnose(path, clock=clock), "clock")

    assert finding.level == level
    assert words in finding.words


def test_a_system_without_boots_follows_its_wall_clock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "boot_id", lambda: None)

    assert finding_on(diagnose(path), "clock").level == "note"


def test_a_file_that_was_moved_away_is_a_fault(path: Path) -> None:
    found = diagnose(path, lambda store: path.rename(path.with_name("elsewhere.db")))

    assert finding_on(found, "store").level == "fault"
    assert "was moved or replaced" in finding_on(found, "store").words
    assert finding_on(found, "disk").level == "warning"
    assert "could not be checked" in finding_on(found, "disk").words


def test_a_job_that_nobody_takes_over_is_noticed(path: Path) -> None:
    def after(seconds: float) -> list[tuple[str, str]]:
        clock = ManualClock(datetime.now(UTC))

        async def claim_and_wait(registry: LocalRegistry) -> None:
            await registry.expire()
            await enqueue(registry)
            await registry.claim(["default"], owner="w1", lease=timedelta(seconds=60))
            assert (await registry.counts())[State.ASSIGNED] == 1
            clock.advance(seconds)

        file = path.with_name(f"after-{seconds}.db")
        return findings_on(diagnose(file, clock=clock, before=claim_and_wait), "jobs")

    assert [level for level, _ in after(100)] == ["good"]
    [_, (level, words)] = after(60 + 600)
    assert level == "note"
    assert words.startswith("A lease or deadline passed 10 min")
    assert words.endswith("no worker is running.")
