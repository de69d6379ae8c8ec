"""SQLite in trouble: a clear error each, and nothing lost."""

import asyncio
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from holdfast.core.errors import Corrupt, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from holdfast.sdk.open import open_registry


def use(path: Path, work: Callable[[Registry], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        registry = await open_registry(f"sqlite:///{path}")
        try:
            await work(registry)
        finally:
            await registry.close()

    asyncio.run(main())


async def enqueue(registry: Registry, job_id: str, size: int = 0) -> None:
    payload = b'"' + b"x" * size + b'"'
    spec = Spec(payload=msgspec.Raw(payload))
    await registry.enqueue(JobRequest(spec=spec, job_id=job_id), actor="user:ana")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with one job in it."""
    use(tmp_path / "jobs.db", lambda r: enqueue(r, "first"))
    return tmp_path / "jobs.db"


def refused(path: Path, kind: type[HoldfastError]) -> str:
    with pytest.raises(kind) as caught:
        use(path, lambda r: enqueue(r, "second"))
    return str(caught.value)


def test_a_newer_schema_is_left_alone(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 999)
    connection.close()

    assert "newer holdfast" in refused(path, Invalid)


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE customers (name TEXT)").fetchall()
    connection.close()

    assert "other program" in refused(path, Invalid)


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary " * 500)

    assert "not a database" in refused(path, Corrupt)
    assert path.read_text() == "dear diary " * 500


def test_a_damaged_page_is_reported_and_nothing_is_written(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = b"\xff" * (len(damaged) - 4096)
    path.write_bytes(damaged)

    assert "damaged" in refused(path, Corrupt)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE state SET detail = '{'", "record of job first"),
        ("UPDATE job SET spec = '{'", "record of job first"),
        ("UPDATE job SET origin = '{'", "record of job first"),
        ("UPDATE segment SET events = '{'", "Segment 1 of the log"),
        ("UPDATE segment SET events = replace(events, 'transition', 'nonsense')", "Segment 1 of the log"),
        (
            "UPDATE segment SET events = json_replace(events, '$.n', 2, '$.job', json('[1]'))",
            "job has 1 values",
        ),
    ],
)
def test_a_row_that_cannot_be_read_is_called_corrupt(path: Path, damage: str, words: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(damage).fetchall()
    connection.close()

    async def look(registry: Registry) -> None:
        await registry.status("first")
        await registry.history("first")

    with pytest.raises(Corrupt, match=words):
        use(path, look)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert "Is the folder there" in refused(tmp_path / "no" / "jobs.db", Invalid)


@pytest.fixture
def frozen(path: Path) -> Iterator[Path]:
    """The file on a read-only file system: root may write to anything else."""
    mount(path.parent, "--bind", str(path.parent))
    mount(path.parent, "-o", "remount,bind,ro")
    yield path
    subprocess.run(["umount", path.parent], check=True)


def mount(folder: Path, *options: str) -> None:
    subprocess.run(["mount", *options, folder], check=True)


def test_a_read_only_file_is_said_to_be_one(frozen: Path) -> None:
    assert "read-only here; nothing was written" in refused(frozen, Unavailable)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte: a real file system, in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount(folder, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_loses_nothing_and_is_survived(small_disk: Path) -> None:
    path = small_disk / "jobs.db"
    kept: list[str] = []

    async def fill(registry: Registry) -> None:
        async def until_full() -> None:
            for n in range(100):
                await enqueue(registry, f"job-{n}", size=30_000)
                kept.append(f"job-{n}")

        with pytest.raises(Unavailable) as caught:
            await until_full()
        assert "is full; nothing was written" in caught.value.message
        assert caught.value.applied == "no"
        with pytest.raises(NotFound):
            await registry.status(f"job-{len(kept)}")
        mount(small_disk, "-o", "remount,size=8m")
        await enqueue(registry, "after", size=30_000)
        kept.append("after")

    use(path, fill)

    async def check(registry: Registry) -> None:
        page = await registry.list_jobs(limit=1000)
        assert [job.job_id for job in page.jobs] == kept
        assert (await registry.verify()).equal

    use(path, check)
    assert len(kept) > 3


def test_urls_that_name_no_store_are_explained() -> None:
    for url, words in (
        ("jobs.db", "is not a store URL"),
        ("sqlite://", "does not name a file"),
        ("mysql://localhost/jobs", "There are no mysql:// stores"),
        ("s3://bucket/jobs", "not in this version"),
    ):
        with pytest.raises(Invalid, match=words):
            asyncio.run(open_registry(url))
