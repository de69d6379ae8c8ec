"""When a worker claims nothing because its machine cannot run jobs, and what ends that."""

import asyncio
import os
import resource
from datetime import datetime

import pytest
from msgspec.structs import replace

from holdfast.core.job import Failure, Job
from holdfast.core.limits import NOT_STARTED_MAX
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.sdk.open import open_registry
from holdfast.worker.claim_pause import (
    PAUSE_SECONDS_MAX,
    RESERVE_MAX,
    SUSPECTS_MIN,
    ClaimPause,
    DescriptorReserve,
)
from holdfast.worker.executor import Ending
from holdfast.worker.failures import machine_fault, needs_compensation, start_failed
from holdfast.worker.held_job import HeldJob

NO_DESCRIPTORS = machine_fault(OSError(24, "Too many open files"), "sh could not be started")
NO_FOLDER = start_failed(FileNotFoundError(2, "No such file or directory", "/x"), "sh", "/x")


class StoppedClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 100.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class PauseObserver:
    """An observer that keeps what it is told of pauses."""

    def __init__(self) -> None:
        self.pauses: list[float | str] = []

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None: ...

    def trouble(self, why: str) -> None: ...

    def paused(self, seconds: float, why: str) -> None:
        self.pauses.append(seconds)

    def resumed(self) -> None:
        self.pauses.append("resumed")


class PauseSetup:
    """A pause, its clock and its observer."""

    def __init__(self) -> None:
        self.clock = StoppedClock()
        self.observer = PauseObserver()
        self.pause = ClaimPause(self.clock, self.observer, "w")


@pytest.fixture
def setup() -> PauseSetup:
    return PauseSetup()


@pytest.fixture
def holds() -> list[HeldJob]:
    async def main() -> list[HeldJob]:
        registry = await open_registry("memory://")
        await registry.enqueue_many([JobRequest(spec=Spec())] * 6, actor="user:ana")
        grants = await registry.claim(["default"], owner="w", limit=6)
        await registry.close()
        return [HeldJob(grant, 160.0) for grant in grants]

    return asyncio.run(main())


def test_it_grows_with_every_job_tried_and_ends_when_work_begins(
    setup: PauseSetup, holds: list[HeldJob]
) -> None:
    pause = setup.pause
    for _ in range(8):
        pause.claimed(holds[:1])
        told = pause.ended(holds[0], NO_DESCRIPTORS)
        assert told == Ending(stopped=True)
        assert pause.allowed(5) == 0 or pause.seconds > 0
        pause.closed([holds[0]])
        setup.clock.time += pause.seconds
        assert (pause.seconds, pause.allowed(5)) == (0, 1)

    assert setup.observer.pauses == [1, 2, 4, 8, 16, 32, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MAX]
    assert holds[0].released == "w: sh could not be started: Too many open files."
    pause.claimed(holds[1:2])
    assert pause.allowed(5) == 0
    assert pause.begun([holds[1]])
    assert (pause.on, pause.allowed(5), setup.observer.pauses[-1]) == (False, 5, "resumed")
    assert not pause.begun([holds[1]])
    assert pause.given_back == 8


def test_jobs_that_fail_together_are_one_fault(setup: PauseSetup, holds: list[HeldJob]) -> None:
    for hold in holds:
        setup.pause.ended(hold, NO_DESCRIPTORS)

    assert setup.observer.pauses == [1]


def test_one_job_that_cannot_begin_is_no_sign_however_often_it_comes(
    setup: PauseSetup, holds: list[HeldJob]
) -> None:
    for _ in range(20):
        assert setup.pause.ended(holds[0], NO_FOLDER) is NO_FOLDER

    assert not setup.pause.on


@pytest.mark.parametrize("sign", ["begins", "ends"])
def test_different_jobs_that_cannot_begin_are_a_sign_unless_others_do(
    setup: PauseSetup, holds: list[HeldJob], sign: str
) -> None:
    *others, last = holds
    for hold in others[: SUSPECTS_MIN - 1]:
        setup.pause.ended(hold, NO_FOLDER)
    if sign == "begins":
        setup.pause.begun([last])
    else:
        setup.pause.ended(last, Ending())
    for hold in others[SUSPECTS_MIN - 1 : 2 * SUSPECTS_MIN - 2]:
        setup.pause.ended(hold, NO_FOLDER)
    assert not setup.pause.on

    setup.pause.ended(last, NO_FOLDER)

    assert setup.pause.on


