"""Eligibility: which jobs a claim may have."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.eligibility import claimable
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Ready
from holdfast.testing.fakes import EPOCH as NOW

SECOND = timedelta(seconds=1)
JOB = Job("job-1", Spec(queue="q", kind="report"), State.QUEUED, NOW, NOW, NOW)
CLAIM = Ready(queues=("p", "q"), op_id="o")


def of(job: Job = JOB, **spec: object) -> Job:
    return replace(job, spec=replace(job.spec, **spec))


def test_a_queued_job_of_one_of_the_queues_is_claimable() -> None:
    assert claimable(JOB, CLAIM, NOW) is True
    assert not claimable(of(queue="r"), CLAIM, NOW)


@pytest.mark.parametrize("state", [one for one in State if one is not State.QUEUED])
def test_a_job_in_another_state_is_not(state: State) -> None:
    assert not claimable(replace(JOB, state=state), CLAIM, NOW)


def test_a_job_is_claimable_from_its_time_until_its_deadline() -> None:
    assert not claimable(replace(JOB, ready_at=NOW + SECOND), CLAIM, NOW)
    assert claimable(replace(JOB, deadline_at=NOW + SECOND), CLAIM, NOW)
    assert not claimable(replace(JOB, deadline_at=NOW), CLAIM, NOW)
    assert not claimable(replace(JOB, deadline_at=NOW - SECOND), CLAIM, NOW)


def test_a_claim_for_kinds_gets_these_only() -> None:
    assert claimable(JOB, replace(CLAIM, kinds=("report", "fit")), NOW)
    assert not claimable(JOB, replace(CLAIM, kinds=("fit",)), NOW)


def test_a_region_matters_where_both_name_one() -> None:
    assert claimable(of(region="eu"), replace(CLAIM, region="eu"), NOW)
    assert claimable(of(region="eu"), CLAIM, NOW)
    assert claimable(JOB, replace(CLAIM, region="eu"), NOW)
    assert not claimable(of(region="eu"), replace(CLAIM, region="us"), NOW)


def test_a_job_of_an_executor_is_for_claims_on_its_behalf() -> None:
    assert claimable(of(executor="slurm"), replace(CLAIM, executor="slurm"), NOW)
    assert not claimable(of(executor="slurm"), CLAIM, NOW)
    assert not claimable(JOB, replace(CLAIM, executor="slurm"), NOW)
