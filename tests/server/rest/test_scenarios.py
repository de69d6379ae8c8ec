"""Scenarios of the requirements over REST, in the words of `/registry` and in those of `/v1`."""

import asyncio
from contextlib import suppress
from typing import Any

from holdfast.core.errors import Fenced
from holdfast.fencing import (
    Authority,
    CachedAuthority,
    Fence,
    RegistryAuthority,
    SubscribedAuthority,
)
from tests.server.programs import until
from tests.server.rest.rest_client import RestClient, problem, result_of
from tests.server.rest.rest_registry import RestRegistry


def test_a_job_with_an_owner_is_refused_to_others_over_the_registry(registry: RestRegistry) -> None:
    """Scenario 8."""
    job_id = registry.enqueue()
    registry.acquire(job_id, "worker-7")
    before, tail = registry.job(job_id), registry.tail()

    refused = (
        registry.facade("acquire-job", job_id, "worker-9"),
        registry.rest.post(f"/v1/jobs/{job_id}/acquire", {"owner": "worker-9"}),
        registry.facade("heartbeat", job_id, "worker-9", fencing_token=1),
        registry.facade("complete-job", job_id, "worker-9", fencing_token=1),
        registry.facade("release-job", job_id, "worker-9", fencing_token=1),
    )

    for answer in refused:
        told = problem(answer, 409, "owned by worker-7")
        assert told["version"] == before["version"]
    assert problem(refused[0], 409)["detail"] == "Job owned by worker-7."
    assert (registry.job(job_id), registry.tail()) == (before, tail)
    assert registry.status(job_id)["owner"] == "worker-7"


def stale(registry: RestRegistry, job_id: str) -> list[tuple[str, str, int]]:
    """Who was refused what, with which token, as it is recorded."""
    return sorted(
        (one["attributes"]["verb"], one["actor"], one["fencing_token"])
        for one in registry.events(job_id)
        if one["event_type"] == "job_stale_write_rejected"
    )


def test_an_owner_whose_time_is_over_changes_nothing_over_the_registry(
    registry: RestRegistry,
) -> None:
    """Scenario 9."""
    job_id = registry.enqueue()
    old = registry.acquire(job_id, "worker-7", lease="PT60S")
    registry.pass_by(61)
    new = registry.acquire(job_id, "worker-9")
    done = result_of(registry.facade("complete-job", job_id, "worker-9", fencing_token=new, result="nine"))

    for path in ("heartbeat", "complete-job", "release-job"):
        answer = registry.facade(path, job_id, "worker-7", fencing_token=old)
        told = problem(answer, 409)
        assert (told["type"], told["job_id"]) == ("urn:holdfast:Fenced", job_id)
        assert "discard" in told["advice"]

    assert (new > old, done) == (True, {"success": True, "state": "COMPLETED", "attempt": 2})
    assert registry.job(job_id)["result"] == "nine"
    verbs = ("complete", "heartbeat", "release")
    assert stale(registry, job_id) == [(verb, "worker:worker-7", old) for verb in verbs]


def test_a_token_that_was_not_given_yet_is_nobodys(registry: RestRegistry) -> None:
    """Else whoever guesses the next one would have it, once somebody else is given it."""
    job_id = registry.enqueue()
    token = registry.acquire(job_id, "worker-7")
    for call in ("heartbeat", "complete-job", "release-job"):
        problem(registry.facade(call, job_id, "worker-7", fencing_token=token + 1), 409, "not given yet")

    assert registry.types(job_id) == ["job_queued", "job_claimed"]


def test_who_leaves_before_a_job_comes_holds_nothing(registry: RestRegistry) -> None:
    """Scenario 12: the lease of nobody would last for ever, as time stands still."""
    asked = {"queues": ["left"], "owner": "gone", "wait_seconds": 20}
    with suppress(TimeoutError):
        RestClient(registry.server, seconds=0.3).post("/v1/grants", asked)
    job_id = registry.enqueue(queue="left")

    def free() -> Any:  # noqa: ANN401
        return result_of(registry.rest.post("/v1/grants", asked | {"wait_seconds": 0}))["grants"] or None

    assert [one["job"]["job_id"] for one in until(free, "the job")] == [job_id]
    assert registry.types(job_id) == [
        "job_queued",
        "job_claimed",
    ]  # nobody claimed it for who had left


def test_a_worker_of_another_region_is_refused_over_the_registry(registry: RestRegistry) -> None:
    """Scenario 15."""
    job_id = registry.enqueue(region="us-east-1")

    problem(registry.facade("acquire-job", job_id, "w", region="eu-west"), 409, "region us-east-1")
    assert registry.types(job_id) == ["job_queued"]

    assert registry.acquire(job_id, "w") == 1
    assert registry.types(job_id) == ["job_queued", "job_claimed"]


