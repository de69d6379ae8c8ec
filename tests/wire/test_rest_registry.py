"""`/registry` reports failures, declares heartbeats, and is answered as before when it asks again."""

from collections.abc import Iterator
from typing import Any

import pytest
from rest_client import problem, said
from rest_scenes import Play, playing

from holdfast.core.retry import Retry


@pytest.fixture(scope="module")
def here() -> Iterator[Play]:
    with playing() as play:
        yield play


@pytest.fixture
def job_id(here: Play) -> str:
    """A job of nobody yet, in a queue of its own."""
    return here.enqueue()


def complete(here: Play, job_id: str, token: int, result: object) -> dict[str, Any]:
    return dict(said(here.front("complete-job", job_id, "w", fencing_token=token, result=result)))


def error(here: Play, job_id: str) -> dict[str, Any]:
    """What is said of the failure that is not said of every one."""
    usual = {
        "retryable": True,
        "stage": "exec",
        "exit_code": None,
        "crash": False,
        "not_understood": False,
        "not_started": False,
    }
    told = here.job(job_id)["error"]
    return {name: value for name, value in told.items() if value != usual.get(name)}


def test_a_result_without_success_fails_the_attempt_and_the_job_is_tried_again(
    here: Play, job_id: str
) -> None:
    token = here.acquire(job_id, "w")

    told = complete(here, job_id, token, {"success": False, "error": "disk full"})

    assert told == {"success": False, "state": "PENDING", "attempt": 2}
    job = here.job(job_id)
    assert (job["state"], job["failures"]) == ("queued", 1)
    assert error(here, job_id) == {"message": "disk full", "code": "Failed"}
    early = problem(here.front("acquire-job", job_id, "w2"), 409)
    assert "not ready before" in early["detail"]
    here.clock.advance(60)
    assert here.acquire(job_id, "w2") == token + 1


def test_a_job_made_by_acquiring_is_for_no_worker_of_ours_unless_it_says_so(here: Play) -> None:
    for job_id, spec in (("bare", {"queue": "q"}), ("said", {"queue": "q", "kind": "command"})):
        here.acquire(job_id, "w", create=True, spec=spec)

    assert here.job("bare")["spec"]["kind"] == "external"
    assert here.job("said")["spec"]["kind"] == "command"


def test_a_job_made_by_acquiring_that_always_fails_ends(here: Play) -> None:
    states, job_id = [], "poison"
    for _ in range(Retry().max_failures):
        token = here.acquire(job_id, "w", create=True)
        told = complete(here, job_id, token, {"success": False})
        states.append((told["success"], told["state"], told["attempt"]))
        here.clock.advance(60)

    assert states == [
        (False, "PENDING", 2),
        (False, "PENDING", 3),
        (False, "PENDING", 4),
        (False, "PENDING", 5),
        (False, "FAILED", 5),
    ]
    assert here.job(job_id)["state"] == "dead_lettered"
    assert here.status(job_id)["state"] == "FAILED"
    problem(here.front("acquire-job", job_id, "w", create=True), 409)


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
            {"message": 'The worker reported a failure. It said {"frame":7}.', "code": "Failed"},
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
    here: Play, job_id: str, result: dict[str, Any], kept: dict[str, Any]
) -> None:
    token = here.acquire(job_id, "w")

    complete(here, job_id, token, {"success": False, **result})

    assert error(here, job_id) == kept


def test_a_failure_that_is_not_to_be_tried_again_ends_the_job(here: Play, job_id: str) -> None:
    token = here.acquire(job_id, "w")

    told = complete(here, job_id, token, {"success": False, "error": "no", "retryable": False})

    assert told == {"success": False, "state": "FAILED", "attempt": 1}
    assert here.job(job_id)["state"] == "failed"


@pytest.mark.parametrize(
    "result",
    [None, 7, False, [{"success": False}], {}, {"frames": 9}, {"success": True, "exit_code": 3}],
)
def test_any_other_result_is_kept_whole(here: Play, job_id: str, result: object) -> None:
    token = here.acquire(job_id, "w")

    told = complete(here, job_id, token, result)

    assert told == {"success": True, "state": "COMPLETED", "attempt": 1}
    assert here.job(job_id).get("result") == result


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
    here: Play, job_id: str, result: dict[str, Any]
) -> None:
    token = here.acquire(job_id, "w")

    answer = here.front("complete-job", job_id, "w", fencing_token=token, result=result)

    problem(answer, 422, "true or false" if len(result) == 1 else "no report of a failure")
    assert here.status(job_id)["state"] == "RUNNING"
    assert complete(here, job_id, token, 1)["state"] == "COMPLETED"


@pytest.mark.parametrize("reason", ["error", "error: disk full", "Error 7", "error_disk_full"])
def test_giving_back_because_of_an_error_is_a_failure(here: Play, job_id: str, reason: str) -> None:
    token = here.acquire(job_id, "w")

    told = said(here.front("release-job", job_id, "w", fencing_token=token, reason=reason))

    assert told == {"state": "PENDING", "attempt": 2}
    assert here.job(job_id)["failures"] == 1
    assert error(here, job_id) == {"message": reason, "code": "Released"}
    problem(here.front("acquire-job", job_id, "w"), 409, "not ready before")


