"""The JSON log of a worker: every job is in it, and no slow reader makes the worker wait."""

import asyncio
import io
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.cli import worker_log
from holdfast.cli.worker_log import JsonLog, StderrWriter
from holdfast.core.state import State
from holdfast.testing.fakes import ManualClock
from tests.cli.command_line import CommandLine
from tests.cli.worker_reports import HOSTILE, RecordedOutput, arguments, granted, make_app


def logged(work: Callable[[JsonLog], None], clock: ManualClock | None = None) -> RecordedOutput:
    out = RecordedOutput()

    async def main() -> None:
        work(JsonLog("w1", clock or ManualClock(), out))
        await asyncio.sleep(0)

    asyncio.run(main())
    return out


def test_as_json_every_job_is_logged_with_one_write_a_turn() -> None:
    def work(log: JsonLog) -> None:
        for number in range(100):
            grant = granted(f"job-{number}", correlation_id="order-1", trace_id="trace-1")
            log.started(grant)
            log.ended(replace(grant.job, state=State.SUCCEEDED), 0.25)

    out = logged(work)

    assert len(out.writes) == 1
    first, second = map(json.loads, out.writes[0].splitlines()[:2])
    common = {
        "time": "2026-01-01T00:00:00Z",
        "level": "info",
        "worker": "w1",
        "job_id": "job-0",
        "kind": "resize",
        "queue": "default",
        "attempt": 1,
        "fencing_token": 7,
        "correlation_id": "order-1",
        "trace_id": "trace-1",
    }
    assert first == {**common, "event": "job_started"}
    assert second == {**common, "event": "job_ended", "state": "succeeded", "seconds": 0.25}
    assert len(out.writes[0].splitlines()) == 200


def test_as_json_an_attempt_that_is_tried_again_is_logged_under_its_own_number() -> None:
    grant = granted("job-1", attempt=3)
    again = replace(grant.job, state=State.QUEUED, attempt=4, failures=1, reason="no pixels")

    [line] = logged(lambda log: log.ended(again, 1.0)).writes

    entry = json.loads(line)
    assert (entry["attempt"], entry["state"], entry["level"]) == (3, "queued", "warning")
    assert entry["reason"] == "no pixels"


def test_as_json_an_outage_is_one_line_every_few_seconds() -> None:
    clock = ManualClock()

    def work(log: JsonLog) -> None:
        for _ in range(20):
            log.trouble("the database is away")
            clock.advance(0.5)

    [text] = logged(work, clock).writes

    assert [json.loads(line).get("repeated") for line in text.splitlines()] == [None, 9]


def test_nothing_hostile_is_in_the_json_and_nothing_is_lost_from_it() -> None:
    grant = granted("job-1")
    failed = replace(grant.job, state=State.FAILED, reason=HOSTILE)

    [text] = logged(lambda log: log.ended(failed, 1.0)).writes

    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u202e]", text[:-1])
    assert json.loads(text)["reason"] == HOSTILE


@contextmanager
def piped() -> Generator[io.FileIO, None, None]:
    """Stderr as a pipe, whose other end this is. No fixture: pytest sets stderr after those."""
    out, into = os.pipe()
    with open(into, "w") as stream, io.FileIO(out) as end, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        yield end


def test_a_reader_that_does_not_read_makes_nobody_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_log, "CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(worker_log, "BACKLOG_BYTES_MAX", 200_000)
    line = "x" * 999 + "\n"

    with piped() as reader:
        out = StderrWriter()
        before = time.monotonic()
        for _ in range(1000):
            out.write(line)
        out.close()
        took = time.monotonic() - before
        os.set_blocking(reader.fileno(), False)  # it may have written its last when it is asked
        while out.writing:  # else it goes on, into whatever gets the number of this pipe next
            reader.read(100_000)
            time.sleep(0.001)

    assert took < 5
    assert 700 < out.missing < 1000


def test_a_reader_that_is_gone_is_no_error() -> None:
    with piped() as reader:
        reader.close()
        out = StderrWriter()
        out.write("anybody there?\n")
        out.close()

    assert out.missing == 0


def test_a_reader_that_reads_gets_every_line() -> None:
    with piped() as reader:
        out = StderrWriter()
        out.write("one\n")
        out.write("✔ two\n")
        out.close()

        assert reader.read(100) == "one\n✔ two\n".encode()


def test_a_worker_in_a_pipe_writes_few_plain_lines(cli: CommandLine, tmp_path: Path) -> None:
    make_app(cli, tmp_path, 500)

    done = cli.process(*arguments(tmp_path, "shop:app"))

    text = done.stderr.decode()
    lines = [line[9:] for line in text.splitlines()]
    assert done.returncode == 0, text
    assert lines[0].startswith("w1 runs shop:app from sqlite:///")
    assert lines[-1] == "w1 left; 500 jobs done, 1 failed."
    assert len(lines) < 30
    assert any("mail(to='ada') failed in" in line and "nobody is called ada" in line for line in lines)
    assert "\x1b" not in text


def test_a_worker_on_a_terminal_has_colours_unless_they_are_not_wanted(
    cli: CommandLine, tmp_path: Path
) -> None:
    for environment, coloured in (
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ):
        cli.submit(command=["true"])
        seen = _on_a_terminal(cli, arguments(tmp_path), environment)

        assert "true succeeded in" in seen
        assert ("\x1b[32m✔\x1b[0m" in seen) is coloured


def _on_a_terminal(cli: CommandLine, words: list[str], environment: dict[str, str]) -> str:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        env={**cli.environment, "TERM": "xterm", "NO_COLOR": "", **environment},
        stderr=slave,
    )
    os.close(slave)
    seen = b""
    try:
        while piece := os.read(master, 65_536):
            seen += piece
    except OSError:
        pass
    os.close(master)
    assert process.wait(timeout=120) == 0
    return seen.decode()


def test_a_worker_that_logs_json_logs_every_job(cli: CommandLine, tmp_path: Path) -> None:
    make_app(cli, tmp_path, 50)

    done = cli.process(*arguments(tmp_path, "shop:app", "--log", "json"))

    entries = [json.loads(line) for line in done.stderr.splitlines()]
    assert entries[0]["event"] == "worker_started"
    assert entries[-1]["event"] == "worker_left"
    assert (entries[0]["app"], entries[-1]["jobs"]) == ("shop:app", 51)
    events = [entry["event"] for entry in entries]
    assert (events.count("job_started"), events.count("job_ended")) == (51, 51)
    [mail] = [e for e in entries if e["event"] == "job_ended" and e["kind"] == "mail"]
    assert (mail["state"], mail["level"]) == ("failed", "error")
    assert (mail["correlation_id"], mail["trace_id"]) == ("order-1", "trace-1")
    assert b"\x1b" not in done.stderr


def test_a_worker_whose_log_nobody_reads_goes_on(cli: CommandLine, tmp_path: Path) -> None:
    make_app(cli, tmp_path, 600)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *arguments(tmp_path, "shop:app", "--log", "json")],
        env=cli.environment,
        stderr=subprocess.PIPE,
    )

    try:
        code = process.wait(timeout=120)
    finally:
        process.kill()
        process.wait()

    assert code == 0
    jobs = json.loads(cli.run("list", "--json", "--all", "--state", "active").stdout)["jobs"]
    assert jobs == []
    assert process.stderr is not None
    process.stderr.close()


def test_what_is_hidden_is_struck_out_of_every_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = StderrWriter()
    log.hide(["hf_secret"])

    log.write("the store said: no such key hf_secret\n")

    assert capsys.readouterr().err == "the store said: no such key ***\n"
