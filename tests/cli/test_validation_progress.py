"""What a person sees while outputs are validated: a bar, who scans, why it failed, what to do next."""

import asyncio
import io
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console

from holdfast.cli import progress
from holdfast.core.job import Job
from holdfast.core.outputs import ValidationResult
from holdfast.core.state import State
from holdfast.outputs.inspector import LocalInspector
from holdfast.ports import Registry
from tests.cli.command_line import on_a_terminal
from tests.cli.outputs_command_line import OutputsCommandLine, epidemic


def test_a_bar_shows_how_far_the_one_who_looks_is(
    outputs_cli: OutputsCommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "on_terminal", lambda *, err: err)
    monkeypatch.setattr(
        progress, "console", lambda *, err: Console(file=screen, force_terminal=True, width=100)
    )
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.01)
    outputs_cli.promise("a.txt")
    outputs_cli.done()

    async def looking(registry: Registry) -> Job:
        for done in (300, 700):
            job = await registry.report_validation("j", actor="validator:v", done=done, total=1000)
            while f"{done}/1000" not in screen.getvalue():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return job

    async def work(registry: Registry) -> Job:
        async with asyncio.timeout(60):
            return await progress.with_progress_bar(registry, "j", looking(registry))

    assert outputs_cli.registry(work).state is State.VALIDATING


def test_without_a_terminal_there_is_no_bar(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.partial(epidemic(), saved=5)

    said = outputs_cli.run("validate", "--force", "j", code=1)

    assert said.stdout.startswith("partial_success: 5 of 8 outputs verified, 3 missing: ")
    assert said.stderr == ""


def test_on_a_terminal_the_next_step_is_told(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.partial(epidemic(), saved=5)

    code, seen = on_a_terminal(outputs_cli, "validate", "--force", "j")
    _, listed = on_a_terminal(outputs_cli, "outputs", "j")
    _, resumed = on_a_terminal(outputs_cli, "resume", "j")

    assert code == 1
    assert "partial_success: 5 of 8" in seen
    for text in (seen, listed):
        assert "Make what is missing: holdfast resume j" in text
    assert "It makes 3 outputs. Execute it: holdfast worker -q default" in resumed
    assert "holdfast logs -f j-resume-" in resumed


def test_on_a_terminal_reasons_from_outside_are_harmless(outputs_cli: OutputsCommandLine) -> None:
    tasks = epidemic()
    outputs_cli.save(tasks[5:6], error="a\x1b]0;owned\x07b")
    outputs_cli.partial(tasks, saved=5)

    _, seen = on_a_terminal(outputs_cli, "outputs", "j", NO_COLOR="1")

    assert "owned" not in seen
    assert "\x07" not in seen
    assert "error result: ab" in seen


def test_work_that_is_not_done_again_says_where_its_outputs_are(
    outputs_cli: OutputsCommandLine,
) -> None:
    tasks = epidemic()
    outputs_cli.save(tasks, job_id="earlier")

    code, seen = on_a_terminal(
        outputs_cli, "submit", "--manifest", str(outputs_cli.manifest(tasks)), "--", "x"
    )

    assert code == 0
    assert "All 8 outputs are there already: nothing was run." in seen
    assert "See them: holdfast outputs cached-" in seen


def test_status_says_who_looks_and_how_far(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt")
    outputs_cli.done()
    outputs_cli.registry(
        lambda registry: registry.report_validation("j", actor="validator:v", done=3, total=8)
    )

    assert "validator:v is validating its outputs, 3 of 8 so far" in outputs_cli.run("status", "j").stdout
    assert "validator:v is validating" in outputs_cli.run("why", "j").stdout


def test_a_partial_success_that_is_looked_at_says_so(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt", "b.txt")
    outputs_cli.done("j", "a.txt")
    outputs_cli.validated(code=1)
    outputs_cli.registry(
        lambda registry: registry.report_validation("j", actor="validator:v", done=1, total=2)
    )

    assert "  validator:v is validating, 1 of 2\n" in outputs_cli.run("status", "j").stdout


def test_status_watch_tells_why_nothing_could_be_seen(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt")
    outputs_cli.done()
    shutil.rmtree(outputs_cli.folder)
    outputs_cli.run("validate", "--force", "j", code=75)
    outputs_cli.run("validate", "j", "--override", "succeeded", "--reason", "by hand")

    *_, unseen, last = outputs_cli.run("status", "--watch", "j").stdout.splitlines()

    assert unseen.split()[1] == "validating"
    assert "is not there: is it mounted?" in unseen
    assert last.split()[1] == "succeeded"
    assert last.endswith("by hand")


def test_while_somebody_else_looks_validate_waits_for_the_verdict(
    outputs_cli: OutputsCommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does for a server, which answers after a while and looks on."""
    asked, really = threading.Event(), LocalInspector.validate

    async def told(self: LocalInspector, job_id: str, *, actor: str, force: bool) -> Job:
        job = await really(self, job_id, actor=actor, force=force)
        asked.set()
        return job

    monkeypatch.setattr(LocalInspector, "validate", told)
    outputs_cli.promise("a.txt", "b.txt")
    outputs_cli.done("j", "a.txt")
    outputs_cli.registry(
        lambda registry: registry.report_validation("j", actor="validator:v", done=1, total=2)
    )

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(outputs_cli.validated, "j", 1)
        assert asked.wait(60)
        found = ValidationResult(verified=1, missing=1, names=("b.txt",))
        outputs_cli.registry(lambda registry: registry.complete_validation("j", found, actor="validator:v"))
        said = waiting.result(60)

    assert said == "partial_success: 1 of 2 outputs verified, 1 missing: b.txt.\n"
