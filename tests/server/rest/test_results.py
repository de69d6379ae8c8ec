"""The result of a job alone, and its output as plain text."""

import json
from base64 import b64encode

import pytest

from tests.server.rest.rest_client import problem, result_of
from tests.server.rest.rest_registry import MOMENT, RestRegistry


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
    problem(registry.rest.get("/v1/jobs/nobody/logs/text"), 404)


def written(registry: RestRegistry, *pieces: tuple[str, bytes]) -> str:
    job_id = registry.enqueue()
    token = registry.take(job_id, "w")["task_token"]
    for start in range(0, len(pieces), 100):
        events = [
            {
                "event_type": "output",
                "occurred_at": MOMENT,
                "sequence": n,
                "stream": stream,
                "data": b64encode(data).decode(),
            }
            for n, (stream, data) in enumerate(pieces[start : start + 100], start + 1)
        ]
        answer = registry.act("publish", token, events=events)
        assert answer.status == 200, answer
    return job_id


def test_the_output_is_plain_text_in_the_order_in_which_it_came(registry: RestRegistry) -> None:
    job_id = written(registry, ("stdout", b"one\n"), ("stderr", b"two\n"), ("stdout", "drei ü\n".encode()))

    both = registry.rest.get(f"/v1/jobs/{job_id}/logs/text")
    errors = registry.rest.get(f"/v1/jobs/{job_id}/logs/text?stream=stderr")

    assert both.headers["content-type"] == "text/plain; charset=utf-8"
    assert both.body.decode() == "one\ntwo\ndrei ü\n"
    assert errors.body == b"two\n"


def test_output_of_many_pages_comes_whole(registry: RestRegistry) -> None:
    pieces = [("stdout", f"{n:06}\n".encode() * 1_000) for n in range(300)]
    job_id = written(registry, *pieces)

    answer = registry.rest.get(f"/v1/jobs/{job_id}/logs/text")

    assert answer.body == b"".join(data for _, data in pieces)


def test_a_stream_that_does_not_exist_is_refused(registry: RestRegistry) -> None:
    problem(registry.rest.get(f"/v1/jobs/{registry.enqueue()}/logs/text?stream=both"), 400)


def test_a_repeated_completion_is_told_that_it_was_ones_own(registry: RestRegistry) -> None:
    job_id = registry.enqueue()
    token = registry.take(job_id, "w")["task_token"]
    first = result_of(registry.act("complete", token, success={"result": 1}))

    again = result_of(registry.act("complete", token, success={"result": 1}))
    told = problem(
        registry.act("complete", token, success={"result": 2}), 409, "You have already completed it"
    )

    assert again == first
    assert told["advice"] == "The attempt was yours, and its outcome has counted: nothing is left to report."
    assert "discard" not in json.dumps(told)