async def verdicts(authority: Authority, job_id: str, *tokens: int) -> list[bool]:
    found = []
    for token in tokens:
        try:
            await authority.check(Fence(resource="account-17", token=token, job_id=job_id))
        except Fenced:
            found.append(False)
        else:
            found.append(True)
    return found


async def test_guards_judge_tokens_that_came_over_rest(registry: RestRegistry) -> None:
    """Scenario 17: 30, 42 and 43, by a guard that asks, one that remembers 41, and one that is told."""
    job_id = registry.enqueue()

    def to_token(wanted: int) -> None:
        token = registry.status(job_id)["fencing_token"]
        while token < wanted:
            if token:
                result_of(registry.facade("release-job", job_id, "w", fencing_token=token))
            token = registry.acquire(job_id, "w")

    remote = registry.server.served.remote()
    cached = CachedAuthority(remote)
    await asyncio.to_thread(to_token, 41)
    assert await verdicts(cached, job_id, 41) == [True]
    async with SubscribedAuthority(remote, beat=0.02, silence=3) as subscribed:
        assert await verdicts(subscribed, job_id, 41) == [True]
        await asyncio.to_thread(to_token, 43)
        for authority in (RegistryAuthority(remote), cached, subscribed):
            assert await verdicts(authority, job_id, 30, 42, 43) == [False, False, True]
    assert subscribed.silent
    assert await verdicts(subscribed, job_id, 30, 42, 43) == [False, False, True]
    await remote.close()


def test_a_cancel_is_told_to_the_owner_who_stops(registry: RestRegistry) -> None:
    """Scenario 21: over `/v1`, where a worker can say that it stopped."""
    job_id = registry.enqueue()
    token = registry.take(job_id, "w")["task_token"]
    result_of(registry.act("heartbeat", token))
    result_of(registry.rest.post(f"/v1/jobs/{job_id}/cancel", {"reason": "enough", "actor": "user:ana"}))

    told = result_of(registry.act("heartbeat", token, checkpoint={"epoch": 3}))
    ended = result_of(registry.act("complete", token, stopped={}))

    assert (told["state"], told["cancel"]["actor"]) == ("running", "user:ana")
    assert (ended["state"], ended["reason"]) == ("cancelled", "enough")
    assert ended["checkpoint"] == {"epoch": 3}


def test_a_cancel_that_is_ignored_ends_the_job_with_its_lease(registry: RestRegistry) -> None:
    """Scenario 21: over `/registry`, whose workers are told by their heartbeats."""
    job_id = registry.enqueue()
    held = {"fencing_token": registry.acquire(job_id, "w", lease="PT60S")}
    before = result_of(registry.facade("heartbeat", job_id, "w", **held))
    result_of(registry.rest.post(f"/v1/jobs/{job_id}/cancel", {}))
    after = result_of(registry.facade("heartbeat", job_id, "w", **held))
    registry.pass_by(61)

    assert (before["cancel_requested"], after["cancel_requested"]) == (False, True)
    assert (registry.status(job_id)["state"], registry.job(job_id)["state"]) == (
        "FAILED",
        "cancelled",
    )
    problem(registry.facade("complete-job", job_id, "w", **held), 409)


def test_after_a_hard_cancel_a_completion_over_the_registry_is_refused(
    registry: RestRegistry,
) -> None:
    """Scenario 21."""
    job_id = registry.enqueue()
    token = registry.acquire(job_id, "w")
    ended = result_of(registry.rest.post(f"/v1/jobs/{job_id}/cancel", {"hard": True}))

    problem(registry.facade("complete-job", job_id, "w", fencing_token=token, result="late"), 409)
    problem(registry.rest.post(f"/v1/jobs/{job_id}/cancel", {}), 409, "cancelled")
    assert ended["state"] == "cancelled"
    assert registry.job(job_id)["result"] is None


def test_a_failure_has_its_traceback_and_a_job_is_found_by_its_arguments(registry: RestRegistry) -> None:
    retry = {"max_failures": 1}
    jobs = [registry.enqueue(kind="fit", payload={"seed": seed}, retry=retry) for seed in (70, 71)]
    token = registry.take(jobs[0], "w")["task_token"]
    failure = {"message": "'b'", "code": "KeyError", "traceback": "Traceback ...\nKeyError: 'b'"}
    registry.act("complete", token, failure=failure)
    fenced = registry.acquire(jobs[1], "w")
    report = {"success": False, "error": "x is undefined", "code": "TypeError", "traceback": "at a.js:7"}
    registry.facade("complete-job", jobs[1], "w", fencing_token=fenced, result=report)

    found = [registry.job(job_id) for job_id in jobs]
    assert [job["error"]["traceback"] for job in found] == [failure["traceback"], "at a.js:7"]
    assert [job["dead_letter"]["last_error"] for job in found] == [
        "KeyError: 'b'",
        "TypeError: x is undefined",
    ]
    listed = result_of(registry.rest.get("/v1/jobs?kind=fit&arguments[seed]=71"))
    assert [job["job_id"] for job in listed["jobs"]] == [jobs[1]]
