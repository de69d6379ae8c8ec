"""`holdfast status`: a job as people and programs see it, now and while it runs."""

import json

from holdfast.core.lifecycle import HandoffStep
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from tests.cli.command_line import CommandLine, failure


def test_what_is_not_there_exits_with_3_and_says_what_to_do(cli: CommandLine) -> None:
    result = cli.run("list", code=3)
    assert str(cli.file) in result.stderr
    assert "holdfast submit" in result.stderr
    assert not cli.file.exists()

    cli.submit()
    for words in (
        ["status", "x"],
        ["logs", "x"],
        ["logs", "-f", "x"],
        ["events", "x"],
        ["why", "x"],
    ):
        result = cli.run(*words, code=3)
        assert result.stderr == (
            f"Error: There is no job x.\nCheck the id: holdfast list shows the jobs in {cli.url}.\n"
        )


def test_status_shows_a_running_job(cli: CommandLine) -> None:
    job_id = cli.submit("--label", "team=a", "--lock", "gpu0")
    cli.claim(job_id, owner="host-1")

    shown = dict(line.split(maxsplit=1) for line in cli.run("status", job_id).stdout.splitlines())
    assert shown["Job"] == job_id
    assert shown["State"] == "assigned, attempt 1"
    assert (shown["Owner"], shown["Token"], shown["Lock"]) == ("host-1", "1", "gpu0")
    assert shown["Lease"].startswith("ends in ")
    assert shown["Budget"] == "0 of 1 failures, 0 of 5 crashes; then fail"
    assert shown["Labels"] == "team=a"
    assert "host-1 has claimed it" in shown["Why"]


def test_status_shows_the_executor_of_a_job_and_its_handle_there(cli: CommandLine) -> None:
    async def handed_over(registry: Registry) -> None:
        request = JobRequest(spec=Spec(executor="kubernetes"), job_id="far", register=True)
        handle = {"pod": "far-7", "namespace": "jobs"}
        await registry.enqueue(request, actor="user:ana")
        await registry.handoff("far", HandoffStep.BEGIN, actor="user:ana")
        await registry.handoff("far", HandoffStep.DONE, actor="user:ana", handle=handle)

    cli.registry(handed_over)

    lines = cli.run("status", "far").stdout.splitlines()
    document = json.loads(cli.run("status", "--json", "far").stdout)
    assert "Executor  kubernetes" in lines
    assert "Handle    namespace=jobs, pod=far-7" in lines
    assert (document["spec"]["executor"], document["handle"]["pod"]) == ("kubernetes", "far-7")


def test_status_shows_how_a_job_ended_and_what_became_of_it(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.finish(job_id, failure())
    new = cli.run("replay", job_id).stdout.strip()

    shown = cli.run("status", job_id).stdout
    assert "failed, attempt 1" in shown
    assert "Exit code    3\n" in shown
    assert "Error        ExitCode: exit code 3\n" in shown
    assert f"Replayed as  {new}\n" in shown
    assert f"Replay of  {job_id}\n" in cli.run("status", new).stdout


def test_status_as_json_has_every_field(cli: CommandLine) -> None:
    job_id = cli.submit("--name", "\u009b2J\u202e")
    grant = cli.claim(job_id)

    text = cli.run("status", "--json", job_id).stdout
    document = json.loads(text)
    derived = {"owner", "due_at", "cost_seconds", "cost_dollars"}
    assert document.keys() == {*grant.job.__struct_fields__, *derived}
    assert (document["state"], document["owner"]) == ("assigned", "w1")
    assert document["spec"]["payload"]["argv"] == ["echo", "hello"]
    assert document["spec"]["name"] == "\u009b2J\u202e"
    assert "\u009b" not in text


def test_status_watch_ends_with_the_job_and_exits_as_it_did(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.finish(job_id, failure())

    lines = cli.run("status", "--watch", job_id, code=3).stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["queued", "assigned", "running", "failed"]
    [document] = cli.run("status", "--watch", "--json", job_id, code=3).stdout.splitlines()
    assert json.loads(document)["state"] == "failed"


def test_a_job_took_as_long_as_its_own_work(cli: CommandLine) -> None:
    """Not from its first heartbeat on, and not until its end was stored."""
    job_id = cli.submit(command=("sleep", "0.4"))
    cli.run("worker", "--drain", "--name", "w1", "--spool", f"{cli.file}.spool")

    events = [json.loads(line) for line in cli.run("events", "--json", job_id).stdout.splitlines()]
    [process] = [event["attributes"]["seconds"] for event in events if event["event_type"] == "process_end"]
    [told] = [event["attributes"]["seconds"] for event in events if event["event_type"] == "job_succeeded"]
    assert 0.4 <= process <= told < process + 0.5
    assert f" after {told:.1f} s" in cli.run("status", job_id).stdout
