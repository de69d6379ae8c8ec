"""cancel, retry, dead-letters, verify, prune, backup and restore: stepping in and looking after."""

import json
from pathlib import Path

import apsw
import pytest
from cli_world import CliWorld, failure, output

from holdfast.cli import verify
from holdfast.core.state import State
from holdfast.ports import Mismatch, Verification


@pytest.fixture
def world(tmp_path: Path) -> CliWorld:
    return CliWorld(tmp_path)


def state(world: CliWorld, job_id: str) -> State:
    return world.registry(lambda registry: registry.get(job_id)).state


def test_cancel_of_a_waiting_job_is_done_at_once(world: CliWorld) -> None:
    job_id = world.submit()

    assert "is cancelled; nobody was working on it" in world.run("cancel", job_id).stdout
    assert state(world, job_id) is State.CANCELLED


def test_cancel_of_a_running_job_says_that_it_goes_on(world: CliWorld) -> None:
    job_id = world.submit()
    world.claim(job_id, owner="host-1")

    first, second = world.run("cancel", job_id).stdout, world.run("cancel", job_id).stdout
    assert "goes on for now: host-1 is asked to stop" in first
    assert "host-1 was asked before to stop" in second
    assert state(world, job_id) is State.ASSIGNED


def test_hard_cancel_ends_it_now_and_says_what_it_can_know_of_the_process(world: CliWorld) -> None:
    job_id = world.submit()
    world.claim(job_id, owner="host-1")

    words = world.run("cancel", "--hard", "--reason", "wrong seed", job_id).stdout
    assert "whatever host-1 still reports is refused" in words
    assert "may let it run on" in words
    assert state(world, job_id) is State.CANCELLED
    assert "wrong seed" in world.run("status", job_id).stdout


def test_what_the_state_does_not_allow_exits_with_4(world: CliWorld) -> None:
    job_id = world.submit()
    world.finish(job_id)

    for words in (["cancel", job_id], ["retry", job_id], ["dead-letters", "show", job_id]):
        result = world.run(*words, code=4)
        assert result.stderr.endswith(f"Look at it as it is now: holdfast status {job_id}\n")


def test_retry_prints_the_id_of_a_new_job(world: CliWorld) -> None:
    job_id = world.submit()
    world.finish(job_id, failure())

    new = world.run("retry", job_id).stdout.strip()
    assert new != job_id
    assert state(world, new) is State.QUEUED
    assert state(world, job_id) is State.FAILED


def test_dead_letters_are_listed_and_shown_with_all_that_is_needed(world: CliWorld) -> None:
    job_id = world.dead_letter("disk \x1b[2Jon fire")
    world.submit()

    lines = world.run("dead-letters", "list").stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].split()[:4] == [job_id, "exhausted_retries", "exec", "1"]
    assert lines[1].endswith("disk on fire")
    shown = world.run("dead-letters", "show", job_id).stdout
    for name in ("Reason code", "Last error", "Attempts", "Last owner", "Last lease until"):
        assert f"\n{name} " in shown
    for name in ("Correlation", "Stage"):
        assert f"\n{name} " in shown
    assert json.loads(world.run("dead-letters", "show", "--json", job_id).stdout)["dead_letter"]


def test_dead_letters_filter_and_say_when_there_are_none(world: CliWorld) -> None:
    world.submit()

    assert "no dead letters" in world.run("dead-letters", "list").stderr
    world.dead_letter()
    assert world.run("dead-letters", "list", "--reason", "timeout").stdout == ""
    assert world.run("dead-letters", "list", "-q", "other").stdout == ""


def test_replay_of_all_passes_over_what_was_replayed(world: CliWorld) -> None:
    one, two = world.dead_letter(), world.dead_letter()

    dry = world.run("dead-letters", "replay", "--all", "--dry-run")
    assert dry.stdout.split() == [one, two]
    assert "nothing was changed" in dry.stderr
    old, new = world.run("dead-letters", "replay", one).stdout.split()
    assert (old, state(world, new)) == (one, State.QUEUED)
    assert world.run("dead-letters", "replay", "--all").stdout.split()[0] == two
    assert world.run("dead-letters", "replay", "--all").stdout == ""


def test_replay_by_reason_and_queue(world: CliWorld) -> None:
    world.dead_letter()

    for options in (["--reason", "timeout"], ["--queue", "other"]):
        assert world.run("dead-letters", "replay", "--all", *options).stdout == ""
    assert world.run("dead-letters", "replay", "--all", "--reason", "exhausted_retries").stdout


