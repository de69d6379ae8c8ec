"""`submit --output`, `outputs`, `validate`: a job has succeeded when its promised outputs are there."""

import json
import shutil
import subprocess
import sys
import time

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.outputs import File
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest
from holdfast.system import machine_name
from tests.cli.command_line import failure, output
from tests.cli.outputs_command_line import OutputsCommandLine, epidemic, table


def test_submit_promises_what_output_names(outputs_cli: OutputsCommandLine) -> None:
    job_id = outputs_cli.promise("a.txt", "r/*.csv:4", "m.pt,size=2kB")

    spec = outputs_cli.get(job_id).spec
    assert spec.outputs is not None
    assert spec.outputs.files == (
        File("a.txt"),
        File("r/*.csv", count=4),
        File("m.pt", size=2000),
    )
    assert spec.promised_outputs == 3
    assert json.loads(outputs_cli.run("status", "--json", job_id).stdout)["spec"]["outputs"]["files"][1] == {
        "path": "r/*.csv",
        "count": 4,
        "size": None,
        "sha256": None,
    }
    assert not outputs_cli.beside.exists()


def test_a_job_whose_outputs_are_all_there_succeeds(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt", "*.csv:2")
    outputs_cli.done("j", "a.txt", "1.csv", "2.csv")

    assert outputs_cli.validated() == "succeeded: 2 of 2 outputs verified.\n"

    assert outputs_cli.get("j").state is State.SUCCEEDED
    shown = outputs_cli.run("outputs", "j")
    assert table(shown.stdout) == [
        ["a.txt", "there", "1", "2d711642b726", "-"],
        ["*.csv", "there", "2", "-", "-"],
    ]
    assert shown.stderr == "2 of 2 outputs verified.\n"
    assert "all 2 outputs are there" in outputs_cli.run("why", "j").stdout


def test_a_job_with_some_of_its_outputs_is_a_partial_success(
    outputs_cli: OutputsCommandLine,
) -> None:
    outputs_cli.promise("a.txt", "b.txt", "*.csv:2")
    outputs_cli.leave("a.txt", "1.csv")
    outputs_cli.done()

    verdict = outputs_cli.validated(code=1)

    found = "1 of 3 outputs verified (1 reused), 2 missing"
    assert verdict == f"partial_success: {found}: b.txt, *.csv.\n"
    shown = outputs_cli.run("outputs", "--missing", "j")
    assert table(shown.stdout) == [
        ["b.txt", "missing", "-", "-", "not there"],
        ["*.csv", "missing", "1", "-", "1 file matches, not 2"],
    ]
    assert shown.stderr == f"{found}.\n"
    status = dict(line.split(maxsplit=1) for line in outputs_cli.run("status", "j").stdout.splitlines())
    assert (status["Outputs"], status["Missing"]) == (found, "b.txt, *.csv")
    assert status["Validation"] == "next validation in 5 min"
    assert found in outputs_cli.run("list").stdout
    assert "holdfast resume j" in outputs_cli.run("why", "j").stdout


def test_a_job_that_left_nothing_has_failed(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt")
    outputs_cli.done()

    assert outputs_cli.validated(code=1) == "failed: No promised output was found.\n"

    job = json.loads(outputs_cli.run("status", "--json", "j").stdout)
    assert job["error"]["code"] == "NO_OUTPUTS"
    assert job["found"]["missing"] == 1


def test_outputs_that_cannot_be_seen_say_why_and_when_again(
    outputs_cli: OutputsCommandLine,
) -> None:
    outputs_cli.promise("a.txt")
    outputs_cli.done()
    shutil.rmtree(outputs_cli.folder)

    told = outputs_cli.run("validate", "--force", "j", code=75)

    assert told.stdout == ""
    assert f"The folder {outputs_cli.folder}, in which it ran, is not there" in told.stderr
    assert f"Any worker or server on {machine_name()} validates them again in " in told.stderr
    job = json.loads(outputs_cli.run("status", "--json", "j").stdout)
    assert (job["state"], job["check"]["tries"]) == ("validating", 1)
    assert "is not there: is it mounted?" in outputs_cli.run("list").stdout
    assert "could not be seen, tried once" in outputs_cli.run("status", "j").stdout
    listed = outputs_cli.run("outputs", "j")
    assert table(listed.stdout) == [["a.txt", "promised", "-", "-", "-"]]
    assert listed.stderr == "Not validated yet. Validate now: holdfast validate j\n"


def test_a_partial_success_that_cannot_be_seen_again_stays_one(
    outputs_cli: OutputsCommandLine,
) -> None:
    outputs_cli.promise("a.txt", "b.txt")
    outputs_cli.leave("a.txt")
    outputs_cli.done()
    outputs_cli.validated(code=1)
    shutil.rmtree(outputs_cli.folder)

    told = outputs_cli.run("validate", "--force", "j", code=75)

    assert told.stdout.startswith("partial_success: 1 of 2 outputs verified")
    assert "They could not be seen just now: The folder" in told.stderr


def test_what_is_not_due_is_left_alone_unless_forced(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt", "b.txt")
    outputs_cli.leave("a.txt")
    outputs_cli.done()

    early = outputs_cli.run("validate", "j", code=75)
    outputs_cli.validated(code=1)
    outputs_cli.leave("b.txt")
    later = outputs_cli.run("validate", "j", code=1)

    assert "have not been validated yet" in early.stderr
    assert later.stdout.startswith("partial_success: 1 of 2")
    assert "not due" in later.stderr
    assert outputs_cli.validated().startswith("succeeded: 2 of 2 outputs verified")
    assert outputs_cli.validated().startswith("succeeded: 2 of 2 outputs verified")


def test_outputs_are_looked_for_when_the_work_is_done(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt")
    outputs_cli.leave("a.txt")

    refused = outputs_cli.run("validate", "--force", "j", code=4)

    assert "Error: Job j is queued: its work is not done." in refused.stderr
    assert "when the work is done" in outputs_cli.run("outputs", "j").stderr


def test_an_operator_may_give_the_verdict_with_a_reason(outputs_cli: OutputsCommandLine) -> None:
    for job_id in ("good", "bad"):
        outputs_cli.promise("a.txt", job_id=job_id)
        outputs_cli.done(job_id)

    said = outputs_cli.run("validate", "good", "--override", "succeeded", "--reason", "I saw \x1b[2Jthem")
    outputs_cli.run("validate", "bad", "--override", "failed", "--reason", "lost", code=1)

    assert said.stdout.startswith("succeeded: overridden by user:")
    last = outputs_cli.registry(lambda registry: registry.history("good"))[-1]
    assert (last.actor or "").startswith("user:")
    assert last.reason == "I saw \x1b[2Jthem"
    assert "by an override: I saw them." in outputs_cli.run("why", "good").stdout
    assert outputs_cli.get("bad").state is State.FAILED


def test_an_override_that_cannot_be_says_what_is(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt", "b.txt")
    reason = ("--reason", "because")
    queued = outputs_cli.run("validate", "j", "--override", "succeeded", *reason, code=4)
    outputs_cli.leave("a.txt")
    outputs_cli.done()
    outputs_cli.validated(code=1)
    worse = outputs_cli.run("validate", "j", "--override", "failed", *reason, code=4)

    assert "Job is queued: there are no outputs to validate." in queued.stderr
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
def test_wrong_uses_of_validate_are_told(
    outputs_cli: OutputsCommandLine, words: list[str], told: str
) -> None:
    outputs_cli.promise("a.txt")

    assert told in outputs_cli.run("validate", "j", *words, code=2).stderr


def test_words_from_outside_do_nothing_to_a_terminal(outputs_cli: OutputsCommandLine) -> None:
    evil = "a\x1b]0;owned\x07\u202eb"
    tasks = epidemic()
    outputs_cli.save(tasks[5:6], error=evil)
    outputs_cli.partial(tasks, saved=5)

    shown = outputs_cli.run("outputs", "j").stdout
    line = outputs_cli.run("outputs", "--missing", "--json", "j").stdout.splitlines()[0]

    for text in (shown, line):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert json.loads(line)["missing"] == f"it is an error result: {evil}"


def test_a_name_that_would_write_on_a_terminal_is_refused(outputs_cli: OutputsCommandLine) -> None:
    refused = outputs_cli.run("submit", "--output", "a\x1b]0;owned\x07b", "--", "x", code=2)

    assert "no control characters" in refused.stderr
    assert "\x1b" not in refused.stderr


def test_json_is_one_object_a_line(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt", "b.txt")
    outputs_cli.leave("a.txt")
    outputs_cli.done()
    outputs_cli.validated(code=1)

    there, lacking = map(json.loads, outputs_cli.run("outputs", "--json", "j").stdout.splitlines())

    assert (there["name"], there["state"], there["size"]) == ("a.txt", "reused", 1)
    assert there["path"] == str(outputs_cli.folder / "a.txt")
    assert (lacking["state"], lacking["missing"], lacking["size"]) == ("missing", "not there", None)


def test_jobs_without_named_outputs_say_so(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.submit("--job-id", "none")
    request = JobRequest(spec=Spec(promised_outputs=5), job_id="own")
    outputs_cli.registry(lambda registry: registry.enqueue(request, actor="user:a"))

    assert "promises no outputs" in outputs_cli.run("outputs", "none").stderr
    assert "5 outputs promised, which only your own validator" in outputs_cli.run("outputs", "own").stderr


def test_outputs_are_not_promised_by_accident(outputs_cli: OutputsCommandLine) -> None:
    wrong = outputs_cli.run("submit", "--outputs", "results/a.txt", "--", "x", code=2)
    lonely = outputs_cli.run("submit", "--reuse", "--", "x", code=2)
    twice = outputs_cli.run("submit", "--output", "a", "--output", "a", "--", "x", code=2)
    nowhere = ("--store", "postgresql://127.0.0.1:1/none")
    file = str(outputs_cli.manifest(epidemic()))
    kept = outputs_cli.run("submit", *nowhere, "--manifest", file, "--", "x", code=2)

    assert "To promise 'results/a.txt': --output" in wrong.stderr
    assert "--reuse is for what --output names" in lonely.stderr
    assert "promised twice" in twice.stderr
    assert "name it with --outputs" in kept.stderr


def test_plain_outputs_are_reused_only_when_asked_for(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.leave("a.txt")
    promised = ("--cwd", str(outputs_cli.folder), "--output", "a.txt")

    fresh = outputs_cli.submit(*promised)
    made = outputs_cli.run("submit", *promised, "--reuse", "--", "x")
    lacking = outputs_cli.submit(*promised, "--output", "b.txt", "--reuse")

    assert outputs_cli.get(fresh).state is outputs_cli.get(lacking).state is State.QUEUED
    cached = outputs_cli.get(made.stdout.strip())
    assert cached.job_id.startswith("cached-")
    assert cached.state is State.SUCCEEDED
    assert made.stderr == "Its output is there already: nothing was run.\n"


def test_whoever_waits_for_a_job_hears_what_it_lacks(outputs_cli: OutputsCommandLine) -> None:
    promised = ("--cwd", str(outputs_cli.folder), "--output", "a.txt", "--output", "b.txt")
    waiting = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "submit", "--wait", *promised, "--", "touch", "a.txt"],
        env=outputs_cli.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not outputs_cli.file.exists() or not outputs_cli.run("list", "-s", "queued").stdout:
        time.sleep(0.1)
    worker = outputs_cli.process("worker", "--drain")
    _, told = waiting.communicate(timeout=120)

    assert waiting.returncode == 1, worker.stderr
    assert told == "partial_success: 1 of 2 outputs verified, 1 missing: b.txt.\n"


def test_the_events_of_a_verdict_say_what_it_rests_on(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt", "b.txt", "c.txt")
    outputs_cli.done("j", "a.txt")
    outputs_cli.validated(code=1)

    assert ", 1 verified, 2 missing" in outputs_cli.run("events", "j").stdout.splitlines()[-1]


def test_a_workers_own_event_may_be_about_anything_found(outputs_cli: OutputsCommandLine) -> None:
    job_id = outputs_cli.submit()
    about = {"found": {"verified": "gold"}}
    said = replace(output(1, b""), event_type=WorkerEventType.CUSTOM, data=None, attributes=about)
    outputs_cli.finish(job_id, None, replace(said, stream=None))

    assert '{"found":{"verified":"gold"}}' in outputs_cli.run("events", job_id).stdout


def test_the_outputs_of_a_job_that_failed_are_looked_for_when_they_are_listed(
    outputs_cli: OutputsCommandLine,
) -> None:
    outputs_cli.promise("a.txt", "b.txt")
    outputs_cli.leave("a.txt")
    outputs_cli.failed()

    listed = outputs_cli.run("outputs", "j")

    assert [line[:2] for line in table(listed.stdout)] == [
        ["a.txt", "reused"],
        ["b.txt", "missing"],
    ]
    assert listed.stderr == "1 of 2 outputs verified (1 reused), 1 missing.\n"
    assert outputs_cli.get("j").state is State.FAILED


def test_where_a_failed_job_ran_may_be_unknown(outputs_cli: OutputsCommandLine) -> None:
    outputs_cli.promise("a.txt")
    outputs_cli.finish("j", failure())

    listed = outputs_cli.run("outputs", "j")
    forced = outputs_cli.run("validate", "--force", "j", code=75)

    assert table(listed.stdout) == [["a.txt", "promised", "-", "-", "-"]]
    assert listed.stderr.startswith("Not validated yet: It is not on record on which machine")
    assert "They could not be seen just now: It is not on record on which machine" in forced.stderr
    assert "could not be seen: It is not on record" in outputs_cli.run("why", "j").stdout
    refused = outputs_cli.run("resume", "j", code=75)
    assert "it is not known which of its outputs are there: It is not on record" in refused.stderr
