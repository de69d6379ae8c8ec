"""Durations, instants, pairs, exit codes and names: what people write, and what we make of it."""

import getpass
from datetime import UTC, datetime, timedelta

import click
import pytest
from msgspec.structs import replace

from holdfast.cli.durations import Duration, Instant
from holdfast.cli.exits import Exit, error_exit, outcome_exit
from holdfast.cli.main import COMMANDS, cli
from holdfast.cli.options import Pair
from holdfast.cli.terminal import age, count, shorten
from holdfast.core import errors
from holdfast.core.job import Failure, Job
from holdfast.core.limits import check_id
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.sdk.caller import actor
from holdfast.sdk.open import DEFAULT_STORE

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86_400),
        ("1.5h", 5400),
        ("90", 90),
        ("250ms", 0.25),
        ("0", 0),
        (" 2 H ", 7200),
        (".5m", 30),
        ("1w", 604_800),
    ],
)
def test_durations_are_written_as_people_write_them(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "5x", "-5s", "1h30m", "h", "nan", "inf", "1e3", "9" * 30 + "d"]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


def test_an_instant_without_a_zone_is_local_time() -> None:
    assert Instant().convert("2030-01-31T09:00+01:00", None, None).utcoffset() == timedelta(hours=1)
    assert Instant().convert("2030-01-31 09:00", None, None).tzinfo is not None
    with pytest.raises(click.BadParameter):
        Instant().convert("tomorrow", None, None)


def test_a_pair_needs_a_name() -> None:
    assert Pair().convert("A=b=c", None, None) == ("A", "b=c")
    assert Pair().convert("A=", None, None) == ("A", "")
    for wrong in ("A", "=b", ""):
        with pytest.raises(click.BadParameter):
            Pair().convert(wrong, None, None)


@pytest.mark.parametrize(
    ("state", "exit_code", "seen"),
    [
        (State.SUCCEEDED, None, 0),
        (State.FAILED, 3, 3),
        (State.FAILED, -9, 137),
        (State.FAILED, None, 1),
        (State.FAILED, 0, 1),
        (State.FAILED, 256, 1),
        (State.DEAD_LETTERED, 7, 7),
        (State.TIMEOUT, None, 1),
        (State.CANCELLED, 143, 1),
        (State.PARTIAL_SUCCESS, None, 1),
    ],
)
def test_the_exit_code_tells_how_the_job_ended(
    state: State, exit_code: int | None, seen: int
) -> None:
    job = Job(job_id="j", spec=Spec(), state=state, created_at=NOW, updated_at=NOW, ready_at=NOW)
    failed = replace(job, error=Failure(message="no", exit_code=exit_code))

    assert outcome_exit(job if state is State.SUCCEEDED else failed) == seen


def test_every_error_has_an_exit_code_of_its_own() -> None:
    ours = [k for k in errors.HoldfastError.__subclasses__() if k.__module__ == errors.__name__]
    kinds = {kind.__name__: error_exit(kind("x")) for kind in ours}

    assert kinds == {
        "Invalid": 2,
        "NotFound": 3,
        "Conflict": 4,
        "Fenced": 4,
        "Exhausted": 5,
        "Denied": 6,
        "Unavailable": 75,
        "Corrupt": 70,
    }


def test_every_exit_code_and_the_default_store_are_in_the_help() -> None:
    assert cli.epilog is not None
    for code in Exit:
        assert f"  {code.value}  " in cli.epilog
    assert DEFAULT_STORE in cli.epilog


def test_the_table_of_commands_is_true() -> None:
    context = click.Context(cli)
    for name in COMMANDS:
        if name not in {"run", "worker", "demo"}:
            command = cli.get_command(context, name)
            assert command is not None
            assert command.name == name
            assert command.help


def test_the_actor_is_a_safe_id(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("root", "Jörg Müller", "DOMAIN\\me", "x" * 300):
        monkeypatch.setattr(getpass, "getuser", lambda name=name: name)
        assert check_id(actor.__wrapped__(), "actor").startswith("user:")

    def nobody() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert actor.__wrapped__() == "user:unknown"


def test_small_words() -> None:
    assert [age(timedelta(seconds=s)) for s in (-1, 5, 300, 7200, 999_999)] == [
        "0s",
        "5s",
        "5m",
        "2h",
        "11d",
    ]
    assert (count(1, "job"), count(2000, "job")) == ("1 job", "2,000 jobs")
    assert (shorten("abc", 3), shorten("abcd", 3)) == ("abc", "ab…")
