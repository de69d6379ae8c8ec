"""The façade `/registry`: failures, declared heartbeats, and the same response to a call sent again."""

from typing import Any

import pytest

from holdfast.core.retry import Retry
from tests.server.rest.rest_client import problem, result_of
from tests.server.rest.rest_registry import RestRegistry


@pytest.fixture
def job_id(registry: RestRegistry) -> str:
    """A job of nobody yet, in a queue of its own."""
    return registry.enqueue()


def complete(registry: RestRegistry, job_id: str, token: int, result: object) -> dict[str, Any]:
    return dict(result_of(registry.facade("complete-job", job_id, "w", fencing_token=token, result=result)))


def error(registry: RestRegistry, job_id: str) -> dict[str, Any]:
    """What is said of the failure that is not said of every one."""
    usual = {
        "retryable": True,
        "stage": "exec",
        "exit_code": None,
        "crash": False,
        "not_understood": False,
        "not_started": False,
    }
    told = registry.job(job_id)["error"]
    return {name: value for name, value in told.items() if value != usual.get(name)}


def test_a_result_without_success_fails_the_attempt_and_the_job_is_tried_again(
    registry: RestRegistry, job_id: str
) -> None:
    token = registry.acquire(job_id, "w")

    told = complete(registry, job_id, token, {"success": False, "error": "disk full"})

    assert told == {"success": False, "state": "PENDING", "attempt": 2}
    job = registry.job(job_id)
    assert (job["state"], job["failures"]) == ("queued", 1)
    assert error(registry, job_id) == {"message": "disk full", "code": "Failed"}
    early = problem(registry.facade("acquire-job", job_id, "w2"), 409)
    assert "not ready before" in early["detail"]
    registry.clock.advance(60)
    assert registry.acquire(job_id, "w2") == token + 1


def test_a_job_made_by_acquiring_is_for_no_worker_of_ours_unless_it_says_so(
    registry: RestRegistry,
) -> None:
    for job_id, spec in (("bare", {"queue": "q"}), ("said", {"queue": "q", "kind": "command"})):
        registry.acquire(job_id, "w", create=True, spec=spec)

    assert registry.job("bare")["spec"]["kind"] == "external"
    assert registry.job("said")["spec"]["kind"] == "command"


def test_a_job_made_by_acquiring_that_always_fails_ends(registry: RestRegistry) -> None:
    states, job_id = [], "poison"
    for _ in range(Retry().max_failures):
        token = registry.acquire(job_id, "w", create=True)
        told = complete(registry, job_id, token, {"success": False})
        states.append((told["success"], told["state"], told["attempt"]))
        registry.clock.advance(60)

    assert states == [
        (False, "PENDING", 2),
        (False, "PENDING", 3),
        (False, "PENDING", 4),
        (False, "PENDING", 5),
        (False, "FAILED", 5),
    ]
    assert registry.job(job_id)["state"] == "dead_lettered"
    assert registry.status(job_id)["state"] == "FAILED"
    problem(registry.facade("acquire-job", job_id, "w", create=True), 409)


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        ({"error": "a"}, {"message": "a", "code": "Failed"}),
        ({"error_message": "b"}, {"message": "b", "code": "Failed"}),
        ({"message": "c", "code": "DiskFull"}, {"message": "c", "code": "DiskFull"}),
        ({"error": "", "message": "d"}, {"message": "d", "code": "Failed"}),
        ({"error": {"at": 7}}, {"message": '{"at":7}', "code": "Failed"}),
        ({}, {"message": "The worker reported a failure.", "code": "Failed"}),
        (
            {"frame": 7, "code": None},
            {
                "message": 'The worker reported a failure. Its result was {"frame":7}.',
                "code": "Failed",
            },
        ),
        (
            {"exit_code": 3},
            {"message": "The command exited with 3.", "code": "Exit3", "exit_code": 3},
        ),
        (
            {"exit_code": 137, "error": "killed"},
            {"message": "killed", "code": "Exit137", "exit_code": 137, "crash": True},
        ),
    ],
)
def test_a_failure_keeps_what_its_worker_said(
    registry: RestRegistry, job_id: str, result: dict[str, Any], kept: dict[str, Any]
) -> None:
    token = registry.acquire(job_id, "w")

    complete(registry, job_id, token, {"success": False, **result})

    assert error(registry, job_id) == kept


