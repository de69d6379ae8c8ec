"""Exit codes: one for each error, and what a job ended with."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from holdfast.cli.exit_codes import ExitCode, error_exit, outcome_exit
from holdfast.cli.main import cli
from holdfast.core import errors
from holdfast.core.job import Failure, Job
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.sdk.open import DEFAULT_STORE

NOW = datetime(2026, 1, 1, tzinfo=UTC)


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
def test_the_exit_code_tells_how_the_job_ended(state: State, exit_code: int | None, seen: int) -> None:
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
    for code in ExitCode:
        assert f"  {code.value}  " in cli.epilog
    assert DEFAULT_STORE in cli.epilog
