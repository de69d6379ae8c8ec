"""The command line as a process: quick, quiet, plain in a pipe, safe on a terminal."""

import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from holdfast.cli import main
from holdfast.core.lifecycle import Success
from holdfast.ports import Registry
from tests.cli.command_line import PROGRAM, CommandLine, failure, on_a_terminal, output

HELP_SECONDS_MAX = 0.150


def start(cli: CommandLine, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_status_says_of_a_job_no_less_time_than_its_command_took(cli: CommandLine) -> None:
    """Its first heartbeat, which shows it as started, comes when it has run for a while."""
    done = cli.process("run", "--job-id", "nap", "--", "sleep", "0.4")

    assert done.returncode == 0, done.stderr
    [after] = re.findall(r"^Ended .* after (\S+) s$", cli.run("status", "nap").stdout, re.MULTILINE)
    assert float(after) >= 0.4


def test_help_comes_at_once(cli: CommandLine) -> None:
    """By the processor's time, which is the wall's on a machine that is not busy with others."""
    environment = {k: v for k, v in cli.environment.items() if k != "PYTHONDONTWRITEBYTECODE"}
    took = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*PROGRAM, "--help"], env=environment, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    assert min(took) < HELP_SECONDS_MAX


def test_help_imports_nothing_heavy(cli: CommandLine) -> None:
    code = (
        "import sys\nfrom holdfast.cli.main import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "heavy = {'rich', 'asyncio', 'apsw', 'msgspec', 'holdfast.core', 'holdfast.sdk'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=cli.environment, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


def test_in_a_pipe_there_is_no_escape_sequence(cli: CommandLine) -> None:
    job_id = cli.submit("--name", "\x1b[31mred")
    cli.finish(job_id, failure("\x1b[31mred"))
    letter = cli.dead_letter("\x1b[31mred")

    for words in (
        ["--help"],
        ["list"],
        ["status", job_id],
        ["status", "--json", job_id],
        ["status", "--watch", job_id],
        ["events", job_id],
        ["events", "--json"],
        ["why", job_id],
        ["verify"],
        ["doctor"],
        ["dead-letters", "list"],
        ["dead-letters", "show", letter],
        ["status", "\x1b[31mred"],
        ["version"],
    ):
        done = cli.process(*words)
        assert b"\x1b" not in done.stdout + done.stderr, words
        assert done.stdout or done.stderr, words


def test_on_a_terminal_there_are_colours_unless_they_are_not_wanted(cli: CommandLine) -> None:
    cli.finish(cli.submit())

    assert "\x1b[32m" in on_a_terminal(cli, "list")[1]
    assert "\x1b[32m" not in on_a_terminal(cli, "list", NO_COLOR="1")[1]
    assert "\x1b" not in on_a_terminal(cli, "list", TERM="dumb")[1]


def test_hostile_output_reaches_a_pipe_whole_and_a_terminal_harmless(cli: CommandLine) -> None:
    hostile = b"a\x1b]52;c;ZXZpbA==\x07b\x1b[2Jc\x1b[31md\x1b[0m\x00\xe2\x80\xae\xff\rz\n"
    job_id = cli.submit()
    cli.finish(job_id, None, output(1, hostile[:5]), output(2, hostile[5:]))

    assert cli.process("logs", job_id).stdout == hostile
    _, seen = on_a_terminal(cli, "logs", job_id)
    assert seen.replace("\r\n", "\n") == "abc\x1b[31md\x1b[0m\ufffd\nz\n"
    _, seen = on_a_terminal(cli, "logs", job_id, NO_COLOR="1")
    assert "\x1b" not in seen


def test_submit_hints_what_to_do_next_on_a_terminal_only(cli: CommandLine) -> None:
    code, seen = on_a_terminal(cli, "submit", "--", "x")

    assert code == 0
    assert "holdfast worker -q default" in seen
    assert cli.process("submit", "--", "x").stderr == b""


def test_exit_codes_reach_the_shell(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.finish(job_id, failure())

    for words, code in (
        (["status", job_id], 0),
        (["submit"], 2),
        (["status", "nothing"], 3),
        (["cancel", job_id], 4),
        (["logs", "-f", job_id], 3),
        (["--store", "sqlite:////proc/no/such/folder/x.db", "submit", "--", "x"], 2),
    ):
        done = cli.process(*words)
        assert done.returncode == code, (words, done.stderr)
        assert b"Traceback" not in done.stderr


def test_the_store_may_be_named_before_and_after_the_command(cli: CommandLine, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"

    one = cli.process("--store", other, "submit", "--", "x").stdout.decode().strip()
    two = cli.process("submit", "--store", other, "--", "x").stdout.decode().strip()
    shown = cli.process("list", "--store", other).stdout.decode()
    assert one in shown
    assert two in shown
    assert not cli.file.exists()


def test_a_reader_that_leaves_is_no_error(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.finish(job_id, None, *(output(n, b"x" * 60_000) for n in range(1, 30)))

    for words in (["logs", job_id], ["events"], ["list", "--json"]):
        process = start(cli, *words)
        assert process.stdout is not None
        process.stdout.close()
        _, errors = process.communicate(timeout=120)
        assert errors in (b"", b"To read on from here: add --after 0.30\n"), words
        assert process.returncode == 141, words


def test_ctrl_c_is_quiet(cli: CommandLine) -> None:
    job_id = cli.submit()
    process = start(cli, "events", "-f", job_id)
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, out, errors) == (130, b"", b"")


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (["logs", "-f"], b"live\n"),
        (["events", "-f"], b"job_succeeded"),
        (["status", "--watch"], b"succeeded"),
    ],
)
def test_following_ends_by_itself_with_the_job(cli: CommandLine, words: list[str], last: bytes) -> None:
    job_id = cli.submit()
    process = start(cli, *words, job_id)

    async def work(registry: Registry) -> None:
        grant = await registry.acquire(job_id, owner="w1")
        await registry.publish(grant, [output(1, b"live\n")])
        await registry.complete(grant, Success())

    cli.registry(work)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, b"")
    assert last in out


def test_status_watch_on_a_terminal_shows_the_end(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.finish(job_id, failure())

    code, seen = on_a_terminal(cli, "status", "--watch", job_id)
    assert code == 3
    assert "failed, attempt 1" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)


def test_the_shell_completes_commands_and_jobs(cli: CommandLine) -> None:
    job_id = cli.submit("--job-id", "nightly-1")

    def complete(line: str, place: int) -> str:
        environment = {
            **cli.environment,
            "_HOLDFAST_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(place),
        }
        done = subprocess.run(PROGRAM, env=environment, capture_output=True, check=False)
        return done.stdout.decode()

    assert "plain,submit" in complete("holdfast su", 1)
    assert f"plain,{job_id}" in complete("holdfast status nigh", 2)
    assert "--reason" in complete("holdfast cancel --re", 2)


def test_completion_prints_a_script_for_each_shell(cli: CommandLine) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = cli.run("completion", shell).stdout
        assert script.startswith("# ")
        assert "_HOLDFAST_COMPLETE" in script


def test_version(cli: CommandLine) -> None:
    assert cli.run("--version").stdout.startswith("holdfast ")
    assert "msgspec" in cli.run("version").stdout


def test_the_table_of_commands_is_true() -> None:
    context = click.Context(main.cli)
    for name in main.COMMANDS:
        if name not in {"run", "worker", "demo"}:
            command = main.cli.get_command(context, name)
            assert command is not None
            assert command.name == name
            assert command.help