def test_after_work_that_could_not_be_kept_only_work_that_ends_is_a_sign(
    setup: PauseSetup, holds: list[HeldJob]
) -> None:
    full = Ending(failure=Failure(message="No space left.", not_started=True), machine=True)
    setup.pause.begun([holds[0]])

    told = setup.pause.ended(holds[0], full)

    assert (told, holds[0].released) == (full, None)
    assert not setup.pause.begun([holds[1]])
    setup.pause.ended(holds[1], Ending(cancelled=True, stopped=True))
    assert setup.pause.on
    setup.pause.ended(holds[1], Ending(failure=Failure(message="exit 1")))
    assert not setup.pause.on


def test_a_worker_alone_with_its_job_gives_nothing_back(setup: PauseSetup, holds: list[HeldJob]) -> None:
    setup.pause.alone = True

    for ending in (NO_DESCRIPTORS, NO_FOLDER):
        told = setup.pause.ended(holds[0], ending)
        assert told.failure is not None
        assert (told.failure.not_started, told.machine) == (False, False)

    assert (setup.pause.on, holds[0].released) == (False, None)


@pytest.mark.parametrize(
    ("number", "name", "of_machine", "given_back"),
    [
        (24, "sh", True, False),  # EMFILE
        (11, "sh", True, False),  # EAGAIN
        (12, "/x", True, False),  # ENOMEM, in the folder
        (28, "sh", True, False),  # ENOSPC
        (2, "/x", False, True),  # ENOENT of the folder
        (13, "/x", False, True),  # EACCES of the folder
        (116, "/x", False, True),  # ESTALE of the folder
        (26, "sh", False, True),  # ETXTBSY
        (8, "sh", False, True),  # ENOEXEC
        (5, "sh", False, True),  # EIO
        (2, "sh", False, False),  # ENOENT of the program
        (13, "sh", False, False),  # EACCES of the program
        (7, "sh", False, False),  # E2BIG
    ],
)
def test_whose_fault_it_is(number: int, name: str, of_machine: bool, given_back: bool) -> None:
    ending = start_failed(OSError(number, "why", name), "sh", "/x")

    assert ending.failure is not None
    assert (ending.machine, ending.failure.not_started) == (of_machine, given_back)
    assert ending.failure.message.startswith("sh could not be started: why")


@pytest.mark.parametrize(
    ("machine", "not_started", "times", "due"),
    [
        (True, False, NOT_STARTED_MAX, False),  # given back, however often
        (True, True, 0, False),
        (True, True, NOT_STARTED_MAX, True),  # too large for any machine: now it has failed
        (False, False, 0, True),
    ],
)
def test_what_is_given_back_is_not_undone(
    holds: list[HeldJob], machine: bool, not_started: bool, times: int, due: bool
) -> None:
    hold = holds[0]
    job = hold.grant.job
    once = replace(job.spec, retry=Retry(max_failures=1))
    hold.grant = replace(hold.grant, job=replace(job, spec=once, not_started=times))
    failure = Failure(message="No space left.", not_started=not_started)

    assert needs_compensation(hold, Ending(failure=failure, machine=machine)) is due


@pytest.mark.parametrize("ending", [NO_DESCRIPTORS, NO_FOLDER])
def test_what_could_not_begin_is_not_shown_as_run(
    setup: PauseSetup, holds: list[HeldJob], ending: Ending
) -> None:
    holds[0].begun_at = 100.0

    setup.pause.ended(holds[0], ending)

    assert holds[0].begun_at is None


def test_a_reserve_takes_what_there_is_and_frees_all_of_it() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before, limits = count(), resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = DescriptorReserve()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        reserve.take()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert count() == before
    reserve.take()
    reserve.take()
    assert count() == before + RESERVE_MAX
    reserve.free()
    assert count() == before
