"""`holdfast logs`: the output of a job, stream by stream, complete or followed."""

import re

import pytest

from holdfast.core.lifecycle import Success
from holdfast.core.state import State
from holdfast.ports import Registry
from tests.cli.command_line import CommandLine, failure, on_a_terminal, output


def test_logs_keep_the_streams_apart_and_the_bytes_exact(cli: CommandLine) -> None:
    job_id = cli.submit()
    hostile = b"\x1b]0;t\x07\x00\xff\r\n"
    cli.finish(job_id, None, output(1, hostile), output(2, b"oops\n", "stderr"), output(3, b"end"))

    result = cli.run("logs", job_id)
    assert result.stdout_bytes == hostile + b"end"
    assert result.stderr_bytes == b"oops\n"
    assert cli.run("logs", "--stream", "stderr", job_id).stdout_bytes == b""
    assert cli.run("logs", "--attempt", "2", job_id).stdout_bytes == b""


def test_logs_stamp_each_line_once(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.finish(job_id, None, output(1, b"a\nb"), output(2, b"c\n"), output(3, b"\nd"))

    assert cli.run("logs", "-t", job_id).stdout == (
        "2026-01-01T12:00:01.000Z a\n"
        "2026-01-01T12:00:01.000Z bc\n"
        "2026-01-01T12:00:03.000Z \n"
        "2026-01-01T12:00:03.000Z d"
    )


def test_logs_of_many_events_come_in_order(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.finish(job_id, None, *(output(n, f"{n}\n".encode()) for n in range(1, 201)))

    for options in ([], ["-f"]):
        lines = cli.run("logs", *options, job_id).stdout.split()
        assert lines == [str(n) for n in range(1, 201)]


def test_following_exits_as_the_job_did(cli: CommandLine) -> None:
    job_id = cli.submit("--request-id", "r")
    cli.finish(job_id, failure(), output(1, b"out\n"), output(2, b"err\n", "stderr"))

    assert cli.run("logs", job_id).exit_code == 0
    followed = cli.run("logs", "-f", job_id, code=3)
    again = cli.run("submit", "--request-id", "r", "--wait", "--", "echo", "hello", code=3)

    assert (followed.stdout, followed.stderr) == ("out\n", "err\n")
    assert again.stdout == "out\n"
    assert again.stderr.endswith(" Nothing was submitted.\nerr\n")


@pytest.fixture
def tried_twice(cli: CommandLine) -> str:
    """A job whose first attempt wrote two lines and a half, and whose second wrote two."""
    job_id = cli.submit("--max-failures", "2")
    cli.finish(job_id, failure(), output(1, b"one\ntwo\nth"))
    cli.registry(lambda registry: _ready(registry, job_id))
    cli.finish(job_id, Success(result={"exit_code": 0}), output(1, b"four\n"), output(2, b"five\n"))
    return job_id


async def _ready(registry: Registry, job_id: str) -> None:
    """Wait until the job may be claimed again."""
    while (job := await registry.status(job_id)).ready_at > await registry.now():
        await registry.changes(since=registry.change_mark(), timeout=0.05)
    assert job.state is State.QUEUED


def test_a_seam_on_stderr_says_where_the_next_attempt_begins(cli: CommandLine, tried_twice: str) -> None:
    piped = cli.run("logs", tried_twice)
    _, shown = on_a_terminal(cli, "logs", tried_twice)

    assert piped.stdout == "one\ntwo\nthfour\nfive\n"
    assert re.fullmatch(r"── attempt 2 of 2, worker w1, \d\d:\d\d:\d\d UTC ──\n", piped.stderr)
    lines = shown.replace("\r", "").splitlines()
    assert lines[2] == "th"
    assert lines[3].startswith("── attempt 2 of 2")
    assert lines[4:] == ["four", "five"]
    assert cli.run("logs", "--follow", tried_twice).stderr == piped.stderr


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--tail", "1"], "five\n"),
        (["-n", "2"], "four\nfive\n"),
        (["--tail", "0"], ""),
        (["--tail", "2", "--follow"], "four\nfive\n"),
        (["--attempt", "1"], "one\ntwo\nth"),
        (["--attempt", "1", "--tail", "2"], "two\nth"),
        (["--attempt", "2"], "four\nfive\n"),
        (["--since", "2026-01-01T12:00:02Z"], "five\n"),
        (["--since", "10m"], ""),
        (["--stream", "stderr", "--tail", "1"], ""),
    ],
)
def test_a_part_of_the_output_is_read(
    cli: CommandLine, tried_twice: str, options: list[str], left: str
) -> None:
    told = cli.run("logs", *options, tried_twice)

    assert told.stdout == left
    assert "never arrived" not in told.stderr


def test_the_last_lines_are_read_from_the_end(cli: CommandLine) -> None:
    """Of a long log, a few batches are read: counted, not timed."""
    job_id = cli.submit()
    many = [output(n, b"x" * 50_000 + b"\n") for n in range(1, 101)]
    cli.finish(job_id, None, *many, output(101, b"last\n"))

    async def events_read(registry: Registry) -> int:
        page = await registry.logs(job_id, tail=2)
        return len([event for event in page.events if event.data])

    assert cli.registry(events_read) == 2
    assert cli.run("logs", "--tail", "1", job_id).stdout == "last\n"
