"""Scenarios of the requirements over REST, in the words of `/registry` and in those of `/v1`."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from rest_client import Rest, problem, said
from rest_scenes import Play, output, playing
from test_wire_words import WORDS, brought_to
from wire_bad_client import JOBS
from wire_foreign_world import until
from wire_load_clients import Clients
from wire_scenes import Scene

from holdfast.core.errors import Fenced
from holdfast.core.state import State
from holdfast.fencing import Authoritative, Authority, Cached, Fence, Subscribed


@pytest.fixture(scope="module")
def here() -> Iterator[Play]:
    with playing() as play:
        yield play


def test_twenty_equal_requests_at_once_make_one_job(here: Play) -> None:
    """Scenario 2."""
    asked = {"spec": {"kind": "report", "queue": "twenty", "payload": {"n": 1}}}

    def ask(_: int) -> Any:  # noqa: ANN401
        return said(Rest(here.server).post("/v1/jobs", asked, idempotency_key="once"))

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(ask, range(20)))
    again = said(here.rest.post("/v1/jobs", {**asked, "request_id": "once"}))
    asked["spec"]["payload"] = {"n": 2}
    other = here.rest.post("/v1/jobs", asked, idempotency_key="once")

    assert {one["job_id"] for one in answers} == {again["job_id"]}
    assert here.types(again["job_id"]) == ["job_queued"]
    problem(other, 409)


def test_a_job_with_an_owner_is_refused_to_others_by_its_name(here: Play) -> None:
    """Scenario 8."""
    job_id = here.enqueue()
    here.acquire(job_id, "worker-7")
    before, tail = here.job(job_id), here.tail()

    refused = (
        here.front("acquire-job", job_id, "worker-9"),
        here.rest.post(f"/v1/jobs/{job_id}/acquire", {"owner": "worker-9"}),
        here.front("heartbeat", job_id, "worker-9", fencing_token=1),
        here.front("complete-job", job_id, "worker-9", fencing_token=1),
        here.front("release-job", job_id, "worker-9", fencing_token=1),
    )

    for answer in refused:
        told = problem(answer, 409, "owned by worker-7")
        assert told["version"] == before["version"]
    assert problem(refused[0], 409)["detail"] == "Job owned by worker-7."
    assert (here.job(job_id), here.tail()) == (before, tail)
    assert here.status(job_id)["owner"] == "worker-7"


def stale(here: Play, job_id: str) -> list[tuple[str, str, int]]:
    """Who was refused what, with which token, as it is recorded."""
    return sorted(
        (one["attributes"]["verb"], one["actor"], one["fencing_token"])
        for one in here.events(job_id)
        if one["event_type"] == "job_stale_write_rejected"
    )


def test_an_owner_whose_time_is_over_changes_nothing_over_the_registry(here: Play) -> None:
    """Scenario 9."""
    job_id = here.enqueue()
    old = here.acquire(job_id, "worker-7", lease="PT60S")
    here.pass_by(61)
    new = here.acquire(job_id, "worker-9")
    done = said(here.front("complete-job", job_id, "worker-9", fencing_token=new, result="nine"))

    for path in ("heartbeat", "complete-job", "release-job"):
        answer = here.front(path, job_id, "worker-7", fencing_token=old)
        told = problem(answer, 409)
        assert (told["type"], told["job_id"]) == ("urn:holdfast:Fenced", job_id)
        assert "discard" in told["advice"]

    assert (new > old, done) == (True, {"success": True, "state": "COMPLETED", "attempt": 2})
    assert here.job(job_id)["result"] == "nine"
    verbs = ("complete", "heartbeat", "release")
    assert stale(here, job_id) == [(verb, "worker:worker-7", old) for verb in verbs]


def test_an_owner_whose_time_is_over_changes_nothing_over_v1(here: Play) -> None:
    """Scenario 9."""
    job_id = here.enqueue()
    old = here.take(job_id, "worker-7", lease="PT60S")
    here.pass_by(61)
    new = here.take(job_id, "worker-9")
    asked: dict[str, dict[str, Any]] = {
        "heartbeat": {},
        "publish": {"events": [output(1)]},
        "aggregate": {},
        "complete": {"success": {"result": "seven"}},
        "release": {},
    }

    for verb, more in asked.items():
        told = problem(here.act(verb, old["task_token"], **more), 409)
        assert told["type"] == "urn:holdfast:Fenced", verb
    said(here.act("complete", new["task_token"], success={"result": "nine"}))

    assert here.job(job_id)["result"] == "nine"
    assert "output" not in here.types(job_id)
    assert stale(here, job_id) == [
        (verb, "worker:worker-7", old["fencing_token"]) for verb in sorted(asked)
    ]


def test_a_token_that_was_not_given_yet_is_nobodys(here: Play) -> None:
    """Else whoever guesses the next one would have it, once somebody else is given it."""
    job_id = here.enqueue()
    token = here.acquire(job_id, "worker-7")
    for call in ("heartbeat", "complete-job", "release-job"):
        problem(here.front(call, job_id, "worker-7", fencing_token=token + 1), 409, "not given yet")

    assert here.types(job_id) == ["job_queued", "job_claimed"]


def test_who_leaves_before_a_job_comes_holds_nothing(here: Play) -> None:
    """Scenario 12: the lease of nobody would last for ever, as time stands still."""
    asked = {"queues": ["left"], "owner": "gone", "wait_seconds": 20}
    with suppress(TimeoutError):
        Rest(here.server, seconds=0.3).post("/v1/grants", asked)
    job_id = here.enqueue(queue="left")

    def free() -> Any:  # noqa: ANN401
        return said(here.rest.post("/v1/grants", asked | {"wait_seconds": 0}))["grants"] or None

    assert [one["job"]["job_id"] for one in until(free, "the job")] == [job_id]
    assert here.types(job_id) == ["job_queued", "job_claimed"]  # nobody claimed it for who had left


def test_two_jobs_of_one_lock_run_one_after_the_other(here: Play) -> None:
    """Scenario 14."""
    one, two = here.enqueue(lock="disk"), here.enqueue(lock="disk")
    first = here.acquire(one, "worker-7")

    problem(here.front("acquire-job", two, "worker-9"), 409, "locked by job")
    said(here.front("complete-job", one, "worker-7", fencing_token=first))
    second = here.acquire(two, "worker-9")

    assert second > first
    assert said(here.rest.get("/v1/locks/disk"))["holder"] == two


def test_a_worker_of_another_region_is_refused_and_one_of_none_is_not(here: Play) -> None:
    """Scenario 15."""
    job_id = here.enqueue(region="us-east-1")
    queue = here.job(job_id)["spec"]["queue"]
    claim = {"queues": [queue], "owner": "w", "region": "eu-west"}

    problem(here.front("acquire-job", job_id, "w", region="eu-west"), 409, "region us-east-1")
    assert said(here.rest.post("/v1/grants", claim)) == {"grants": []}
    assert here.types(job_id) == ["job_queued"]

    assert here.acquire(job_id, "w") == 1
    assert here.types(job_id) == ["job_queued", "job_claimed"]


def test_a_released_job_is_pending_and_its_old_token_is_dead(here: Play) -> None:
    """Scenario 16."""
    job_id = here.enqueue()
    first = here.acquire(job_id, "worker-7")

    released = here.front(
        "release-job", job_id, "worker-7", fencing_token=first, reason="rolling update"
    )
    second = said(here.front("acquire-job", job_id, "worker-9"))

    assert said(released) == {"state": "PENDING", "attempt": 2}
    assert (second["attempt"], second["fencing_token"] > first) == (2, True)
    problem(here.front("heartbeat", job_id, "worker-7", fencing_token=first), 409)
    [requeued] = [one for one in here.events(job_id) if one["event_type"] == "job_requeued"]
    assert requeued["reason"] == "rolling update"


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


def test_guards_judge_tokens_that_came_over_rest(here: Play) -> None:
    """Scenario 17: 30, 42 and 43, by a guard that asks, one that remembers 41, and one that is told."""
    job_id = here.enqueue()

    def to_token(wanted: int) -> None:
        token = here.status(job_id)["fencing_token"]
        while token < wanted:
            if token:
                said(here.front("release-job", job_id, "w", fencing_token=token))
            token = here.acquire(job_id, "w")

    async def body() -> None:
        remote = here.server.served.remote()
        cached = Cached(remote)
        await asyncio.to_thread(to_token, 41)
        assert await verdicts(cached, job_id, 41) == [True]
        async with Subscribed(remote, beat=0.02, silence=3) as subscribed:
            assert await verdicts(subscribed, job_id, 41) == [True]
            await asyncio.to_thread(to_token, 43)
            for authority in (Authoritative(remote), cached, subscribed):
                assert await verdicts(authority, job_id, 30, 42, 43) == [False, False, True]
        assert subscribed.silent
        assert await verdicts(subscribed, job_id, 30, 42, 43) == [False, False, True]
        await remote.close()

    asyncio.run(body())


def test_a_cancel_is_told_to_the_owner_who_stops(here: Play) -> None:
    """Scenario 21: over `/v1`, where a worker can say that it stopped."""
    job_id = here.enqueue()
    token = here.take(job_id, "w")["task_token"]
    said(here.act("heartbeat", token))
    said(here.rest.post(f"/v1/jobs/{job_id}/cancel", {"reason": "enough", "actor": "user:ana"}))

    told = said(here.act("heartbeat", token, checkpoint={"epoch": 3}))
    ended = said(here.act("complete", token, stopped={}))

    assert (told["state"], told["cancel"]["actor"]) == ("running", "user:ana")
    assert (ended["state"], ended["reason"]) == ("cancelled", "enough")
    assert ended["checkpoint"] == {"epoch": 3}


def test_a_cancel_that_is_ignored_ends_the_job_with_its_lease(here: Play) -> None:
    """Scenario 21: over `/registry`, whose workers are told by their heartbeats."""
    job_id = here.enqueue()
    held = {"fencing_token": here.acquire(job_id, "w", lease="PT60S")}
    before = said(here.front("heartbeat", job_id, "w", **held))
    said(here.rest.post(f"/v1/jobs/{job_id}/cancel", {}))
    after = said(here.front("heartbeat", job_id, "w", **held))
    here.pass_by(61)

    assert (before["cancel_requested"], after["cancel_requested"]) == (False, True)
    assert (here.status(job_id)["state"], here.job(job_id)["state"]) == ("FAILED", "cancelled")
    problem(here.front("complete-job", job_id, "w", **held), 409)


def test_after_a_hard_cancel_the_owners_completion_is_refused(here: Play) -> None:
    """Scenario 21; and a job that was never claimed never runs."""
    job_id, waiting = here.enqueue(), here.enqueue()
    token = here.acquire(job_id, "w")
    ended = said(here.rest.post(f"/v1/jobs/{job_id}/cancel", {"hard": True}))
    said(here.rest.post(f"/v1/jobs/{waiting}/cancel", {}))

    problem(here.front("complete-job", job_id, "w", fencing_token=token, result="late"), 409)
    problem(here.front("acquire-job", waiting, "w"), 409)
    problem(here.rest.post(f"/v1/jobs/{job_id}/cancel", {}), 409, "cancelled")
    assert ended["state"] == "cancelled"
    assert here.job(job_id)["result"] is None
    assert here.types(waiting) == ["job_queued", "job_cancelled"]


FRONT = {
    "PENDING": "pending submitting queued",
    "RUNNING": "assigned running aggregating validating",
    "COMPLETED": "succeeded",
    "FAILED": "partial_success failed cancelled timeout dead_lettered",
}
"""The words of `/registry`: the requirements, 2.2."""


def test_every_state_has_its_word_in_each_protocol() -> None:
    """Scenario 35: `/registry`, `/v1`, job.v1 and the commands, about one job in every state."""
    with playing() as here:
        url, registry = here.server.served.url, here.server.registry
        scene = Scene(Clients(url), here.server.served.remote(), registry, here.store, here.clock)
        made = {}
        for state in sorted(State, key=lambda one: one is not State.TIMEOUT):  # time passes first
            made[state] = here.server.do(brought_to(scene, state)).job_id
        command = [sys.executable, "-m", "holdfast", "list", "--json"]
        environment = {**os.environ, "HOLDFAST_STORE": url}
        listed = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
        shown = {one["job_id"]: one["state"] for one in msgspec.json.decode(listed)["jobs"]}

        assert sorted(" ".join(FRONT.values()).split()) == sorted(State)
        for state, job_id in made.items():
            old = here.server.call(JOBS + "GetJob", {"jobId": job_id}).json()["job"]["state"]
            page = said(here.rest.get(f"/v1/jobs?states={state}"))["jobs"]
            assert state in FRONT[here.status(job_id)["state"]].split()
            assert here.job(job_id)["state"] == shown[job_id] == state
            assert old == f"JOB_STATE_{WORDS[state].name}"
            assert [one["job_id"] for one in page] == [job_id]
