"""Requests: which trace a job is part of."""

import pytest

from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.job_requests import with_trace

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
