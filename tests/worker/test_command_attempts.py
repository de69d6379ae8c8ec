"""One attempt at a command, whatever comes between: told to stop, out of time, out of luck."""

import asyncio
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
from desk import Desk, at
from msgspec.structs import replace
from yard import gone, number_in, warden_of

from holdfast.core.command import Command, encode_command
from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.lifecycle import Stopped, Success
from holdfast.worker import commands as commands_module
from holdfast.worker import output as output_module
from holdfast.worker.hold import MARGIN_SECONDS, Hold
from holdfast.worker.spool import MemorySpool, Piece


def test_a_command_is_not_started_under_a_lease_that_is_over(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        hold = await desk.begin(f"touch {desk.trace()}", seconds=MARGIN_SECONDS)

        assert (await desk.ending(hold)).stopped
        assert "over before" in (hold.lost or "")
        assert not desk.trace().exists()

    at(tmp_path, work)


@pytest.mark.parametrize("how", ["cancelled", "released"])
def test_a_command_that_is_to_stop_is_not_started(tmp_path: Path, how: str) -> None:
    async def work(desk: Desk) -> None:
        hold = await desk.begin(f"touch {desk.trace()}")
        setattr(hold, how, "by the way")

        assert (await desk.ending(hold)).stopped
        assert not desk.trace().exists()

    at(tmp_path, work)


def test_what_the_warden_kills_with_its_lease_is_lost_and_has_not_failed(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        hold = await desk.begin("sleep 60", seconds=MARGIN_SECONDS + 0.3)

        ending = await desk.ending(hold)

        assert hold.lost == "the lease ended before the command did"
        assert (ending.stopped, ending.failure) == (True, None)

    at(tmp_path, work)


@pytest.mark.parametrize("starting", [False, True], ids=["while it runs", "while it starts"])
def test_a_renewed_lease_lets_the_command_live(tmp_path: Path, starting: bool) -> None:
    async def work(desk: Desk) -> None:
        warden = warden_of(desk.processes)
        if starting:
            os.kill(warden, signal.SIGSTOP)
        script = f"echo 1 > {desk.trace()}; sleep 1.2; exit 3"
        hold = await desk.begin(script, seconds=MARGIN_SECONDS + 1)
        await (asyncio.sleep(0.1) if starting else desk.traced())
        hold.deadline += 60
        desk.commands.renewed(hold)
        os.kill(warden, signal.SIGCONT)

        failure = (await desk.ending(hold)).failure

        assert failure is not None
        assert failure.exit_code == 3
        desk.commands.renewed(hold)  # and one that is over is passed over

    at(tmp_path, work)


def test_the_time_of_an_attempt_counts_from_the_start_of_its_process(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        before = time.monotonic()
        hold = await desk.begin(f"echo 1 > {desk.trace()}; sleep 60", timeout=timedelta(seconds=7))
        await desk.traced()
        await asyncio.sleep(0.2)
        assert before < (hold.begun_at or 0) <= time.monotonic()

        hold.time_out()

        failure = (await desk.ending(hold)).failure
        assert failure is not None
        assert (failure.code, failure.exit_code) == ("Timeout", 124)
        assert failure.message == "It ran longer than its timeout of 7 s."

    at(tmp_path, work)


TRAPS = "trap 'echo saved; exit 0' TERM; echo $$ > {0}; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo $$ > {0}; while :; do sleep 0.05; done"


def test_a_cancelled_command_may_end_by_itself(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        hold = await desk.begin(TRAPS.format(desk.trace()))
        await desk.traced()
        hold.cancelled = True
        assert hold.listener is not None
        hold.listener()

        ending = await desk.ending(hold)

        assert (ending.outcome, ending.stopped) == (Stopped(), True)
        assert await desk.words(hold) == b"saved\n"
        assert hold.listener is None

    at(tmp_path, work)


def test_a_command_that_does_not_heed_is_killed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands_module, "STOP_SECONDS", 0.4)

    async def work(desk: Desk) -> None:
        hold = await desk.begin(DEAF.format(desk.trace()))
        pid = await desk.traced()
        told_at = time.monotonic()
        hold.give_back("the worker is leaving")

        ending = await desk.ending(hold)

        assert ending.stopped
        assert 0.4 <= time.monotonic() - told_at < 5
        assert gone(pid)

    at(tmp_path, work)


@pytest.mark.parametrize("before", [False, True], ids=["at once", "while it is stopping"])
def test_a_command_whose_lease_is_lost_is_killed_at_once(tmp_path: Path, before: bool) -> None:
    async def work(desk: Desk) -> None:
        hold = await desk.begin(DEAF.format(desk.trace()))
        pid = await desk.traced()
        if before:
            hold.give_back("the worker is leaving")
            await asyncio.sleep(0.1)
        lost_at = time.monotonic()
        hold.lose("another has it")

        assert (await desk.ending(hold)).stopped
        assert time.monotonic() - lost_at < 3
        assert gone(pid)

    at(tmp_path, work)


def test_a_cancel_that_comes_after_the_end_changes_nothing(tmp_path: Path) -> None:
    """Its output is still held open, by a process in another session."""

    async def work(desk: Desk) -> None:
        script = f"setsid sh -c 'echo $$ > {desk.trace()}; exec sleep 20' & "
        hold = await desk.begin(script + f"while [ ! -s {desk.trace()} ]; do sleep 0.02; done")
        straggler = await desk.traced()
        await asyncio.sleep(0.3)
        assert not desk.endings
        hold.cancelled = True
        assert hold.listener is not None
        hold.listener()

        ending = await desk.ending(hold)

        os.kill(straggler, signal.SIGKILL)
        assert (ending.outcome, ending.stopped) == (Success(result={"exit_code": 0}), False)
        events = (await desk.registry.log(hold.job_id)).events
        assert "held open" in str([event.attributes for event in events])

    at(tmp_path, work)


def test_output_that_waits_for_a_slow_store_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_module, "UNSENT_BYTES_MAX", 100_000)
    monkeypatch.setattr(commands_module, "PIPE_SECONDS", 0.2)

    async def work(desk: Desk) -> None:
        publish = desk.registry.publish

        async def away(*_: object) -> None:
            raise Unavailable("away")

        monkeypatch.setattr(desk.registry, "publish", away)
        hold = await desk.begin("head -c 180000 /dev/zero")
        await asyncio.sleep(1.5)
        assert not desk.endings
        monkeypatch.setattr(desk.registry, "publish", publish)

        assert (await desk.ending(hold)).outcome == Success(result={"exit_code": 0})
        assert len(await desk.words(hold)) == 180_000

    at(tmp_path, work)


def test_what_nobody_expected_ends_the_attempt_once_and_is_named(tmp_path: Path) -> None:
    class Broken(MemorySpool):
        def log(self, hold: Hold) -> "object":  # type: ignore[override]
            number_in(tmp_path / "trace")
            raise RuntimeError("no room for a file")

    async def work(desk: Desk) -> None:
        desk.spool = Broken()
        hold = await desk.begin(f"echo $$ > {desk.trace()}; sleep 60")

        failure = (await desk.ending(hold)).failure

        assert failure is not None
        assert "no room for a file" in failure.message
        assert (failure.code, failure.retryable, failure.crash) == ("RuntimeError", True, False)
        assert gone(await desk.traced())

    at(tmp_path, work)


def test_a_command_whose_output_cannot_be_kept_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(desk: Desk) -> None:
        hold = await desk.begin(f"echo $$ > {desk.trace()}; sleep 0.3; echo hello; sleep 60")
        pid = await desk.traced()

        def full(piece: Piece) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(desk.output(hold)._log, "append", full)
        failure = (await desk.ending(hold)).failure

        assert failure is not None
        assert "No space left" in failure.message
        assert gone(pid)

    at(tmp_path, work)


def test_a_killed_warden_is_a_crash_of_what_it_ran(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        hold = await desk.begin(f"echo $$ > {desk.trace()}; sleep 60")
        pid = await desk.traced()
        os.kill(warden_of(desk.processes), signal.SIGKILL)

        failure = (await desk.ending(hold)).failure

        assert failure is not None
        assert (failure.exit_code, failure.crash) == (137, True)
        assert gone(pid)
        again = await desk.begin("exit 4")
        failure = (await desk.ending(again)).failure
        assert failure is not None
        assert failure.exit_code == 4

    at(tmp_path, work)


def test_a_warden_killed_while_it_starts_a_command_is_a_crash_too(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        warden = warden_of(desk.processes)
        os.kill(warden, signal.SIGSTOP)
        hold = await desk.begin("exit 0")
        await asyncio.sleep(0.1)
        os.kill(warden, signal.SIGKILL)

        failure = (await desk.ending(hold)).failure

        assert failure is not None
        assert (failure.exit_code, failure.crash, failure.retryable) == (137, True, True)

    at(tmp_path, work)


def test_close_ends_whatever_is_left(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        holds = [await desk.begin(DEAF.format(desk.trace(str(n)))) for n in range(3)]
        pids = [await desk.traced(str(n)) for n in range(3)]

        await desk.commands.close()

        assert {hold for hold, _ in desk.endings} == set(holds)
        assert all(hold.lost for hold in holds)
        assert all(map(gone, pids))

    at(tmp_path, work)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 0}, "1 to 65,535 rows"),
        ({"columns": 65_536}, "1 to 65,535 rows"),
        ({"memory_bytes": 0}, "at least one byte"),
    ],
)
def test_a_command_with_an_impossible_terminal_or_limit_is_refused(
    change: dict[str, int], words: str
) -> None:
    command = Command(argv=("true",), pty=True, rows=65_535, columns=1, memory_bytes=1)
    encode_command(command)

    with pytest.raises(Invalid, match=words):
        encode_command(replace(command, **change))
