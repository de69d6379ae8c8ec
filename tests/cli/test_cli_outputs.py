"""submit --output, outputs, validate: a job has succeeded when what it promised is there."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_world import failure, output
from msgspec.structs import replace
from outputs_world import OutputsWorld, epidemic, table

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.outputs import File
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Request
from holdfast.system import machine


@pytest.fixture
def world(tmp_path: Path) -> OutputsWorld:
    return OutputsWorld(tmp_path)


def test_submit_promises_what_output_names(world: OutputsWorld) -> None:
    job_id = world.promise("a.txt", "r/*.csv:4", "m.pt,size=2kB")

    spec = world.get(job_id).spec
    assert spec.outputs is not None
    assert spec.outputs.files == (
        File("a.txt"),
        File("r/*.csv", count=4),
        File("m.pt", size=2000),
    )
    assert spec.promised_outputs == 3
    assert json.loads(world.run("status", "--json", job_id).stdout)["spec"]["outputs"]["files"][
        1
    ] == {
        "path": "r/*.csv",
        "count": 4,
        "size": None,
        "sha256": None,
    }
    assert not world.beside.exists()


def test_a_job_whose_outputs_are_all_there_succeeds(world: OutputsWorld) -> None:
    world.promise("a.txt", "*.csv:2")
    world.done("j", "a.txt", "1.csv", "2.csv")

    assert world.validated() == "succeeded: 2 of 2 outputs verified.\n"

    assert world.get("j").state is State.SUCCEEDED
    shown = world.run("outputs", "j")
    assert table(shown.stdout) == [
        ["a.txt", "there", "1", "2d711642b726", "-"],
        ["*.csv", "there", "2", "-", "-"],
    ]
    assert shown.stderr == "2 of 2 outputs verified.\n"
    assert "all 2 outputs are there" in world.run("why", "j").stdout


def test_a_job_with_some_of_its_outputs_is_a_partial_success(world: OutputsWorld) -> None:
    world.promise("a.txt", "b.txt", "*.csv:2")
    world.leave("a.txt", "1.csv")
    world.done()

    verdict = world.validated(code=1)

    found = "1 of 3 outputs verified (1 reused), 2 missing"
    assert verdict == f"partial_success: {found}: b.txt, *.csv.\n"
    shown = world.run("outputs", "--missing", "j")
    assert table(shown.stdout) == [
        ["b.txt", "missing", "-", "-", "not there"],
        ["*.csv", "missing", "1", "-", "1 file matches, not 2"],
    ]
    assert shown.stderr == f"{found}.\n"
    status = dict(line.split(maxsplit=1) for line in world.run("status", "j").stdout.splitlines())
    assert (status["Outputs"], status["Missing"]) == (found, "b.txt, *.csv")
    assert status["Check"] == "next look in 5 min"
    assert found in world.run("list").stdout
    assert "holdfast resume j" in world.run("why", "j").stdout


def test_a_job_that_left_nothing_has_failed(world: OutputsWorld) -> None:
    world.promise("a.txt")
    world.done()

    assert world.validated(code=1) == "failed: No promised output was found.\n"

    job = json.loads(world.run("status", "--json", "j").stdout)
    assert job["error"]["code"] == "NO_OUTPUTS"
    assert job["found"]["missing"] == 1


def test_outputs_that_cannot_be_seen_say_why_and_when_again(world: OutputsWorld) -> None:
    world.promise("a.txt")
    world.done()
    shutil.rmtree(world.folder)

    told = world.run("validate", "--force", "j", code=75)

    assert told.stdout == ""
    assert f"The folder {world.folder}, in which it ran, is not there" in told.stderr
    assert f"Any worker or server on {machine()} looks again in " in told.stderr
    job = json.loads(world.run("status", "--json", "j").stdout)
    assert (job["state"], job["check"]["tries"]) == ("validating", 1)
    assert "is not there: is it mounted?" in world.run("list").stdout
    assert "could not be seen, tried once" in world.run("status", "j").stdout
    listed = world.run("outputs", "j")
    assert table(listed.stdout) == [["a.txt", "promised", "-", "-", "-"]]
    assert listed.stderr == "Nobody has seen them yet. Look now: holdfast validate j\n"


def test_a_partial_success_that_cannot_be_seen_again_stays_one(world: OutputsWorld) -> None:
    world.promise("a.txt", "b.txt")
    world.leave("a.txt")
    world.done()
    world.validated(code=1)
    shutil.rmtree(world.folder)

    told = world.run("validate", "--force", "j", code=75)

    assert told.stdout.startswith("partial_success: 1 of 2 outputs verified")
    assert "They could not be seen just now: The folder" in told.stderr


def test_what_is_not_due_is_left_alone_unless_forced(world: OutputsWorld) -> None:
    world.promise("a.txt", "b.txt")
    world.leave("a.txt")
    world.done()

    early = world.run("validate", "j", code=75)
    world.validated(code=1)
    world.leave("b.txt")
    later = world.run("validate", "j", code=1)

    assert "have not been looked at yet" in early.stderr
    assert later.stdout.startswith("partial_success: 1 of 2")
    assert "not due" in later.stderr
    assert world.validated().startswith("succeeded: 2 of 2 outputs verified")
    assert world.validated().startswith("succeeded: 2 of 2 outputs verified")


def test_outputs_are_looked_for_when_the_work_is_done(world: OutputsWorld) -> None:
    world.promise("a.txt")
    world.leave("a.txt")

    refused = world.run("validate", "--force", "j", code=4)

    assert "Error: Job j is queued: its work is not done." in refused.stderr
    assert "when the work is done" in world.run("outputs", "j").stderr


def test_an_operator_may_give_the_verdict_with_a_reason(world: OutputsWorld) -> None:
    for job_id in ("good", "bad"):
        world.promise("a.txt", job_id=job_id)
        world.done(job_id)

    said = world.run("validate", "good", "--override", "succeeded", "--reason", "I saw \x1b[2Jthem")
    world.run("validate", "bad", "--override", "failed", "--reason", "lost", code=1)

    assert said.stdout.startswith("succeeded: overridden by user:")
    last = world.registry(lambda registry: registry.history("good"))[-1]
    assert (last.actor or "").startswith("user:")
    assert last.reason == "I saw \x1b[2Jthem"
    assert "somebody said so: I saw them." in world.run("why", "good").stdout
    assert world.get("bad").state is State.FAILED


def test_an_override_that_cannot_be_says_what_is(world: OutputsWorld) -> None:
    world.promise("a.txt", "b.txt")
    reason = ("--reason", "because")
    queued = world.run("validate", "j", "--override", "succeeded", *reason, code=4)
    world.leave("a.txt")
    world.done()
    world.validated(code=1)
    worse = world.run("validate", "j", "--override", "failed", *reason, code=4)

    assert "Job is queued: there are no outputs to judge." in queued.stderr
    assert "Job is partial_success; it cannot become failed." in worse.stderr
    assert "holdfast status j" in worse.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--override", "succeeded"], "needs a reason"),
        (["--override", "succeeded", "--reason", " "], "needs a reason"),
        (["--reason", "r"], "goes with --override"),
        (["--force", "--override", "failed", "--reason", "r"], "choose one"),
        (["--override", "cancelled", "--reason", "r"], "cancelled"),
    ],
)
def test_wrong_uses_of_validate_are_told(world: OutputsWorld, words: list[str], told: str) -> None:
    world.promise("a.txt")

    assert told in world.run("validate", "j", *words, code=2).stderr


def test_words_from_outside_do_nothing_to_a_terminal(world: OutputsWorld) -> None:
    evil = "a\x1b]0;owned\x07\u202eb"
    tasks = epidemic()
    world.save(tasks[5:6], error=evil)
    world.partial(tasks, saved=5)

    shown = world.run("outputs", "j").stdout
    line = world.run("outputs", "--missing", "--json", "j").stdout.splitlines()[0]

    for text in (shown, line):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert json.loads(line)["missing"] == f"it is an error result: {evil}"


def test_a_name_that_would_write_on_a_terminal_is_refused(world: OutputsWorld) -> None:
    refused = world.run("submit", "--output", "a\x1b]0;owned\x07b", "--", "x", code=2)

    assert "no control characters" in refused.stderr
    assert "\x1b" not in refused.stderr


def test_json_is_one_object_a_line(world: OutputsWorld) -> None:
    world.promise("a.txt", "b.txt")
    world.leave("a.txt")
    world.done()
    world.validated(code=1)

    there, lacking = map(json.loads, world.run("outputs", "--json", "j").stdout.splitlines())

    assert (there["name"], there["state"], there["size"]) == ("a.txt", "reused", 1)
    assert there["path"] == str(world.folder / "a.txt")
    assert (lacking["state"], lacking["missing"], lacking["size"]) == ("missing", "not there", None)


def test_jobs_without_named_outputs_say_so(world: OutputsWorld) -> None:
    world.submit("--job-id", "none")
    request = Request(spec=Spec(promised_outputs=5), job_id="own")
    world.registry(lambda registry: registry.enqueue(request, actor="user:a"))

    assert "promises no outputs" in world.run("outputs", "none").stderr
    assert "5 outputs promised, which only your own validator" in world.run("outputs", "own").stderr


def test_outputs_are_not_promised_by_accident(world: OutputsWorld) -> None:
    wrong = world.run("submit", "--outputs", "results/a.txt", "--", "x", code=2)
    lonely = world.run("submit", "--reuse", "--", "x", code=2)
    twice = world.run("submit", "--output", "a", "--output", "a", "--", "x", code=2)
    nowhere = ("--store", "postgresql://127.0.0.1:1/none")
    file = str(world.manifest(epidemic()))
    kept = world.run("submit", *nowhere, "--manifest", file, "--", "x", code=2)

    assert "To promise 'results/a.txt': --output" in wrong.stderr
    assert "--reuse is for what --output names" in lonely.stderr
    assert "promised twice" in twice.stderr
    assert "name it with --outputs" in kept.stderr


def test_plain_outputs_are_reused_only_when_asked_for(world: OutputsWorld) -> None:
    world.leave("a.txt")
    promised = ("--cwd", str(world.folder), "--output", "a.txt")

    fresh = world.submit(*promised)
    made = world.run("submit", *promised, "--reuse", "--", "x")
    lacking = world.submit(*promised, "--output", "b.txt", "--reuse")

    assert world.get(fresh).state is world.get(lacking).state is State.QUEUED
    cached = world.get(made.stdout.strip())
    assert cached.job_id.startswith("cached-")
    assert cached.state is State.SUCCEEDED
    assert made.stderr == "Its output is there already: nothing was run.\n"


def test_whoever_waits_for_a_job_hears_what_it_lacks(world: OutputsWorld) -> None:
    promised = ("--cwd", str(world.folder), "--output", "a.txt", "--output", "b.txt")
    waiting = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "submit", "--wait", *promised, "--", "touch", "a.txt"],
        env=world.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not world.file.exists() or not world.run("list", "-s", "queued").stdout:
        time.sleep(0.1)
    worker = world.process("worker", "--drain")
    _, told = waiting.communicate(timeout=60)

    assert waiting.returncode == 1, worker.stderr
    assert told == "partial_success: 1 of 2 outputs verified, 1 missing: b.txt.\n"


def test_the_events_of_a_verdict_say_what_it_rests_on(world: OutputsWorld) -> None:
    world.promise("a.txt", "b.txt", "c.txt")
    world.done("j", "a.txt")
    world.validated(code=1)

    assert ", 1 verified, 2 missing" in world.run("events", "j").stdout.splitlines()[-1]


def test_a_workers_own_event_may_be_about_anything_found(world: OutputsWorld) -> None:
    job_id = world.submit()
    about = {"found": {"verified": "gold"}}
    said = replace(output(1, b""), event_type=WorkerEventType.CUSTOM, data=None, attributes=about)
    world.finish(job_id, None, replace(said, stream=None))

    assert '{"found":{"verified":"gold"}}' in world.run("events", job_id).stdout


def test_the_outputs_of_a_job_that_failed_are_looked_for_when_they_are_listed(
    world: OutputsWorld,
) -> None:
    world.promise("a.txt", "b.txt")
    world.leave("a.txt")
    world.failed()

    listed = world.run("outputs", "j")

    assert [line[:2] for line in table(listed.stdout)] == [
        ["a.txt", "reused"],
        ["b.txt", "missing"],
    ]
    assert listed.stderr == "1 of 2 outputs verified (1 reused), 1 missing.\n"
    assert world.get("j").state is State.FAILED


def test_where_a_failed_job_ran_may_be_unknown(world: OutputsWorld) -> None:
    world.promise("a.txt")
    world.finish("j", failure())

    listed = world.run("outputs", "j")
    forced = world.run("validate", "--force", "j", code=75)

    assert table(listed.stdout) == [["a.txt", "promised", "-", "-", "-"]]
    assert listed.stderr.startswith("Nobody has seen them yet: Nobody said on which machine")
    assert "They could not be seen just now: Nobody said on which machine" in forced.stderr
    assert "could not be seen: Nobody said" in world.run("why", "j").stdout
    refused = world.run("resume", "j", code=75)
    assert "it is not known which of its outputs are there: Nobody said" in refused.stderr
