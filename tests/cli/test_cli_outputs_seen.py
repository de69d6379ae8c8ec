"""What a person sees while outputs are looked for: a bar, who looks, why nobody could, and what next."""

import asyncio
import io
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from outputs_world import OutputsWorld, epidemic
from rich.console import Console
from test_cli_process import on_a_terminal

from holdfast.cli import progress
from holdfast.core.job import Job
from holdfast.core.outputs import Found
from holdfast.core.state import State
from holdfast.outputs.inspector import LocalInspector
from holdfast.ports import Registry


@pytest.fixture
def world(tmp_path: Path) -> OutputsWorld:
    return OutputsWorld(tmp_path)


def test_a_bar_shows_how_far_the_one_who_looks_is(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "on_terminal", lambda *, err: err)
    monkeypatch.setattr(
        progress, "console", lambda *, err: Console(file=screen, force_terminal=True, width=100)
    )
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.01)
    world.promise("a.txt")
    world.done()

    async def looking(registry: Registry) -> Job:
        for done in (300, 700):
            job = await registry.look("j", actor="validator:v", done=done, total=1000)
            while f"{done}/1000" not in screen.getvalue():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return job

    async def work(registry: Registry) -> Job:
        async with asyncio.timeout(60):
            return await progress.with_bar(registry, "j", looking(registry))

    assert world.registry(work).state is State.VALIDATING


def test_without_a_terminal_there_is_no_bar(world: OutputsWorld) -> None:
    world.partial(epidemic(), saved=5)

    said = world.run("validate", "--force", "j", code=1)

    assert said.stdout.startswith("partial_success: 5 of 8 outputs verified, 3 missing: ")
    assert said.stderr == ""


def test_on_a_terminal_the_next_step_is_told(world: OutputsWorld) -> None:
    world.partial(epidemic(), saved=5)

    code, seen = on_a_terminal(world, "validate", "--force", "j")
    _, listed = on_a_terminal(world, "outputs", "j")
    _, resumed = on_a_terminal(world, "resume", "j")

    assert code == 1
    assert "partial_success: 5 of 8" in seen
    for text in (seen, listed):
        assert "Make what is missing: holdfast resume j" in text
    assert "It makes 3 outputs. Execute it: holdfast worker -q default" in resumed
    assert "holdfast logs -f j-resume-" in resumed


def test_on_a_terminal_reasons_from_outside_are_harmless(world: OutputsWorld) -> None:
    tasks = epidemic()
    world.save(tasks[5:6], error="a\x1b]0;owned\x07b")
    world.partial(tasks, saved=5)

    _, seen = on_a_terminal(world, "outputs", "j", NO_COLOR="1")

    assert "owned" not in seen
    assert "\x07" not in seen
    assert "error result: ab" in seen


def test_work_that_is_not_done_again_says_where_its_outputs_are(world: OutputsWorld) -> None:
    tasks = epidemic()
    world.save(tasks, job_id="earlier")

    code, seen = on_a_terminal(world, "submit", "--manifest", str(world.manifest(tasks)), "--", "x")

    assert code == 0
    assert "All 8 outputs are there already: nothing was run." in seen
    assert "See them: holdfast outputs cached-" in seen


def test_status_says_who_looks_and_how_far(world: OutputsWorld) -> None:
    world.promise("a.txt")
    world.done()
    world.registry(lambda registry: registry.look("j", actor="validator:v", done=3, total=8))

    assert (
        "validator:v is looking for its outputs, 3 of 8 so far" in world.run("status", "j").stdout
    )
    assert "validator:v is looking" in world.run("why", "j").stdout


def test_a_partial_success_that_is_looked_at_says_so(world: OutputsWorld) -> None:
    world.promise("a.txt", "b.txt")
    world.done("j", "a.txt")
    world.validated(code=1)
    world.registry(lambda registry: registry.look("j", actor="validator:v", done=1, total=2))

    assert "  validator:v is looking, 1 of 2\n" in world.run("status", "j").stdout


def test_status_watch_tells_why_nothing_could_be_seen(world: OutputsWorld) -> None:
    world.promise("a.txt")
    world.done()
    shutil.rmtree(world.folder)
    world.run("validate", "--force", "j", code=75)
    world.run("validate", "j", "--override", "succeeded", "--reason", "by hand")

    *_, unseen, last = world.run("status", "--watch", "j").stdout.splitlines()

    assert unseen.split()[1] == "validating"
    assert "is not there: is it mounted?" in unseen
    assert last.split()[1] == "succeeded"
    assert last.endswith("by hand")


def test_while_somebody_else_looks_validate_waits_for_the_verdict(
    world: OutputsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does for a server, which answers after a while and looks on."""
    asked, really = threading.Event(), LocalInspector.validate

    async def told(self: LocalInspector, job_id: str, *, actor: str, force: bool) -> Job:
        job = await really(self, job_id, actor=actor, force=force)
        asked.set()
        return job

    monkeypatch.setattr(LocalInspector, "validate", told)
    world.promise("a.txt", "b.txt")
    world.done("j", "a.txt")
    world.registry(lambda registry: registry.look("j", actor="validator:v", done=1, total=2))

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(world.validated, "j", 1)
        assert asked.wait(60)
        found = Found(verified=1, missing=1, names=("b.txt",))
        world.registry(lambda registry: registry.judge("j", found, actor="validator:v"))
        said = waiting.result(60)

    assert said == "partial_success: 1 of 2 outputs verified, 1 missing: b.txt.\n"
