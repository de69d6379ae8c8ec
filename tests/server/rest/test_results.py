"""The result of a job alone."""

import json

import pytest

from tests.server.rest.rest_client import problem, result_of
from tests.server.rest.rest_registry import RestRegistry


@pytest.mark.parametrize("value", [{"bytes": 9000}, [1, "two"], 7, "text", True, None])
def test_the_result_is_what_the_owner_reported(registry: RestRegistry, value: object) -> None:
    job_id = registry.enqueue()
    token = registry.take(job_id, "w")["task_token"]
    result_of(registry.act("complete", token, success={"result": value}))

    answer = registry.rest.get(f"/v1/jobs/{job_id}/result")

    assert result_of(answer) == value
    assert json.loads(answer.body) == value


def test_a_job_that_has_no_result_yet_says_so(registry: RestRegistry) -> None:
    job_id = registry.enqueue()

    told = problem(registry.rest.get(f"/v1/jobs/{job_id}/result"), 409, "has no result yet: it is queued")

    assert told["job_id"] == job_id
    assert told["advice"] == "Ask again later, or follow its stream."


def test_a_job_that_failed_says_why(registry: RestRegistry) -> None:
    job_id = registry.enqueue()
    token = registry.take(job_id, "w")["task_token"]
    failure = {"message": "disk full", "retryable": False}
    result_of(registry.act("complete", token, failure=failure))

    told = problem(registry.rest.get(f"/v1/jobs/{job_id}/result"), 409)

    assert told["detail"] == f"Job {job_id} has no result: it ended failed, disk full."
    assert "why" in told["advice"]


def test_no_job_has_no_result(registry: RestRegistry) -> None:
    problem(registry.rest.get("/v1/jobs/nobody/result"), 404)


def test_a_repeated_completion_is_told_that_it_was_ones_own(registry: RestRegistry) -> None:
    job_id = registry.enqueue()
    token = registry.take(job_id, "w")["task_token"]
    first = result_of(registry.act("complete", token, success={"result": 1}))

    again = result_of(registry.act("complete", token, success={"result": 1}))
    told = problem(
        registry.act("complete", token, success={"result": 2}), 409, "You have already completed it"
    )

    late = problem(registry.act("heartbeat", token), 409, "holds nothing")
    assert again == first
    assert late["advice"].endswith("that has counted: nothing is left to do.")
    assert told["advice"] == "The attempt was yours, and its outcome has counted: nothing is left to report."
    assert "discard" not in json.dumps(told)