def test_a_job_that_is_given_back_with_an_error_each_time_ends(here: Play, job_id: str) -> None:
    for _ in range(Retry().max_failures):
        token = here.acquire(job_id, "w")
        told = said(
            here.front("release-job", job_id, "w", fencing_token=token, reason="error: again")
        )
        here.clock.advance(60)

    assert told == {"state": "FAILED", "attempt": 5}


@pytest.mark.parametrize("reason", [None, "node drained", "errors are not mine", "no error"])
def test_giving_back_for_any_other_reason_costs_nothing(
    here: Play, job_id: str, reason: str | None
) -> None:
    for attempt in range(2, 12):
        token = here.acquire(job_id, "w")
        told = said(here.front("release-job", job_id, "w", fencing_token=token, reason=reason))
        assert told == {"state": "PENDING", "attempt": attempt}

    assert here.job(job_id).get("failures", 0) == 0


def test_an_owner_that_declared_heartbeats_loses_the_job_after_three_misses(
    here: Play, job_id: str
) -> None:
    told = said(here.front("acquire-job", job_id, "w", heartbeat_interval="PT2S"))
    assert (told["lease_seconds"], told["heartbeat_seconds"]) == (6.0, 2.0)
    token = told["fencing_token"]
    for _ in range(3):
        here.clock.advance(5)
        renewed = said(here.front("heartbeat", job_id, "w", fencing_token=token))
        assert renewed["lease_seconds"] == 6.0

    here.clock.advance(5.9)
    problem(here.front("acquire-job", job_id, "w2"), 409, "Job owned by w.")
    here.clock.advance(0.2)
    assert here.acquire(job_id, "w2") == token + 1

    late = here.front("complete-job", job_id, "w", fencing_token=token, result=1)
    assert problem(late, 409, "is stale")["title"] == "Not the owner any more"
    assert here.status(job_id)["owner"] == "w2"


def test_an_owner_that_declared_none_is_told_to_show_ten_signs_of_life_in_a_lease(
    here: Play, job_id: str
) -> None:
    told = said(here.front("acquire-job", job_id, "w"))

    assert (told["lease_seconds"], told["heartbeat_seconds"]) == (300.0, 30.0)


def test_heartbeats_are_declared_over_v1_just_so(here: Play, job_id: str) -> None:
    first = here.take(job_id, "w", heartbeat_interval="PT2S")
    assert first["lease_seconds"] == 6.0

    here.clock.advance(6.1)

    assert here.take(job_id, "w2")["fencing_token"] == first["fencing_token"] + 1


@pytest.mark.parametrize("result", [{"frames": 9}, {"success": False, "error": "disk full"}])
def test_a_result_handed_in_again_is_answered_as_before(
    here: Play, job_id: str, result: dict[str, Any]
) -> None:
    token = here.acquire(job_id, "w")
    first = complete(here, job_id, token, result)
    here.clock.advance(60)
    if first["state"] == "PENDING":
        here.acquire(job_id, "w2")
    tail = here.tail()

    assert complete(here, job_id, token, result) == first
    assert here.tail() == tail


@pytest.mark.parametrize("reason", [None, "later", "error: disk full"])
def test_a_job_given_back_again_is_answered_as_before(
    here: Play, job_id: str, reason: str | None
) -> None:
    token = here.acquire(job_id, "w")
    asked = {"fencing_token": token, "reason": reason}
    first = said(here.front("release-job", job_id, "w", **asked))
    here.clock.advance(60)
    here.acquire(job_id, "w2")

    assert said(here.front("release-job", job_id, "w", **asked)) == first


def test_another_result_is_refused_and_its_worker_is_told_the_truth(
    here: Play, job_id: str
) -> None:
    token = here.acquire(job_id, "w")
    complete(here, job_id, token, {"frames": 9})

    for result in ({"frames": 8}, {"success": False}):
        again = here.front("complete-job", job_id, "w", fencing_token=token, result=result)
        told = problem(again, 409, "You have already completed it")
        assert told["title"] == "Not the owner any more"
    other = here.front("complete-job", job_id, "w2", fencing_token=token, result={"frames": 9})
    problem(other, 409, "holds nothing")


@pytest.mark.parametrize("end", [{"success": {"result": 1}}, {"failure": {"message": "no"}}])
def test_a_completion_over_v1_sent_again_without_a_key_is_answered_as_before(
    here: Play, job_id: str, end: dict[str, Any]
) -> None:
    token = here.take(job_id, "w")["task_token"]
    first = said(here.act("complete", token, **end))

    assert said(here.act("complete", token, **end)) == first
    batch = {"completions": [{"task_token": token, **end}]}
    [again] = said(here.rest.post("/v1/grants/complete/batch", batch))["answers"]
    assert again["job"] == first
    other = here.act("complete", token, success={"result": 2})
    problem(other, 409, "You have already completed it")
