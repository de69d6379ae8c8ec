"""`holdfast status` and the cost of a job, for people and for programs."""

import json
import re
from pathlib import Path

import pytest

from holdfast.cli.costs import cost_fields, cost_words
from holdfast.core.cost import Cost
from holdfast.core.job import Job
from holdfast.core.outputs import OutputPromise, ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest, Registry
from holdfast.testing.fakes import EPOCH
from tests.cli.command_line import CommandLine
from tests.cli.settings_files import invoke, shown, write

pytestmark = pytest.mark.usefixtures("folder")

HELD = Job("j", Spec(), State.RUNNING, EPOCH, EPOCH, EPOCH, fencing_token=1)


@pytest.mark.parametrize(
    ("seconds", "rate", "words"),
    [
        (720, 0.1, "0.02 USD (12 min at 0.10 USD/h)"),
        (3, 0.1, "under 0.01 USD (3.0 s at 0.10 USD/h)"),
        (0, 0.1, "0.00 USD (0.0 s at 0.10 USD/h)"),
        (36_000, 0.0, "0.00 USD (10.0 h at 0.00 USD/h)"),
        (3_600_000, 2.0, "2,000.00 USD (41.7 days at 2.00 USD/h)"),
    ],
)
def test_a_cost_is_said_with_what_it_is_made_of(seconds: float, rate: float, words: str) -> None:
    assert cost_words(HELD, Cost(seconds=seconds, rate=rate)) == words


def test_a_program_gets_seconds_and_dollars() -> None:
    assert cost_fields(Cost(seconds=720.00049, rate=0.1)) == {
        "cost_seconds": 720.0,
        "cost_dollars": 0.02,
    }


def test_status_says_what_a_job_cost_once_somebody_has_had_it(cli: CommandLine, folder: Path) -> None:
    job_id = cli.submit()
    assert "Cost" not in cli.run("status", job_id).stdout

    cli.finish(job_id)
    said = cli.run("status", job_id).stdout
    assert re.search(r"^Cost +under 0.01 USD \([\d.]+ s at 0.10 USD/h\)$", said, re.MULTILINE)
    write(folder / "holdfast.toml", 'cost_per_hour = "3600000"')
    assert "cost_per_hour (line 1): A rate" in cli.run("status", job_id, code=2).stderr
    write(folder / "holdfast.toml", 'cost_per_hour = "360000"')
    document = json.loads(cli.run("status", "--json", job_id).stdout)
    assert 0 < document["cost_seconds"] < 60
    assert document["cost_dollars"] == pytest.approx(document["cost_seconds"] * 100, abs=0.1)


def test_a_job_whose_outputs_were_all_there_costs_nothing(cli: CommandLine, folder: Path) -> None:
    promise = OutputPromise(names=("model",), store="s-1")

    async def reuse(registry: Registry) -> Job:
        spec = Spec(kind="train", outputs=promise, promised_outputs=1)
        found = ValidationResult(verified=1, reused=1)
        return await registry.enqueue(JobRequest(spec=spec, found=found), actor="validator:here")

    job = cli.registry(reuse)

    assert job.state is State.SUCCEEDED
    assert "0.00 USD (0.0 s at 0.10 USD/h)\n" in cli.run("status", job.job_id).stdout
    document = json.loads(cli.run("status", "--json", job.job_id).stdout)
    assert (document["cost_seconds"], document["cost_dollars"]) == (0, 0)


def test_a_rate_that_is_none_is_said_with_its_place(folder: Path) -> None:
    path = write(folder / "holdfast.toml", 'cost_per_hour = "cheap"')

    assert shown(HOLDFAST_COST_PER_HOUR="1.5")["cost_per_hour"] == (
        "1.5",
        "env HOLDFAST_COST_PER_HOUR",
    )
    said = invoke("config", code=2).stderr
    assert f"file {path}:cost_per_hour (line 1): A rate is USD for an hour" in said
    path.unlink()
    assert shown()["cost_per_hour"] == ("0.10", "default")
