"""Parts of a worker, each by itself: frames, links, stopping, the spool on a full disk."""

import asyncio
import errno
import os
import signal
from pathlib import Path

import pytest
from link_desk import Ears, Stage, held, linked, run
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.limits import NOT_STARTED_MAX, NOT_UNDERSTOOD_MAX
from holdfast.sdk.open import open_registry
from holdfast.worker import spans
from holdfast.worker.attempts import Attempt
from holdfast.worker.executor import Ending
from holdfast.worker.frames import (
    FRAME_BYTES,
    FRAME_BYTES_MAX,
    Advanced,
    Said,
    Told,
    ToWorker,
    encode,
    from_runner,
)
from holdfast.worker.spool import FileLog, Piece, Seal, Title, read_file

TITLE = Title("job-1", 1, 1)


def piece(sequence: int, data: bytes = b"words") -> Piece:
    return Piece(sequence, "output", 1.0, "stdout", data, {})


def test_many_words_are_several_frames_and_arrive_in_order() -> None:
    words: list[ToWorker] = [Said(1, "output", 1.0, "stdout", bytes(60_000)) for _ in range(1200)]
    words[7] = Advanced(2, 1, None, None)

    data = encode(words)

    frames = from_runner()
    cuts = range(0, len(data), 256 * 1024)
    heard = [word for at in cuts for word in frames.feed(data[at : at + 256 * 1024])]
    assert len(data) > FRAME_BYTES_MAX
    assert heard == words
    length = int.from_bytes(data[:4], "big")
    assert length <= FRAME_BYTES


def test_a_killed_link_is_retired() -> None:
    async def body() -> None:
        link, child, far = await linked(Ears())
        link.kill()

        assert link.retired
        assert child.signals == [signal.SIGKILL]
        link._transport.close()
        far.close()

    run(body())


def test_a_deaf_link_hears_nothing_until_it_listens_and_the_dead_are_heard_out() -> None:
    async def body() -> None:
        ears = Ears()
        link, _, far = await linked(ears)
        pipe = link._pipe("stderr")
        assert link.deafen()
        assert not link.deafen()
        far.sendall(encode([Told(1, thread=True)]))
        os.write(pipe, b"raw")
        await asyncio.sleep(0.05)
        assert ears.words == []

        link.listen()
        await asyncio.sleep(0.05)

        assert sorted(map(str, ears.words)) == sorted(map(str, [Told(1, thread=True), b"raw"]))
        link._dead = True
        assert not link.deafen()
        for end in list(link._pipes):
            link._close(end)
        os.close(pipe)
        link._transport.close()
        far.close()

    run(body())


@pytest.mark.parametrize(("after", "failed"), [(0.9, False), (1.1, True)])
def test_what_ended_in_time_and_was_heard_late_has_not_timed_out(
    tmp_path: Path, after: float, failed: bool
) -> None:
    async def body() -> None:
        async with Stage(tmp_path) as stage:
            assert stage.hold.begun_at is not None
            stage.hold.time_out()
            stage.says(Ending(), at=stage.hold.begun_at + after)

            [(_, ending)] = stage.desk.endings
            assert (ending.failure is not None) is failed

    run(body())


@pytest.mark.parametrize("when", ["before", "during"])
def test_an_attempt_that_ends_as_it_is_stopped_is_not_taken_for_stuck(
    tmp_path: Path, when: str
) -> None:
    async def body() -> None:
        async with Stage(tmp_path) as stage:
            stage.hold.time_out()
            if when == "during":
                await stage.told()
            stage.says(Ending())
            stopping = stage.attempt.stopping
            assert stopping is not None
            async with asyncio.timeout(1):
                await stopping

            assert stage.child.signals == []
            assert not stage.link.retired
            assert len(stage.desk.endings) == 1

    run(body())


def test_a_runner_that_has_something_to_stop_is_heard_however_much_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.output.UNSENT_BYTES_MAX", 10)

    async def body() -> None:
        async with Stage(tmp_path) as stage:
            said = Said(stage.attempt.number, "output", 1.0, "stdout", b"x" * 100)
            stage.functions.heard(stage.link, said)
            assert not stage.hears()
            stage.hold.time_out()
            await stage.told()
            assert stage.hears()
            stage.functions.heard(stage.link, said)
            assert stage.hears()

    run(body())


