"""What would only be printed fails a seed: what is logged, warned of, unraisable, or fails unheard."""

import asyncio
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress

import pytest

from holdfast.core.job import Job
from holdfast.registry.local import LocalRegistry
from holdfast.testing.simulation import plan_of, simulate
from holdfast.testing.simulation.loop import ENDINGS_MAX, Ended, Node, virtual_loop
from holdfast.testing.simulation.nodes import NodeClock
from holdfast.testing.simulation.plan import STORES
from holdfast.testing.simulation.planted_bug import Bug


@pytest.mark.parametrize("store", STORES)
def test_seeds_say_nothing_beside_their_result(store: str) -> None:
    """Seed 13 once printed a traceback when its run was over."""
    command = [sys.executable, "-m", "holdfast.testing.simulation", "--store", store]
    ran = subprocess.run(
        [*command, "--seeds", "20"], capture_output=True, text=True, timeout=280, check=False
    )

    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert ran.stdout.startswith("20 seeds: 0 failed, ")


def logs() -> None:
    logging.getLogger("holdfast.somewhere").warning("not as it should be")


def warns() -> None:
    warnings.warn("not as it should be", UserWarning, stacklevel=1)


def fails_when_let_go() -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("not as it should be")

    Broken()


def fails_when_collected() -> None:
    class Broken:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            raise ValueError("not as it should be")

    Broken()


async def _fails() -> None:
    raise ValueError("not as it should be")


def is_never_awaited() -> None:
    _fails()  # type: ignore[unused-coroutine]


def fails_unheard() -> None:
    asyncio.ensure_future(_fails())  # noqa: RUF006  # nobody is to hear of it


def spoiled(mischief: Callable[[], None]) -> Bug:
    """A product that does this whenever it is asked for a job's record."""
    get = LocalRegistry.status

    async def spoiled_get(self: LocalRegistry, job_id: str) -> Job:
        mischief()
        return await get(self, job_id)

    swaps = ((LocalRegistry, "status", spoiled_get),)
    return Bug(name="spoiled", words="", trap="", swaps=lambda: swaps)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("mischief", "words"),
    [
        (logs, "logged by holdfast.somewhere: not as it should be"),
        (warns, "warned: UserWarning: not as it should be"),
        (fails_when_let_go, "unraisable: .*ValueError"),
        (fails_when_collected, "unraisable: .*ValueError"),
        (is_never_awaited, "warned: RuntimeWarning: coroutine '_fails' was never awaited"),
        (fails_unheard, "_fails failed, and its exception was never read: ValueError"),
    ],
)
def test_a_seed_fails_by_what_would_only_be_printed(
    mischief: Callable[[], None], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(3, "memory", validators=0)

    violation = simulate(plan, spoiled(mischief).plant()).violation

    assert violation is not None
    assert violation.invariant == "broken"
    assert re.match(words, violation.words), violation.words
    assert capfd.readouterr().err == ""
    assert simulate(plan).violation is None


Work = Callable[[NodeClock], Coroutine[None, None, None]]


def ended(work: Work) -> list[str]:
    """What is broken in a run that is over while this work waits."""
    loop, node = virtual_loop(), Node("n")
    loop.start(node, work(NodeClock(loop, node)))
    loop.run(5, lambda: False)
    loop.end()
    return loop.broken


def test_a_task_that_waits_in_a_generator_ends_when_the_run_is_over() -> None:
    """To close the task would leave the generator running, and to close that is an error."""
    told: list[str] = []

    async def numbers(clock: NodeClock) -> AsyncGenerator[int, None]:
        try:
            await clock.sleep(10)
            yield 1
        finally:
            told.append("generator")
            await clock.sleep(10)
            told.append("never")

    async def work(clock: NodeClock) -> None:
        try:
            async with aclosing(numbers(clock)) as them:
                async for _ in them:
                    pass
        except Exception as error:
            told.append(repr(error))
        finally:
            told.append("task")

    assert ended(work) == []
    assert told == ["generator", "task"]


def test_what_breaks_on_its_way_out_is_told() -> None:
    async def breaks(clock: NodeClock) -> None:
        try:
            await clock.sleep(10)
        finally:
            raise ValueError("not as it should be")

    async def stays(clock: NodeClock) -> None:
        for _ in range(ENDINGS_MAX + 1):
            with suppress(Ended):
                await clock.sleep(10)

    assert "breaks did not end well: ValueError" in ended(breaks)[0]
    assert "stays does not end" in ended(stays)[0]
