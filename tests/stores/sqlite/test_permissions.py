"""Who may read a new store: its owner alone, also where the umask allows more."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_registry
from holdfast.sdk.output_store import open_chosen_outputs

COMPANIONS = ("jobs.db", "jobs.db-wal", "jobs.db-shm")


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    before = os.umask(0o002)
    yield
    os.umask(before)


async def modes(folder: Path, file: str = "jobs.db") -> dict[str, int]:
    """The permissions of everything in the folder while a store in it is in use."""
    registry = await open_registry(f"sqlite:///{folder / file}")
    await registry.enqueue(JobRequest(spec=Spec(kind="report")), actor="user:ana")
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    await registry.close()
    return found


async def test_a_new_store_and_its_log_are_for_their_owner_alone(tmp_path: Path) -> None:
    assert await modes(tmp_path) == dict.fromkeys(COMPANIONS, 0o600)


async def test_a_store_that_exists_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").touch(0o660)
    (tmp_path / "jobs.db").chmod(0o660)

    assert await modes(tmp_path) == dict.fromkeys(COMPANIONS, 0o660)


async def test_a_store_behind_a_link_that_leads_nowhere_yet_is_made_there(tmp_path: Path) -> None:
    (place := tmp_path / "data").mkdir()
    (tmp_path / "link.db").symlink_to(place / "jobs.db")

    await modes(tmp_path, "link.db")

    assert stat.S_IMODE((place / "jobs.db").stat().st_mode) == 0o600


async def test_the_outputs_beside_a_store_are_for_its_owner_alone(tmp_path: Path) -> None:
    outputs = await open_chosen_outputs(f"sqlite:///{tmp_path / 'jobs.db'}", create=True)

    assert outputs is not None
    assert stat.S_IMODE((tmp_path / "jobs.outputs").stat().st_mode) == 0o700
    await outputs.close()
