"""Managed outputs: whole or missing, each attempt under its own token."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.core.errors import Invalid
from holdfast.core.outputs import Output
from holdfast.failpoint import arm
from holdfast.outputs.managed import commit, file_path, mark_path, validate_named
from holdfast.ports import Outputs
from tests.outputs.directory_store import open_directory

MINE = ("job-1", 7)


@pytest.fixture
async def outputs(tmp_path: Path) -> AsyncIterator[Outputs]:
    async with open_directory(tmp_path / "outputs") as outputs:
        yield outputs


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def dying() -> Iterator[None]:
    """Whoever has written a file dies before it says so."""

    def hook(name: str) -> None:
        if name == "outputs.managed_written":
            raise KeyboardInterrupt

    arm(hook)
    yield
    arm(None)


async def test_what_was_committed_is_there_with_its_size_and_checksum(outputs: Outputs, model: Path) -> None:
    committed = await commit(outputs, *MINE, "model.bin", model)
    found = await validate_named(outputs, [MINE], "model.bin")

    digest = hashlib.sha256(b"weights").hexdigest()
    path = file_path(*MINE, "model.bin")
    assert found == committed == Output(name="model.bin", path=path, size=7, sha256=digest)
    assert await outputs.get(path) == b"weights"


async def test_no_name_of_a_file_is_taken_for_what_says_that_another_is_whole(
    outputs: Outputs, model: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"{}")

    await commit(outputs, *MINE, "a", model)
    for name in ("a.json", "complete", "7"):
        await commit(outputs, *MINE, name, other)

    found = [await validate_named(outputs, [MINE], name) for name in ("a", "a.json", "complete")]
    assert [one.missing for one in found] == [None, None, None]
    assert [one.size for one in found] == [7, 2, 2]


@pytest.mark.usefixtures("dying")
async def test_a_file_that_nobody_said_is_whole_is_missing(outputs: Outputs, model: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        await commit(outputs, *MINE, "model.bin", model)

    assert await outputs.get(file_path(*MINE, "model.bin")) == b"weights"
    found = await validate_named(outputs, [MINE], "model.bin")
    assert found.missing == "no attempt that counts has written it"


@pytest.mark.parametrize(
    ("bytes_now", "words"),
    [
        (b"weighty", "its bytes are not those that were written (sha256 differs)"),
        (b"weight", "it has 6 bytes; 7 were written"),
        (None, "it was written, and is gone"),
    ],
)
async def test_a_file_whose_bytes_are_others_is_missing_and_says_so(
    outputs: Outputs, model: Path, bytes_now: bytes | None, words: str
) -> None:
    await commit(outputs, *MINE, "model.bin", model)
    path = file_path(*MINE, "model.bin")
    if bytes_now is None:
        await outputs.delete(path)
    else:
        await outputs.put(path, bytes_now)

    found = await validate_named(outputs, [MINE], "model.bin")
    assert found.missing == words
    assert found.size == (None if bytes_now is None else len(bytes_now))


async def test_what_another_attempt_or_another_job_has_written_does_not_count(
    outputs: Outputs, model: Path
) -> None:
    for owner in (("job-1", 6), ("job-1", 8), ("job-2", 7)):
        await commit(outputs, *owner, "model.bin", model)

    assert (await validate_named(outputs, [MINE], "model.bin")).missing is not None
    assert (await validate_named(outputs, [], "model.bin")).missing is not None


async def test_of_several_that_count_the_first_that_is_whole_is_taken(
    outputs: Outputs, model: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"other weights")
    owners = [("job-1", 7), ("job-1-resume-0000", 3), ("job-1-resume-1111", 4)]

    await commit(outputs, *owners[0], "a", model)
    await commit(outputs, *owners[1], "a", other)
    await commit(outputs, *owners[2], "b", model)
    assert (await validate_named(outputs, owners, "a")).size == 7
    assert (await validate_named(outputs, owners, "b")).path == file_path(*owners[2], "b")

    await outputs.put(file_path(*owners[0], "a"), b"x")
    assert (await validate_named(outputs, owners, "a")).size == 13
    await outputs.delete(file_path(*owners[1], "a"))
    assert (await validate_named(outputs, owners, "a")).missing == "it was written, and is gone"


@pytest.mark.parametrize("body_now", [b"", b"[]", b'{"size": 7}', None])
async def test_what_says_that_it_is_whole_must_be_about_this_very_output(
    outputs: Outputs, model: Path, body_now: bytes | None
) -> None:
    await commit(outputs, *MINE, "a", model)
    await commit(outputs, *MINE, "b", model)
    mark = body_now if body_now is not None else await outputs.get(mark_path(*MINE, "b"))
    await outputs.put(mark_path(*MINE, "a"), mark or b"")

    words = "is of another output" if body_now is None else "cannot be read"
    assert words in str((await validate_named(outputs, [MINE], "a")).missing)


async def test_a_name_that_leads_elsewhere_is_refused(outputs: Outputs, model: Path) -> None:
    for name in ("../x", "a/b", "", ".hidden"):
        with pytest.raises(Invalid):
            await commit(outputs, *MINE, name, model)