def test_a_failure_that_is_not_to_be_tried_again_ends_the_job(registry: RestRegistry, job_id: str) -> None:
    token = registry.acquire(job_id, "w")

    told = complete(registry, job_id, token, {"success": False, "error": "no", "retryable": False})

    assert told == {"success": False, "state": "FAILED", "attempt": 1}
    assert registry.job(job_id)["state"] == "failed"


@pytest.mark.parametrize(
    "result",
    [None, 7, False, [{"success": False}], {}, {"frames": 9}, {"success": True, "exit_code": 3}],
)
def test_any_other_result_is_kept_whole(registry: RestRegistry, job_id: str, result: object) -> None:
    token = registry.acquire(job_id, "w")

    told = complete(registry, job_id, token, result)

    assert told == {"success": True, "state": "COMPLETED", "attempt": 1}
    assert registry.job(job_id).get("result") == result


@pytest.mark.parametrize(
    "result",
    [
        {"success": "false"},
        {"success": "true"},
        {"success": 0},
        {"success": None},
        {"success": {}},
        {"success": False, "retryable": "no"},
        {"success": False, "exit_code": "3"},
        {"success": False, "exit_code": 2**40},
        {"success": False, "code": 7},
    ],
)
def test_a_report_that_is_not_clear_is_refused_and_loses_nothing(
    registry: RestRegistry, job_id: str, result: dict[str, Any]
) -> None:
    token = registry.acquire(job_id, "w")

    answer = registry.facade("complete-job", job_id, "w", fencing_token=token, result=result)

    problem(answer, 422, "true or false" if len(result) == 1 else "not a valid failure report")
    assert registry.status(job_id)["state"] == "RUNNING"
    assert complete(registry, job_id, token, 1)["state"] == "COMPLETED"


@pytest.mark.parametrize("reason", ["error", "error: disk full", "Error 7", "error_disk_full"])
def test_giving_back_because_of_an_error_is_a_failure(
    registry: RestRegistry, job_id: str, reason: str
) -> None:
    token = registry.acquire(job_id, "w")

    told = result_of(registry.facade("release-job", job_id, "w", fencing_token=token, reason=reason))

    assert told == {"state": "PENDING", "attempt": 2}
    assert registry.job(job_id)["failures"] == 1
    assert error(registry, job_id) == {"message": reason, "code": "Released"}
    problem(registry.facade("acquire-job", job_id, "w"), 409, "not ready before")


def test_a_job_that_is_given_back_with_an_error_each_time_ends(registry: RestRegistry, job_id: str) -> None:
    for _ in range(Retry().max_failures):
        token = registry.acquire(job_id, "w")
        told = result_of(
            registry.facade("release-job", job_id, "w", fencing_token=token, reason="error: again")
        )
        registry.clock.advance(60)

    assert told == {"state": "FAILED", "attempt": 5}


@pytest.mark.parametrize("reason", [None, "node drained", "errors are not mine", "no error"])
def test_giving_back_for_any_other_reason_costs_nothing(
    registry: RestRegistry, job_id: str, reason: str | None
) -> None:
    for attempt in range(2, 12):
        token = registry.acquire(job_id, "w")
        told = result_of(registry.facade("release-job", job_id, "w", fencing_token=token, reason=reason))
        assert told == {"state": "PENDING", "attempt": attempt}

    assert registry.job(job_id).get("failures", 0) == 0
    requeued = [one for one in registry.events(job_id) if one["event_type"] == "job_requeued"]
    assert [one["reason"] for one in requeued] == [reason or "released"] * 10


