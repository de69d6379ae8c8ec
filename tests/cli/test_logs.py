"""`holdfast logs`: the output of a job, stream by stream, complete or followed."""

from tests.cli.command_line import CommandLine, failure, output


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
    for words in (
        ["logs", "-f", job_id],
        ["submit", "--request-id", "r", "--wait", "--", "echo", "hello"],
    ):
        result = cli.run(*words, code=3)
        assert (result.stdout, result.stderr) == ("out\n", "err\n")
