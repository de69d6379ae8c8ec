"""submit, status, list, logs, events, why: asking for work and seeing what came of it."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from cli_world import CliWorld, failure, output
from msgspec import Raw

from holdfast.core.command import decode_command
from holdfast.core.lifecycle import HandoffStep
from holdfast.core.retry import COMMAND_RETRY
from holdfast.core.spec import JOB_V1_KIND, Spec
from holdfast.core.state import State
from holdfast.ports import Registry, Request


@pytest.fixture
def world(tmp_path: Path) -> CliWorld:
    return CliWorld(tmp_path)


def test_submit_prints_the_id_alone_and_queues_the_command(world: CliWorld) -> None:
    result = world.run("submit", "--", "echo", "-n", "a b")

    job = world.registry(lambda registry: registry.get(result.stdout.strip()))
    command = decode_command(job.spec.payload)
    assert result.stdout == f"{job.job_id}\n"
    assert result.stderr == ""
    assert (job.state, job.spec.kind, job.spec.queue) == (State.QUEUED, "command", "default")
    assert (command.argv, command.cwd) == (("echo", "-n", "a b"), str(Path.cwd()))
    assert job.spec.retry == COMMAND_RETRY


def test_submit_takes_every_option(world: CliWorld, tmp_path: Path) -> None:
    options = "-q gpu --name n --max-failures 3 --max-crashes 2 --timeout 5m --lock l --region eu"
    more = "--job-id j1 --delay 1h --priority 2 --ttl 2d --lease 30s --env A=1 --secret KEY"
    rest = f"--cwd {tmp_path} --label k=v --on-exhausted dead_letter --correlation-id c1"
    world.run("submit", *options.split(), *more.split(), *rest.split(), "--", "x")

    job = world.registry(lambda registry: registry.get("j1"))
    spec, command = job.spec, decode_command(job.spec.payload)
    assert (spec.queue, spec.name, spec.lock, spec.region, spec.priority) == (
        "gpu",
        "n",
        "l",
        "eu",
        2,
    )
    assert (spec.timeout, spec.lease) == (timedelta(minutes=5), timedelta(seconds=30))
    assert (spec.delay, spec.ttl) == (timedelta(hours=1), timedelta(days=2))
    assert (spec.retry.max_failures, spec.retry.max_crashes) == (3, 2)
    assert (spec.retry.on_exhausted, spec.labels) == ("dead_letter", {"k": "v"})
    assert (command.env, command.secrets, command.cwd) == ({"A": "1"}, ("KEY",), str(tmp_path))
    assert job.correlation_id == "c1"


def test_the_same_request_gives_the_same_job(world: CliWorld) -> None:
    first = world.submit("--request-id", "r1")

    assert world.submit("--request-id", "r1") == first


def test_the_same_request_id_for_another_command_is_refused(world: CliWorld) -> None:
    world.submit("--request-id", "r1")

    assert (
        "different request"
        in world.run("submit", "--request-id", "r1", "--", "other", code=4).stderr
    )


def test_submit_with_a_time_waits_for_it(world: CliWorld) -> None:
    job_id = world.submit("--at", "2999-01-01T00:00Z")

    assert "waits until 2999-01-01" in world.run("why", job_id).stdout


@pytest.mark.parametrize(
    "wrong",
    [
        ["submit"],
        ["submit", "--timeout", "soon", "--", "x"],
        ["submit", "--env", "A", "--", "x"],
        ["submit", "--priority", "10", "--", "x"],
        ["submit", "--queue", "a b", "--", "x"],
        ["submit", "--env", "A=1", "--secret", "A", "--", "x"],
        ["submit", "--store", "memory://", "--", "x"],
        ["submit", "--store", "nothing", "--", "x"],
        ["list", "--state", "unknown"],
        ["list", "--limit", "0"],
        ["nothing"],
    ],
)
def test_wrong_usage_exits_with_2_and_one_clear_message(world: CliWorld, wrong: list[str]) -> None:
    result = world.run(*wrong, code=2)

    assert result.stdout == ""
    assert result.stderr.count("Error: ") == 1
    assert "Traceback" not in result.stderr


def test_a_wrong_word_gets_a_suggestion(world: CliWorld) -> None:
    assert "'status'" in world.run("statsu", code=2).stderr
    assert "--queue" in world.run("submit", "--quue", "x", code=2).stderr


def test_what_is_not_there_exits_with_3_and_says_what_to_do(world: CliWorld) -> None:
    result = world.run("list", code=3)
    assert str(world.file) in result.stderr
    assert "holdfast submit" in result.stderr
    assert not world.file.exists()

    world.submit()
    for words in (
        ["status", "x"],
        ["logs", "x"],
        ["logs", "-f", "x"],
        ["events", "x"],
        ["why", "x"],
    ):
        result = world.run(*words, code=3)
        assert result.stderr == (
            f"Error: There is no job x.\nCheck the id: holdfast list shows the jobs in {world.url}.\n"
        )


def test_status_shows_a_running_job(world: CliWorld) -> None:
    job_id = world.submit("--label", "team=a", "--lock", "gpu0")
    world.claim(job_id, owner="host-1")

    shown = dict(line.split(maxsplit=1) for line in world.run("status", job_id).stdout.splitlines())
    assert shown["Job"] == job_id
    assert shown["State"] == "assigned, attempt 1"
    assert (shown["Owner"], shown["Token"], shown["Lock"]) == ("host-1", "1", "gpu0")
    assert shown["Lease"].startswith("ends in ")
    assert shown["Budget"] == "0 of 1 failures, 0 of 5 crashes; then fail"
    assert shown["Labels"] == "team=a"
    assert "host-1 has claimed it" in shown["Why"]


def test_status_shows_the_executor_of_a_job_and_its_handle_there(world: CliWorld) -> None:
    async def handed_over(registry: Registry) -> None:
        request = Request(spec=Spec(executor="kubernetes"), job_id="far", register=True)
        handle = {"pod": "far-7", "namespace": "jobs"}
        await registry.enqueue(request, actor="user:ana")
        await registry.handoff("far", HandoffStep.BEGIN, actor="user:ana")
        await registry.handoff("far", HandoffStep.DONE, actor="user:ana", handle=handle)

    world.registry(handed_over)

    lines = world.run("status", "far").stdout.splitlines()
    document = json.loads(world.run("status", "--json", "far").stdout)
    assert "Executor  kubernetes" in lines
    assert "Handle    namespace=jobs, pod=far-7" in lines
    assert (document["spec"]["executor"], document["handle"]["pod"]) == ("kubernetes", "far-7")


def test_status_shows_how_a_job_ended_and_what_became_of_it(world: CliWorld) -> None:
    job_id = world.submit()
    world.finish(job_id, failure())
    new = world.run("retry", job_id).stdout.strip()

    shown = world.run("status", job_id).stdout
    assert "failed, attempt 1" in shown
    assert "Exit code    3\n" in shown
    assert "Error        ExitCode: exit code 3\n" in shown
    assert f"Replayed as  {new}\n" in shown
    assert f"Replay of  {job_id}\n" in world.run("status", new).stdout


def test_status_as_json_has_every_field(world: CliWorld) -> None:
    job_id = world.submit("--name", "\u009b2J\u202e")
    grant = world.claim(job_id)

    text = world.run("status", "--json", job_id).stdout
    document = json.loads(text)
    derived = {"owner", "due_at", "cost_seconds", "cost_dollars"}
    assert document.keys() == {*grant.job.__struct_fields__, *derived}
    assert (document["state"], document["owner"]) == ("assigned", "w1")
    assert document["spec"]["payload"]["argv"] == ["echo", "hello"]
    assert document["spec"]["name"] == "\u009b2J\u202e"
    assert "\u009b" not in text


def test_status_watch_ends_with_the_job_and_exits_as_it_did(world: CliWorld) -> None:
    job_id = world.submit()
    world.finish(job_id, failure())

    lines = world.run("status", "--watch", job_id, code=3).stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["queued", "assigned", "running", "failed"]
    [document] = world.run("status", "--watch", "--json", job_id, code=3).stdout.splitlines()
    assert json.loads(document)["state"] == "failed"


def test_list_pages_filter_and_join_up(world: CliWorld) -> None:
    ids = [world.submit("-q", queue) for queue in ("a", "b", "a", "a")]
    world.finish(ids[3])

    first = world.run("list", "--oldest", "-q", "a", "--limit", "2")
    cursor = first.stderr.split("--after ")[1].strip()
    second = world.run("list", "--oldest", "-q", "a", "--limit", "2", "--after", cursor)
    assert [line.split()[0] for line in first.stdout.splitlines()] == ["JOB", ids[0], ids[2]]
    assert [line.split()[0] for line in second.stdout.splitlines()] == ["JOB", ids[3]]
    assert second.stderr == ""
    assert len(world.run("list", "--all").stdout.splitlines()) == 5


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--state", "active"], "ab"),
        (["--state", "ended"], "c"),
        (["--state", "queued", "--state", "ended"], "ac"),
        (["--owner", "w9"], "b"),
        (["--label", "k=v"], "a"),
        (["--kind", "command"], "abc"),
        (["--kind", "other"], ""),
    ],
)
def test_list_filters(world: CliWorld, options: list[str], found: str) -> None:
    for name, labels in (("a", ["--label", "k=v"]), ("b", []), ("c", [])):
        world.submit("--job-id", name, *labels)
    world.claim("b", owner="w9")
    world.finish("c")

    document = json.loads(world.run("list", "--oldest", "--json", *options).stdout)
    assert "".join(job["job_id"] for job in document["jobs"]) == found
    assert document["next"] is None


def test_the_command_of_a_job_for_workers_of_job_v1_is_shown(world: CliWorld) -> None:
    payload = Raw(b'{"command":"make","args":["test all"],"gitClone":{"enabled":true}}')
    asked = Request(spec=Spec(kind=JOB_V1_KIND, payload=payload), job_id="cloned")
    world.registry(lambda registry: registry.enqueue(asked, actor="user:ana"))

    assert "make 'test all'" in world.run("list").stdout
    assert "make 'test all'" in world.run("status", "cloned").stdout


def test_list_as_json_carries_the_cursor_or_everything(world: CliWorld) -> None:
    for n in range(3):
        world.submit("--job-id", f"j{n}")

    page = json.loads(world.run("list", "--oldest", "--json", "--limit", "2").stdout)
    rest = json.loads(world.run("list", "--oldest", "--json", "--after", page["next"]).stdout)
    whole = json.loads(world.run("list", "--oldest", "--json", "--all").stdout)
    assert [job["job_id"] for job in page["jobs"] + rest["jobs"]] == ["j0", "j1", "j2"]
    assert (rest["next"], len(whole["jobs"])) == (None, 3)


def test_an_empty_list_says_what_to_do(world: CliWorld) -> None:
    world.submit("--job-id", "old")
    world.finish("old")
    world.run("prune", "--older-than", "0s", "--yes")

    assert "holdfast submit -- echo hello" in world.run("list").stderr
    assert "No job matches" in world.run("list", "-q", "x").stderr


def test_a_table_holds_no_control_characters_of_a_job(world: CliWorld) -> None:
    world.submit("--name", "evil\x1b]0;t\x07\nname\x1b[31m", "--job-id", "j")

    lines = world.run("list").stdout.splitlines()
    assert len(lines) == 2
    assert "evil name" in lines[1]


def test_logs_keep_the_streams_apart_and_the_bytes_exact(world: CliWorld) -> None:
    job_id = world.submit()
    hostile = b"\x1b]0;t\x07\x00\xff\r\n"
    world.finish(
        job_id, None, output(1, hostile), output(2, b"oops\n", "stderr"), output(3, b"end")
    )

    result = world.run("logs", job_id)
    assert result.stdout_bytes == hostile + b"end"
    assert result.stderr_bytes == b"oops\n"
    assert world.run("logs", "--stream", "stderr", job_id).stdout_bytes == b""
    assert world.run("logs", "--attempt", "2", job_id).stdout_bytes == b""


def test_logs_stamp_each_line_once(world: CliWorld) -> None:
    job_id = world.submit()
    world.finish(job_id, None, output(1, b"a\nb"), output(2, b"c\n"), output(3, b"\nd"))

    assert world.run("logs", "-t", job_id).stdout == (
        "2026-01-01T12:00:01.000Z a\n"
        "2026-01-01T12:00:01.000Z bc\n"
        "2026-01-01T12:00:03.000Z \n"
        "2026-01-01T12:00:03.000Z d"
    )


def test_logs_of_many_events_come_in_order(world: CliWorld) -> None:
    job_id = world.submit()
    world.finish(job_id, None, *(output(n, f"{n}\n".encode()) for n in range(1, 201)))

    for options in ([], ["-f"]):
        lines = world.run("logs", *options, job_id).stdout.split()
        assert lines == [str(n) for n in range(1, 201)]


def test_following_exits_as_the_job_did(world: CliWorld) -> None:
    job_id = world.submit("--request-id", "r")
    world.finish(job_id, failure(), output(1, b"out\n"), output(2, b"err\n", "stderr"))

    assert world.run("logs", job_id).exit_code == 0
    for words in (
        ["logs", "-f", job_id],
        ["submit", "--request-id", "r", "--wait", "--", "echo", "hello"],
    ):
        result = world.run(*words, code=3)
        assert (result.stdout, result.stderr) == ("out\n", "err\n")


def test_events_of_a_job_and_of_all(world: CliWorld) -> None:
    one, two = world.submit(), world.submit()
    world.finish(one, None, output(1, b"x"))

    lines = world.run("events", one).stdout.splitlines()
    assert [line.split()[1:3] for line in lines] == [
        ["#1", "job_queued"],
        ["#2", "job_claimed"],
        ["#3", "job_started"],
        ["1.1", "output"],
        ["#4", "job_succeeded"],
    ]
    feed = world.run("events")
    assert [line.split()[1] for line in feed.stdout.splitlines()] == [one, two, one, one, one, one]
    cursor = feed.stderr.split("--after ")[1].strip()
    assert world.run("events", "--after", cursor).stdout == ""
    assert world.run("events", "--follow", one).stdout.splitlines() == lines


def test_events_as_json_are_one_object_a_line(world: CliWorld) -> None:
    job_id = world.submit()
    world.finish(job_id, None, output(1, b"\xff\x00"))

    events = [
        json.loads(line) for line in world.run("events", "--json", job_id).stdout.splitlines()
    ]
    assert [event["event_id"] for event in events[:2]] == [f"{job_id}/1", f"{job_id}/2"]
    assert [event["data"] for event in events if event["event_type"] == "output"] == ["/wA="]


def test_why_says_it_in_a_sentence(world: CliWorld) -> None:
    job_id = world.submit("-q", "gpu")

    assert "waits for a worker on queue gpu" in world.run("why", job_id).stdout


def test_list_shows_the_newest_first_unless_asked(world: CliWorld) -> None:
    made = [world.submit("--job-id", f"job-{n}") for n in range(3)]

    newest = json.loads(world.run("list", "--json").stdout)
    pages = [json.loads(world.run("list", "--json", "--limit", "2").stdout)]
    pages.append(json.loads(world.run("list", "--json", "--after", pages[0]["next"]).stdout))

    assert [job["job_id"] for job in newest["jobs"]] == made[::-1]
    assert [job["job_id"] for page in pages for job in page["jobs"]] == made[::-1]


@pytest.mark.parametrize("command", ["list", "events", "dead-letters"])
def test_a_malformed_cursor_is_a_wrong_use(world: CliWorld, command: str) -> None:
    words = [command, "list"] if command == "dead-letters" else [command]
    world.run("submit", "--", "true")

    told = world.run(*words, "--after", "no/cursor", code=2)

    assert "is not a cursor" in told.stderr
