"""Durations over REST: as on the command line, in every place of a request."""

from collections.abc import Iterator

import pytest

from holdfast.server.rest.durations import DURATION_SECONDS_MAX
from tests.server.raw_http_client import threaded_server
from tests.server.rest.rest_client import RestClient, problem, result_of


@pytest.fixture(scope="module")
def client() -> Iterator[RestClient]:
    with threaded_server() as server:
        yield RestClient(server)


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (30, "PT30S"),
        ("30s", "PT30S"),
        ("30", "PT30S"),
        ("1h30m", "PT5400S"),
        ("PT5M", "PT300S"),
        (None, None),
    ],
)
def test_a_duration_is_taken_as_it_is_written_elsewhere(
    client: RestClient, written: object, stored: str | None
) -> None:
    job = result_of(client.post("/v1/jobs", {"spec": {"kind": "report", "timeout": written}}))

    assert job["spec"]["timeout"] == stored


def test_a_duration_deep_in_a_request_is_read_too_and_the_payload_stays_as_it_is(client: RestClient) -> None:
    payload = {"timeout": "5m", "n": 1.50}
    spec = {
        "kind": "report",
        "payload": payload,
        "lease": 90,
        "retry": {"backoff": "5s", "backoff_max": "1m"},
    }

    jobs = result_of(client.post("/v1/jobs/batch", {"requests": [{"spec": {"kind": "a"}}, {"spec": spec}]}))

    stored = jobs["jobs"][1]["spec"]
    assert (stored["payload"], stored["lease"]) == (payload, "PT90S")
    assert (stored["retry"]["backoff"], stored["retry"]["backoff_max"]) == ("PT5S", "PT60S")


@pytest.mark.parametrize("written", ["soon", "", "P1Y", "-5s", True, [], {}])
def test_what_is_no_duration_is_named_and_answered_with_examples(client: RestClient, written: object) -> None:
    answer = client.post("/v1/jobs/batch", {"requests": [{"spec": {"kind": "a", "timeout": written}}]})

    detail = problem(answer, 400)["detail"]
    assert detail.startswith("requests.spec.timeout: ")
    assert "is not a duration; write 90 (seconds), 500ms, 5m, 1h30m" in detail


@pytest.mark.parametrize("seconds", [-1, -0.5, DURATION_SECONDS_MAX + 1, 1e300])
def test_a_number_is_within_the_limits_of_the_document(client: RestClient, seconds: float) -> None:
    problem(client.post("/v1/prune", {"older_than": seconds}), 400, "older_than: ")


def test_another_mistake_beside_a_duration_is_told_as_ever(client: RestClient) -> None:
    answer = client.post("/v1/jobs", {"spec": {"kind": "a", "timeout": "5m", "priority": 10}})

    assert "priority" in problem(answer, 400)["detail"]