def test_a_compensation_that_no_runner_can_be_had_for_has_failed_in_the_end(tmp_path: Path) -> None:
    async def body() -> None:
        async with Stage(tmp_path) as stage:
            failed = Ending(failure=Failure(message="no"))
            for attempt in (
                Attempt(stage.hold, failed, NOT_STARTED_MAX - 1),
                Attempt(stage.hold),
                Attempt(stage.hold, failed),
            ):
                stage.functions.put_off(attempt, Invalid("no app"))

            first, second = [ending for _, ending in stage.desk.endings]
            assert (first.failure, first.compensated) == (failed.failure, False)
            assert second.machine

    run(body())


def test_what_a_full_disk_does_not_take_is_read_and_keeps_the_seal_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileLog(tmp_path / "log", TITLE)
    log.append(piece(1))
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.worker.spool.os.pwrite", full_disk)
        log.append(piece(2))
    log.append(piece(3))
    log.seal(b"note")

    assert not any(isinstance(record, Seal) for record in read_file(tmp_path / "log"))
    read: list[int] = []
    while batch := log.read(1, 1000):
        read += [found.sequence for found in batch.pieces]
        log.sent(batch.end)
    assert read == [1, 2, 3]
    log.remove()


def test_what_is_sealed_before_it_is_read_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FileLog(tmp_path / "log", TITLE)
    log.append(piece(1))
    log.seal(b"note")
    batch = log.read(10, 1000)
    assert batch is not None
    log.sent(batch.end)
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.worker.spool.os.pwrite", full_disk)
        log.append(piece(2))

    rest = log.read(10, 1000)

    assert rest is not None
    assert rest.pieces == [piece(2)]
    assert isinstance(read_file(tmp_path / "log")[-1], Seal)
    log.remove()


def sequences(log: FileLog) -> list[int]:
    """All that the log returns, as if it were sent."""
    read: list[int] = []
    while batch := log.read(1, 1000):
        read += [found.sequence for found in batch.pieces]
        log.sent(batch.end)
    return read


def test_a_disk_that_takes_half_and_lets_none_of_it_be_removed_costs_no_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(file: int, data: bytes, offset: int) -> int:
        pwrite(file, data[: len(data) // 2], offset)
        return full_disk(file, data, offset)

    log, pwrite = FileLog(tmp_path / "log", TITLE), os.pwrite
    log.append(piece(1))
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.worker.spool.os.pwrite", half)
        patch.setattr("holdfast.worker.spool.os.ftruncate", broken_disk)
        log.append(piece(2, b"long" * 20))
    assert sequences(log) == [1, 2]

    log.append(piece(3))
    log.seal(b"note")

    assert sequences(log) == [3]
    assert isinstance(read_file(tmp_path / "log")[-1], Seal)
    log.remove()


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "unreadable"])
def test_what_comes_after_a_damage_of_the_spool_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    path = tmp_path / "log"
    log = FileLog(path, TITLE)
    log.append(piece(1))
    assert sequences(log) == [1]
    log.append(piece(2))
    with monkeypatch.context() as patch:
        if damage == "truncated":
            os.truncate(path, 0)
        elif damage == "overwritten":
            path.write_bytes(bytes(path.stat().st_size))
        else:
            patch.setattr("holdfast.worker.spool.os.pread", broken_disk)
        assert sequences(log) == []

    log.append(piece(3))
    log.seal(b"note")

    assert sequences(log) == [3]
    log.remove()


def test_a_damaged_spool_is_never_recovered_as_a_success(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = FileLog(path, TITLE)
    titled = path.stat().st_size
    log.append(piece(1))
    os.truncate(path, titled)
    log.seal(b"note")

    assert read_file(path) == [TITLE]
    log.remove()


def broken_disk(*_: object) -> bytes:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def full_disk(file: int, data: bytes, offset: int) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FakeSpan:
    """A span that only keeps what is said of it."""

    def __init__(self) -> None:
        self.noted: list[object] = []

    def note(self, attributes: dict[str, object]) -> None:
        self.noted += attributes.values()

    def end(self, error: str | None = None) -> None:
        self.noted.append(error)


@pytest.mark.parametrize(
    ("times", "told"),
    [(0, ["released", None]), (NOT_UNDERSTOOD_MAX, ["failed", "Invalid"])],
)
def test_the_span_of_a_job_that_is_given_back_for_other_code_is_no_failure(
    times: int, told: list[str | None]
) -> None:
    async def body() -> list[object]:
        registry = await open_registry("memory://")
        hold = await held(registry)
        hold.grant = replace(hold.grant, job=replace(hold.grant.job, not_understood=times))
        span = FakeSpan()
        hold.span = span  # type: ignore[assignment]
        failure = Failure(message="no argument gift", code="Invalid", not_understood=True)
        spans.end(hold, Ending(failure=failure))
        await registry.close()
        return span.noted

    assert run(body()) == told
