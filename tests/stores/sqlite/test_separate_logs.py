"""One file, two logs: nothing that was acknowledged is lost, whatever was removed, linked or mounted."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import apsw
import pytest

from holdfast.core.errors import Conflict, Invalid, Unavailable
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from holdfast.sdk.backup import restore
from holdfast.sdk.open import open_registry
from holdfast.stores.sqlite import connection as connections
from holdfast.stores.sqlite.store import SqliteStore
from tests.stores.sqlite.doctor_file import diagnose, finding_on

HOLDER = """
import asyncio, sys
from holdfast.core.errors import HoldfastError
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_registry
async def main():
    registry = await open_registry(sys.argv[1])
    print("open", flush=True)
    for line in sys.stdin:
        try:
            await registry.enqueue(JobRequest(spec=Spec(), job_id=line.strip()), actor="user:ana")
        except HoldfastError as error:
            print(error, flush=True)
        else:
            print("acknowledged", flush=True)
    await registry.close()
asyncio.run(main())
"""


class Holder:
    """Another process that keeps the store open, and enqueues what it is told to."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, f"sqlite:///{path}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "open"

    def enqueue(self, job_id: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{job_id}\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self, how: Literal["closed", "killed"]) -> None:
        if how == "killed":
            self.process.kill()
        self.process.communicate(timeout=60)


@contextmanager
def holder_of(path: Path) -> Iterator[Holder]:
    holder = Holder(path)
    try:
        yield holder
    finally:
        holder.end("killed")


def use(path: Path, *job_ids: str) -> set[str]:
    """Open the store, enqueue, close it; the ids of all its jobs."""

    async def main() -> set[str]:
        registry = await open_registry(f"sqlite:///{path}")
        try:
            for job_id in job_ids:
                await registry.enqueue(JobRequest(spec=Spec(), job_id=job_id), actor="user:ana")
            assert (await registry.verify()).equal
            return await ids_in(registry)
        finally:
            await registry.close()

    return asyncio.run(main())


async def ids_in(registry: Registry) -> set[str]:
    return {job.job_id for job in (await registry.list_jobs(limit=1000)).jobs}


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def remove(*suffixes: str) -> Callable[[Path], Path]:
    def attack(path: Path) -> Path:
        for suffix in suffixes:
            beside(path, suffix).unlink()
        return path

    return attack


def hard_link(path: Path) -> Path:
    other = path.with_name("other.db")
    os.link(path, other)
    return other


def mount(path: Path) -> Path:
    folder = path.parent / "mounted"
    folder.mkdir()
    (folder / "jobs.db").touch()
    subprocess.run(["mount", "--bind", path, folder / "jobs.db"], check=True)
    return folder / "jobs.db"


def move(path: Path) -> Path:
    return path.rename(path.with_name("other.db"))


ATTACKS: dict[str, Callable[[Path], Path]] = {
    "shm removed": remove("-shm"),
    "wal removed": remove("-wal"),
    "both removed": remove("-wal", "-shm"),
    "hard link": hard_link,
    "mount": mount,
    "moved": move,
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(connections, "SECOND_LOG_SECONDS_MAX", 0)
    yield tmp_path / "jobs.db"
    if (tmp_path / "mounted").exists():
        subprocess.run(["umount", tmp_path / "mounted" / "jobs.db"], check=True)


@pytest.mark.parametrize(
    ("attack", "how"),
    [
        *((attack, "killed") for attack in ATTACKS),
        ("shm removed", "closed"),
        ("hard link", "closed"),
    ],
)
def test_what_two_processes_acknowledge_is_kept(
    path: Path, attack: str, how: Literal["closed", "killed"]
) -> None:
    with holder_of(path) as holder:
        kept = {f"before-{n}" for n in range(3) if holder.enqueue(f"before-{n}") == "acknowledged"}
        other = ATTACKS[attack](path)
        for n in range(4):
            with suppress(Invalid, Unavailable):
                use(other, f"other-{n}")
                kept.add(f"other-{n}")
            if holder.enqueue(f"holder-{n}") == "acknowledged":
                kept.add(f"holder-{n}")
        holder.end(how)

    if attack in ("hard link", "mount"):
        other = path
        (path.parent / "other.db").unlink(missing_ok=True)
    there = use(other)

    assert len(kept) >= 3
    assert kept <= there


def test_a_symbolic_link_leads_to_the_same_log(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)

    with holder_of(path) as holder:
        for n in range(3):
            assert holder.enqueue(f"holder-{n}") == "acknowledged"
            use(link, f"link-{n}")
        holder.end("killed")

    assert len(use(link)) == 6


def test_a_second_name_is_refused_with_what_to_do(path: Path) -> None:
    use(path, "first")
    other = hard_link(path)
    mounted = mount(path)

    for name in (path, other):
        with pytest.raises(Invalid, match="has 2 names") as caught:
            use(name)
        assert str(name) in (caught.value.advice or "")
    other.unlink()
    with pytest.raises(Invalid, match="Mount the folder"):
        use(mounted)
    assert use(path, "second") == {"first", "second"}


def test_a_log_of_another_program_is_left_alone(path: Path) -> None:
    """An index was removed, another program began one, wrote, and has gone when the holder closes."""
    with holder_of(path) as holder:
        holder.enqueue("before")
        beside(path, "-shm").unlink()
        other = apsw.Connection(str(path))
        other.execute("CREATE TABLE note AS SELECT 'kept' AS words").fetchall()
        other.close()

        assert "was removed or replaced while in use" in holder.enqueue("after")
        holder.end("closed")

    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT words FROM note").fetchall() == [("kept",)]
    connection.close()
    assert use(path) == {"before"}


def test_a_file_is_restored_over_by_nobody_whose_log_is_another(path: Path, tmp_path: Path) -> None:
    use(tmp_path / "backup.db")
    with holder_of(path) as holder:
        holder.enqueue("before")
        remove("-wal", "-shm")(path)

        with pytest.raises(Conflict, match="is in use"):
            asyncio.run(restore(tmp_path / "backup.db", f"sqlite:///{path}", force=True))
        assert not beside(path, "-shm").exists()
        holder.end("closed")

    assert use(path) == {"before"}


def test_doctor_tells_what_befell_the_files_of_an_open_store(path: Path) -> None:
    def lose_index(store: SqliteStore) -> None:
        beside(path, "-shm").unlink()

    def add_name(store: SqliteStore) -> None:
        hard_link(path)

    lost = finding_on(diagnose(path, lose_index), "store")
    named = finding_on(diagnose(path, add_name), "sharing")

    assert lost.level == named.level == "fault"
    assert "was removed or replaced while in use" in lost.words
    assert "has 2 names" in named.words
