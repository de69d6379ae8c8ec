"""One attempt at a command: stopped, timed out, cancelled, or run by a supervisor that dies."""

import asyncio
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.lifecycle import Stopped, Success
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.worker import command_executor as commands_module
from holdfast.worker import output as output_module
from holdfast.worker.held_job import MARGIN_SECONDS, HeldJob
from holdfast.worker.spool import MemorySpool, SpooledEvent
from tests.worker.fake_host import FakeHost
from tests.worker.live_processes import gone, number_in, supervisor_of


async def test_a_command_is_not_started_under_a_lease_that_is_over(host: FakeHost) -> None:
    hold = await host.begin(f"touch {host.trace()}", seconds=MARGIN_SECONDS)

    assert (await host.ending(hold)).stopped
    assert "over before" in (hold.lost or "")
    assert not host.trace().exists()


@pytest.mark.parametrize("how", ["cancelled", "released"])
async def test_a_command_that_is_to_stop_is_not_started(how: str, host: FakeHost) -> None:
    hold = await host.begin(f"touch {host.trace()}")
    setattr(hold, how, "by the way")

    assert (await host.ending(hold)).stopped
    assert not host.trace().exists()


async def test_what_the_supervisor_kills_with_its_lease_is_lost_and_has_not_failed(
    host: FakeHost,
) -> None:
    hold = await host.begin("sleep 60", seconds=MARGIN_SECONDS + 0.3)

    ending = await host.ending(hold)

    assert hold.lost == "the lease ended before the command did"
    assert (ending.stopped, ending.failure) == (True, None)


@pytest.mark.parametrize("starting", [False, True], ids=["while it runs", "while it starts"])
async def test_a_renewed_lease_lets_the_command_live(starting: bool, host: FakeHost) -> None:
    supervisor = supervisor_of(host.processes)
    if starting:
        os.kill(supervisor, signal.SIGSTOP)
    script = f"echo 1 > {host.trace()}; sleep 1.2; exit 3"
    hold = await host.begin(script, seconds=MARGIN_SECONDS + 1)
    await (asyncio.sleep(0.1) if starting else host.traced())
    hold.deadline += 60
    host.commands.renewed(hold)
    os.kill(supervisor, signal.SIGCONT)

    failure = (await host.ending(hold)).failure

    assert failure is not None
    assert failure.exit_code == 3
    host.commands.renewed(hold)  # and one that is over is passed over


async def test_the_time_of_an_attempt_counts_from_the_start_of_its_process(host: FakeHost) -> None:
    before = time.monotonic()
    hold = await host.begin(f"echo 1 > {host.trace()}; sleep 60", timeout=timedelta(seconds=7))
    await host.traced()
    await asyncio.sleep(0.2)
    assert before < (hold.begun_at or 0) <= time.monotonic()

    hold.time_out()

    failure = (await host.ending(hold)).failure
    assert failure is not None
    assert (failure.code, failure.exit_code) == ("Timeout", 124)
    assert failure.message == "It ran longer than its timeout of 7 s."


TRAPS = "trap 'echo saved; exit 0' TERM; echo $$ > {0}; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo $$ > {0}; while :; do sleep 0.05; done"


async def test_a_cancelled_command_may_end_by_itself(host: FakeHost) -> None:
    hold = await host.begin(TRAPS.format(host.trace()))
    await host.traced()
    hold.cancelled = True
    assert hold.listener is not None
    hold.listener()

    ending = await host.ending(hold)

    assert (ending.outcome, ending.stopped) == (Stopped(), True)
    assert await host.words(hold) == b"saved\n"
    assert hold.listener is None


async def test_a_command_that_does_not_heed_is_killed_after_a_while(
    monkeypatch: pytest.MonkeyPatch, host: FakeHost
) -> None:
    monkeypatch.setattr(commands_module, "STOP_SECONDS", 0.4)

    hold = await host.begin(DEAF.format(host.trace()))
    pid = await host.traced()
    told_at = time.monotonic()
    hold.give_back("the worker is leaving")

    ending = await host.ending(hold)

    assert ending.stopped
    assert 0.4 <= time.monotonic() - told_at < 30
    assert gone(pid)


@pytest.mark.parametrize("before", [False, True], ids=["at once", "while it is stopping"])
async def test_a_command_whose_lease_is_lost_is_killed_at_once(
    before: bool, host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands_module, "STOP_SECONDS", 3600)
    hold = await host.begin(DEAF.format(host.trace()), seconds=3600)
    pid = await host.traced()
    if before:
        hold.give_back("the worker is leaving")
        await asyncio.sleep(0.1)
    hold.lose("another has it")

    assert (await host.ending(hold)).stopped
    assert gone(pid)