def test_an_owner_that_declared_heartbeats_loses_the_job_after_three_misses(
    registry: RestRegistry, job_id: str
) -> None:
    told = result_of(registry.facade("acquire-job", job_id, "w", heartbeat_interval="PT2S"))
    assert (told["lease_seconds"], told["heartbeat_seconds"]) == (6.0, 2.0)
    token = told["fencing_token"]
    for _ in range(3):
        registry.clock.advance(5)
        renewed = result_of(registry.facade("heartbeat", job_id, "w", fencing_token=token))
        assert renewed["lease_seconds"] == 6.0

    registry.clock.advance(5.9)
    problem(registry.facade("acquire-job", job_id, "w2"), 409, "Job owned by w.")
    registry.clock.advance(0.2)
    assert registry.acquire(job_id, "w2") == token + 1

    late = registry.facade("complete-job", job_id, "w", fencing_token=token, result=1)
    assert problem(late, 409, "is stale")["title"] == "Fenced: no longer the owner"
    assert registry.status(job_id)["owner"] == "w2"


def test_an_owner_that_declared_none_is_told_to_show_ten_signs_of_life_in_a_lease(
    registry: RestRegistry, job_id: str
) -> None:
    told = result_of(registry.facade("acquire-job", job_id, "w"))

    assert (told["lease_seconds"], told["heartbeat_seconds"]) == (300.0, 30.0)


def test_heartbeats_are_declared_over_v1_just_so(registry: RestRegistry, job_id: str) -> None:
    first = registry.take(job_id, "w", heartbeat_interval="PT2S")
    assert first["lease_seconds"] == 6.0

    registry.clock.advance(6.1)

    assert registry.take(job_id, "w2")["fencing_token"] == first["fencing_token"] + 1


@pytest.mark.parametrize("result", [{"frames": 9}, {"success": False, "error": "disk full"}])
def test_a_result_handed_in_again_is_answered_as_before(
    registry: RestRegistry, job_id: str, result: dict[str, Any]
) -> None:
    token = registry.acquire(job_id, "w")
    first = complete(registry, job_id, token, result)
    registry.clock.advance(60)
    if first["state"] == "PENDING":
        registry.acquire(job_id, "w2")
    events = registry.events(job_id)

    assert complete(registry, job_id, token, result) == first
    assert registry.events(job_id) == events


@pytest.mark.parametrize("reason", [None, "later", "error: disk full"])
def test_a_job_given_back_again_is_answered_as_before(
    registry: RestRegistry, job_id: str, reason: str | None
) -> None:
    token = registry.acquire(job_id, "w")
    asked = {"fencing_token": token, "reason": reason}
    first = result_of(registry.facade("release-job", job_id, "w", **asked))
    registry.clock.advance(60)
    registry.acquire(job_id, "w2")

    assert result_of(registry.facade("release-job", job_id, "w", **asked)) == first


def test_another_result_is_refused_and_its_worker_is_told_the_truth(
    registry: RestRegistry, job_id: str
) -> None:
    token = registry.acquire(job_id, "w")
    complete(registry, job_id, token, {"frames": 9})

    for result in ({"frames": 8}, {"success": False}):
        again = registry.facade("complete-job", job_id, "w", fencing_token=token, result=result)
        told = problem(again, 409, "You have already completed it")
        assert told["title"] == "Fenced: no longer the owner"
    other = registry.facade("complete-job", job_id, "w2", fencing_token=token, result={"frames": 9})
    problem(other, 409, "holds nothing")


@pytest.mark.parametrize("end", [{"success": {"result": 1}}, {"failure": {"message": "no"}}])
def test_a_completion_over_v1_sent_again_without_a_key_is_answered_as_before(
    registry: RestRegistry, job_id: str, end: dict[str, Any]
) -> None:
    token = registry.take(job_id, "w")["task_token"]
    first = result_of(registry.act("complete", token, **end))

    assert result_of(registry.act("complete", token, **end)) == first
    batch = {"completions": [{"task_token": token, **end}]}
    [again] = result_of(registry.rest.post("/v1/grants/complete/batch", batch))["answers"]
    assert again["job"] == first
    other = registry.act("complete", token, success={"result": 2})
    problem(other, 409, "You have already completed it")
