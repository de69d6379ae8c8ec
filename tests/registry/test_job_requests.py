"""Requests: which trace a job is part of, and the commands that create many."""

import pytest
from msgspec import Raw

from holdfast.core.errors import Invalid
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.job_requests import enqueue_command, enqueue_commands, with_trace
from holdfast.testing.fakes import CountingIds
from holdfast.testing.world import World

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = f"00-{'b' * 32}-00f067aa0ba902b7-00"


def test_a_request_that_names_no_trace_becomes_part_of_its_callers() -> None:
    assert with_trace(JobRequest(spec=Spec()), PARENT).traceparent == PARENT


@pytest.mark.parametrize(
    ("request_", "traceparent"),
    [
        (JobRequest(spec=Spec()), None),
        (JobRequest(spec=Spec(), trace_id="mine"), PARENT),
        (JobRequest(spec=Spec(), traceparent=OTHER), PARENT),
    ],
)
def test_outside_of_a_trace_or_with_one_of_its_own_it_stays(
    request_: JobRequest, traceparent: str | None
) -> None:
    assert with_trace(request_, traceparent) is request_


REQUESTS = [
    JobRequest(spec=Spec(payload=Raw(b" 1 ")), trace_id="t", submitted_by="user:bo"),
    JobRequest(spec=Spec(payload=Raw(b"1"))),
    JobRequest(spec=Spec(payload=Raw(b"1"), queue="images"), request_id="once"),
    JobRequest(spec=Spec(payload=Raw(b"2"), queue="images"), job_id="named", register=True),
    JobRequest(spec=Spec(payload=Raw(b"2"), queue="images"), traceparent=PARENT, correlation_id="c"),
]


def test_the_commands_of_many_requests_are_those_of_each() -> None:
    one_by_one = CountingIds()

    commands = enqueue_commands(REQUESTS, CountingIds(), actor="user:ana")

    assert commands == [enqueue_command(request, one_by_one, actor="user:ana") for request in REQUESTS]
    assert [command.job_id for command in commands][0::4] == ["00000001", "00000003"]


@pytest.mark.parametrize("wrong", [Spec(payload=Raw(b"{")), Spec(kind="no kind"), Spec(priority=10)])
def test_one_wrong_request_among_many_is_found(wrong: Spec) -> None:
    with pytest.raises(Invalid):
        enqueue_commands([*REQUESTS, JobRequest(spec=wrong)], CountingIds(), actor="user:ana")


async def test_jobs_that_were_made_before_are_told_from_new_ones(world: World) -> None:
    named = JobRequest(spec=Spec(), job_id="a")

    first = await world.registry.enqueue_many([named, named, JobRequest(spec=Spec())], actor="user:ana")
    again = await world.registry.enqueue_many([named, JobRequest(spec=Spec())], actor="user:ana")

    assert first.existed == frozenset()
    assert again.existed == {"a"}
