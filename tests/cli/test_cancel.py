"""`holdfast cancel`: at once for a job that waits, by its worker for one that runs."""

from holdfast.core.state import State
from tests.cli.command_line import CommandLine


def test_cancel_of_a_waiting_job_is_done_at_once(cli: CommandLine) -> None:
    job_id = cli.submit()

    assert "is cancelled; it had no owner" in cli.run("cancel", job_id).stdout
    assert cli.state(job_id) is State.CANCELLED


def test_cancel_of_a_running_job_says_that_it_goes_on(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.claim(job_id, owner="host-1")

    first, second = cli.run("cancel", job_id).stdout, cli.run("cancel", job_id).stdout
    assert "goes on for now: host-1 is asked to stop" in first
    assert "host-1 was asked before to stop" in second
    assert cli.state(job_id) is State.ASSIGNED


def test_hard_cancel_ends_it_now_and_says_what_it_can_know_of_the_process(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.claim(job_id, owner="host-1")

    words = cli.run("cancel", "--hard", "--reason", "wrong seed", job_id).stdout
    assert "whatever host-1 still reports is refused" in words
    assert "may let it run on" in words
    assert cli.state(job_id) is State.CANCELLED
    assert "wrong seed" in cli.run("status", job_id).stdout


def test_what_the_state_does_not_allow_exits_with_4(cli: CommandLine) -> None:
    job_id = cli.submit()
    cli.finish(job_id)

    for words in (["cancel", job_id], ["replay", job_id], ["dead-letters", "show", job_id]):
        result = cli.run(*words, code=4)
        assert result.stderr.endswith(f"See its current state: holdfast status {job_id}\n")