async def test_a_cancel_that_comes_after_the_end_changes_nothing(host: FakeHost) -> None:
    """Its output is still held open, by a process in another session."""

    script = f"setsid sh -c 'echo $$ > {host.trace()}; exec sleep 20' & "
    hold = await host.begin(script + f"while [ ! -s {host.trace()} ]; do sleep 0.02; done")
    straggler = await host.traced()
    await asyncio.sleep(0.3)
    assert not host.endings
    hold.cancelled = True
    assert hold.listener is not None
    hold.listener()

    ending = await host.ending(hold)

    os.kill(straggler, signal.SIGKILL)
    assert (ending.outcome, ending.stopped) == (Success(result={"exit_code": 0}), False)
    events = (await host.registry.logs(hold.job_id)).events
    assert "held open" in str([event.attributes for event in events])


async def test_output_that_waits_for_a_slow_store_is_not_cut(
    monkeypatch: pytest.MonkeyPatch, host: FakeHost
) -> None:
    monkeypatch.setattr(output_module, "UNSENT_BYTES_MAX", 100_000)
    monkeypatch.setattr(commands_module, "PIPE_SECONDS", 0.2)

    publish = host.registry.publish

    async def away(*_: object) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(host.registry, "publish", away)
    hold = await host.begin("head -c 180000 /dev/zero")
    await asyncio.sleep(1.5)
    assert not host.endings
    monkeypatch.setattr(host.registry, "publish", publish)

    assert (await host.ending(hold)).outcome == Success(result={"exit_code": 0})
    assert len(await host.words(hold)) == 180_000


async def test_what_nobody_expected_ends_the_attempt_once_and_is_named(
    tmp_path: Path, host: FakeHost
) -> None:
    class Broken(MemorySpool):
        def log(self, hold: HeldJob) -> "object":  # type: ignore[override]
            number_in(tmp_path / "trace")
            raise RuntimeError("no room for a file")

    host.spool = Broken()
    hold = await host.begin(f"echo $$ > {host.trace()}; sleep 60")

    failure = (await host.ending(hold)).failure

    assert failure is not None
    assert "no room for a file" in failure.message
    assert (failure.code, failure.retryable, failure.crash) == ("RuntimeError", True, False)
    assert gone(await host.traced())


async def test_a_command_whose_output_cannot_be_kept_does_not_go_on(
    monkeypatch: pytest.MonkeyPatch, host: FakeHost
) -> None:
    hold = await host.begin(f"echo $$ > {host.trace()}; sleep 0.3; echo hello; sleep 60")
    pid = await host.traced()

    def full(piece: SpooledEvent) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(host.output(hold)._log, "append", full)
    failure = (await host.ending(hold)).failure

    assert failure is not None
    assert "No space left" in failure.message
    assert gone(pid)


async def test_a_killed_supervisor_is_a_crash_of_what_it_ran(host: FakeHost) -> None:
    hold = await host.begin(f"echo $$ > {host.trace()}; sleep 60")
    pid = await host.traced()
    os.kill(supervisor_of(host.processes), signal.SIGKILL)

    failure = (await host.ending(hold)).failure

    assert failure is not None
    assert (failure.exit_code, failure.crash) == (137, True)
    assert gone(pid)
    again = await host.begin("exit 4")
    failure = (await host.ending(again)).failure
    assert failure is not None
    assert failure.exit_code == 4


async def test_a_supervisor_killed_while_it_starts_a_command_is_a_crash_too(host: FakeHost) -> None:
    supervisor = supervisor_of(host.processes)
    os.kill(supervisor, signal.SIGSTOP)
    hold = await host.begin("exit 0")
    await asyncio.sleep(0.1)
    os.kill(supervisor, signal.SIGKILL)

    failure = (await host.ending(hold)).failure

    assert failure is not None
    assert (failure.exit_code, failure.crash, failure.retryable) == (137, True, True)


async def test_close_ends_whatever_is_left(host: FakeHost) -> None:
    holds = [await host.begin(DEAF.format(host.trace(str(n)))) for n in range(3)]
    pids = [await host.traced(str(n)) for n in range(3)]

    await host.commands.close()

    assert {hold for hold, _ in host.endings} == set(holds)
    assert all(hold.lost for hold in holds)
    assert all(map(gone, pids))


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
    command = ProcessSpec(argv=("true",), pty=True, rows=65_535, columns=1, memory_bytes=1)
    encode_process_spec(command)

    with pytest.raises(Invalid, match=words):
        encode_process_spec(replace(command, **change))
