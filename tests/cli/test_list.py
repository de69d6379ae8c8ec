"""`holdfast list`: pages, filters and tables of jobs."""

import json

import pytest
from msgspec import Raw

from holdfast.core.spec import JOB_V1_KIND, Spec
from holdfast.ports import JobRequest
from tests.cli.command_line import CommandLine


def test_list_pages_filter_and_join_up(cli: CommandLine) -> None:
    ids = [cli.submit("-q", queue) for queue in ("a", "b", "a", "a")]
    cli.finish(ids[3])

    first = cli.run("list", "--oldest", "-q", "a", "--limit", "2")
    cursor = first.stderr.split("--after ")[1].strip()
    second = cli.run("list", "--oldest", "-q", "a", "--limit", "2", "--after", cursor)
    assert [line.split()[0] for line in first.stdout.splitlines()] == ["JOB", ids[0], ids[2]]
    assert [line.split()[0] for line in second.stdout.splitlines()] == ["JOB", ids[3]]
    assert second.stderr == ""
    assert len(cli.run("list", "--all").stdout.splitlines()) == 5


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
def test_list_filters(cli: CommandLine, options: list[str], found: str) -> None:
    for name, labels in (("a", ["--label", "k=v"]), ("b", []), ("c", [])):
        cli.submit("--job-id", name, *labels)
    cli.claim("b", owner="w9")
    cli.finish("c")

    document = json.loads(cli.run("list", "--oldest", "--json", *options).stdout)
    assert "".join(job["job_id"] for job in document["jobs"]) == found
    assert document["next"] is None


def test_the_command_of_a_job_for_workers_of_job_v1_is_shown(cli: CommandLine) -> None:
    payload = Raw(b'{"command":"make","args":["test all"],"gitClone":{"enabled":true}}')
    asked = JobRequest(spec=Spec(kind=JOB_V1_KIND, payload=payload), job_id="cloned")
    cli.registry(lambda registry: registry.enqueue(asked, actor="user:ana"))

    assert "make 'test all'" in cli.run("list").stdout
    assert "make 'test all'" in cli.run("status", "cloned").stdout


def test_list_as_json_carries_the_cursor_or_everything(cli: CommandLine) -> None:
    for n in range(3):
        cli.submit("--job-id", f"j{n}")

    page = json.loads(cli.run("list", "--oldest", "--json", "--limit", "2").stdout)
    rest = json.loads(cli.run("list", "--oldest", "--json", "--after", page["next"]).stdout)
    whole = json.loads(cli.run("list", "--oldest", "--json", "--all").stdout)
    assert [job["job_id"] for job in page["jobs"] + rest["jobs"]] == ["j0", "j1", "j2"]
    assert (rest["next"], len(whole["jobs"])) == (None, 3)


def test_an_empty_list_says_what_to_do(cli: CommandLine) -> None:
    cli.submit("--job-id", "old")
    cli.finish("old")
    cli.run("prune", "--older-than", "0s", "--yes")

    assert "holdfast submit -- echo hello" in cli.run("list").stderr
    assert "No job matches" in cli.run("list", "-q", "x").stderr


def test_a_table_holds_no_control_characters_of_a_job(cli: CommandLine) -> None:
    cli.submit("--name", "evil\x1b]0;t\x07\nname\x1b[31m", "--job-id", "j")

    lines = cli.run("list").stdout.splitlines()
    assert len(lines) == 2
    assert "evil name" in lines[1]


def test_list_shows_the_newest_first_unless_asked(cli: CommandLine) -> None:
    made = [cli.submit("--job-id", f"job-{n}") for n in range(3)]

    newest = json.loads(cli.run("list", "--json").stdout)
    pages = [json.loads(cli.run("list", "--json", "--limit", "2").stdout)]
    pages.append(json.loads(cli.run("list", "--json", "--after", pages[0]["next"]).stdout))

    assert [job["job_id"] for job in newest["jobs"]] == made[::-1]
    assert [job["job_id"] for page in pages for job in page["jobs"]] == made[::-1]


@pytest.mark.parametrize("command", ["list", "events", "dead-letters"])
def test_a_malformed_cursor_is_a_wrong_use(cli: CommandLine, command: str) -> None:
    words = [command, "list"] if command == "dead-letters" else [command]
    cli.run("submit", "--", "true")

    told = cli.run(*words, "--after", "no/cursor", code=2)

    assert "is not a cursor" in told.stderr