def test_one_wrong_id_and_nothing_is_replayed(world: CliWorld) -> None:
    letter, other = world.dead_letter(), world.submit()

    assert (
        "nothing was replayed" in world.run("dead-letters", "replay", letter, other, code=4).stderr
    )
    assert world.run("dead-letters", "replay", "--all", "--dry-run").stdout.split() == [letter]


@pytest.mark.parametrize("words", [[], ["x", "--all"], ["x", "--queue", "q"]])
def test_replay_needs_to_know_which(world: CliWorld, words: list[str]) -> None:
    world.run("dead-letters", "replay", *words, code=2)


def test_verify_says_equal(world: CliWorld) -> None:
    world.finish(world.submit())

    words = world.run("verify").stdout
    assert words.startswith("1 job, 4 transitions, 4 transition events: equal.")
    assert json.loads(world.run("verify", "--json").stdout)["equal"] is True


def test_verify_exits_with_1_on_a_difference_and_shows_it(world: CliWorld) -> None:
    world.finish(world.submit("--job-id", "j1"))
    tamper(world.file)

    result = world.run("verify", code=1)
    assert "NOT equal" in result.stdout
    assert json.loads(world.run("verify", "--json", code=1).stdout)["equal"] is False


def test_verify_shows_twenty_jobs_and_counts_the_rest(
    world: CliWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Verification(
        jobs=30,
        transitions=9,
        events=8,
        control=0,
        mismatches=tuple(Mismatch(f"j{n}", ("state: stored 1, derived 2",)) for n in range(25)),
    )
    monkeypatch.setattr(verify, "run", lambda work: found)

    words = world.run("verify", code=1).stdout
    assert "j19  state: stored 1, derived 2\n" in words
    assert "j20" not in words
    assert words.endswith("and 5 more jobs.\n")
    assert "number of their events differ" in words


def test_prune_says_what_it_removed(world: CliWorld) -> None:
    world.finish(world.submit(), None, output(1, b"x"))
    kept = world.submit()

    assert world.run("prune", "--older-than", "30d").stdout == "Removed 0 jobs and 0 events.\n"
    assert world.run("prune", "--older-than", "0s").stdout == "Removed 1 job and 5 events.\n"
    assert state(world, kept) is State.QUEUED
    world.run("prune", code=2)


def test_a_restored_store_has_the_jobs_and_fences_off_old_owners(
    world: CliWorld, tmp_path: Path
) -> None:
    job_id = world.submit()
    grant = world.claim(job_id)
    copy, other = tmp_path / "copy.db", f"sqlite:///{tmp_path / 'other.db'}"

    assert world.run("backup", str(copy)).stdout.startswith(f"Wrote {copy}, ")
    words = world.run("restore", str(copy), "--store", other).stdout
    assert "Restored 1 job to" in words
    assert "an owner held it: 1 job." in words
    shown = json.loads(world.run("status", "--json", job_id, "--store", other).stdout)
    assert shown["state"] == "queued"
    assert shown["fencing_token"] >= grant.fencing_token + 2**40
    assert state(world, job_id) is State.ASSIGNED


def test_nothing_is_overwritten_without_force(world: CliWorld, tmp_path: Path) -> None:
    job_id, copy = world.submit(), str(tmp_path / "copy.db")
    world.run("backup", copy)

    assert "exists already" in world.run("backup", copy, code=4).stderr
    assert "--force" in world.run("restore", copy, code=4).stderr
    world.run("cancel", job_id)
    world.run("restore", "--force", copy)
    assert state(world, job_id) is State.QUEUED
    world.run("restore", str(tmp_path / "nothing"), code=2)


def test_completion_prints_a_script_for_each_shell(world: CliWorld) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = world.run("completion", shell).stdout
        assert script.startswith("# ")
        assert "_HOLDFAST_COMPLETE" in script


def test_version(world: CliWorld) -> None:
    assert world.run("--version").stdout.startswith("holdfast ")
    assert "msgspec" in world.run("version").stdout


def tamper(file: Path) -> None:
    """Change one record behind the registry's back, as no program of ours would."""
    connection = apsw.Connection(str(file))
    connection.execute("UPDATE job SET transition_no = transition_no + 1").fetchall()
    connection.close()
