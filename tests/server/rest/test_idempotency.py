"""Scenario 13 over REST: every change may be sent again under its key, and has the same response."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from holdfast.server.rest import facade, routes
from holdfast.system import SystemIds
from tests.server.access_calls import TASK
from tests.server.rest.rest_client import problem, result_of
from tests.server.rest.rest_registry import MOMENT, RestRegistry, output

Body: TypeAlias = dict[str, Any]
Ready: TypeAlias = Callable[[RestRegistry], tuple[str, Body]]

SPEC = {"kind": "report", "queue": "repeats"}
ONCE = {"max_failures": 1}
CHANGES = {route.path for route in (*routes.ROUTES, *facade.ROUTES) if route.changes}


def about(action: str, body: Body, **spec: object) -> Ready:
    """An action on a new job."""
    return lambda registry: (f"/v1/jobs/{registry.enqueue(**spec)}/{action}", body)


def held(verb: str, **body: object) -> Ready:
    """What an owner does, by a task token."""

    def ready(registry: RestRegistry) -> tuple[str, Body]:
        token = registry.take(registry.enqueue(), "w")["task_token"]
        result_of(registry.act("heartbeat", token))
        return f"/v1/grants/{verb}", {"task_token": token, **body}

    return ready


def front(path: str, **body: object) -> Ready:
    """What an owner does, by a fencing token."""

    def ready(registry: RestRegistry) -> tuple[str, Body]:
        job_id = registry.enqueue()
        token = registry.acquire(job_id, "w")
        asked = {"job_id": job_id, "worker_id": "w", "fencing_token": token}
        return f"/registry/{path}", {**asked, **body}

    return ready


def promising(action: str, body: Body) -> Ready:
    """An action on a job that waits for its verdict."""
    return lambda registry: (f"/v1/jobs/{registry.promising('curve', 'table')}/{action}", body)


def registered(registry: RestRegistry) -> tuple[str, Body]:
    made = result_of(registry.rest.post("/v1/jobs", {"spec": SPEC, "register": True}))
    return f"/v1/jobs/{made['job_id']}/handoff", {"step": "begin"}


def dead(registry: RestRegistry) -> tuple[str, Body]:
    job_id = registry.enqueue(retry=ONCE)
    token = registry.take(job_id, "w")["task_token"]
    assert result_of(registry.act("complete", token, failure={"message": "no"}))["state"] == "dead_lettered"
    return f"/v1/jobs/{job_id}/replay", {}


def claim(registry: RestRegistry) -> tuple[str, Body]:
    queue = registry.job(registry.enqueue())["spec"]["queue"]
    registry.enqueue(queue=queue)
    return "/v1/grants", {"queues": [queue], "owner": "w"}


def several(registry: RestRegistry) -> tuple[str, Body]:
    tokens = [registry.take(registry.enqueue(), "w")["task_token"] for _ in range(2)]
    ended = [{"task_token": one, "success": {"result": 1}} for one in tokens]
    return "/v1/grants/complete/batch", {"completions": ended}


def lapsed(registry: RestRegistry) -> tuple[str, Body]:
    registry.take(registry.enqueue(), "w", lease="PT60S")
    registry.clock.advance(61)
    return "/v1/expire", {}


def fact(_: RestRegistry) -> tuple[str, Body]:
    told = {"event_type": "invoice_sent", "occurred_at": MOMENT, "event_id": SystemIds().new()}
    return "/v1/events", {"events": [told]}


def key(_: RestRegistry) -> tuple[str, Body]:
    return "/v1/keys", {"name": f"key-{SystemIds().new()}", "scopes": ["work"]}


def revoke(registry: RestRegistry) -> tuple[str, Body]:
    made = result_of(registry.rest.post(*key(registry)))
    return f"/v1/keys/{made['key']['key_id']}/revoke", {}


def same(registry: RestRegistry) -> tuple[str, Body]:
    return "/registry/acquire-job", {"job_id": registry.enqueue(), "worker_id": "w"}


def new(_: RestRegistry) -> tuple[str, Body]:
    job_id = SystemIds().new()
    return "/registry/acquire-job", {"job_id": job_id, "worker_id": "w", "create": True}


WAYS: dict[str, Ready] = {
    "/v1/jobs": lambda _: ("/v1/jobs", {"spec": SPEC}),
    "/v1/jobs with nothing": lambda _: ("/v1/jobs", {"spec": SPEC, "request_id": None}),
    "/v1/jobs by its own id": lambda _: ("/v1/jobs", {"spec": SPEC, "job_id": SystemIds().new()}),
    "/v1/jobs/batch": lambda _: ("/v1/jobs/batch", {"requests": [{"spec": SPEC}] * 2}),
    "/v1/jobs/batch with nothing": lambda _: (
        "/v1/jobs/batch", {"requests": [{"spec": SPEC, "request_id": None}, {"spec": SPEC}]},
    ),
    "/v1/jobs/{job_id}/cancel": about("cancel", {}),
    "/v1/jobs/{job_id}/replay": dead,
    "/v1/jobs/{job_id}/handoff": registered,
    "/v1/jobs/{job_id}/acquire": about("acquire", {"owner": "w"}),
    "/v1/jobs to reuse": lambda _: ("/v1/jobs", {"spec": SPEC, "reuse": True}),
    "/v1/jobs/batch to reuse": lambda _: (
        "/v1/jobs/batch", {"requests": [{"spec": SPEC}] * 2, "reuse": True},
    ),
    "/v1/jobs/{job_id}/validation/report": promising("validation/report", {"done": 1, "total": 2}),
    "/v1/jobs/{job_id}/validation/complete": promising(
        "validation/complete", {"found": {"verified": 1, "missing": 1}}
    ),
    "/v1/jobs/{job_id}/validate": promising("validate", {"force": True}),
    "/v1/jobs/{job_id}/resume": lambda registry: (
        f"/v1/jobs/{registry.partial('curve', 'table')}/resume", {},
    ),
    "/v1/manifests": lambda _: ("/v1/manifests", {"tasks": [TASK]}),
    "/v1/grants": claim,
    "/v1/grants/heartbeat": held("heartbeat", progress={"done": 1}),
    "/v1/grants/publish": held("publish", events=[output(1)]),
    "/v1/grants/aggregate": held("aggregate"),
    "/v1/grants/complete": held("complete", success={"result": 1}),
    "/v1/grants/complete/batch": several,
    "/v1/grants/release": held("release"),
    "/v1/events": fact,
    "/v1/expire": lapsed,
    "/v1/prune": lambda _: ("/v1/prune", {"older_than": "P100D"}),
    "/v1/keys": key,
    "/v1/keys/{key_id}/revoke": revoke,
    "/registry/acquire-job": same,
    "/registry/acquire-job and make it": new,
    "/registry/heartbeat": front("heartbeat"),
    "/registry/complete-job": front("complete-job", result={"n": 1}),
    "/registry/release-job": front("release-job", reason="later"),
}  # fmt: skip

COUNTED = {"/v1/expire": "expired", "/v1/events": "recorded"}
"""What counts what it did says 0 of what was done before."""


def test_every_change_is_sent_twice_here() -> None:
    assert {way.partition(" ")[0] for way in WAYS} == CHANGES


@pytest.mark.parametrize("way", WAYS)
def test_a_change_that_is_sent_again_is_answered_as_before(registry: RestRegistry, way: str) -> None:
    path, body = WAYS[way](registry)
    name = SystemIds().new()

    first = registry.rest.post(path, body, idempotency_key=name)
    tail, keys = registry.tail(), result_of(registry.rest.get("/v1/keys"))
    again = registry.rest.post(path, body, idempotency_key=name)
    quoted = registry.rest.post(path, body, idempotency_key=f'"{name}"')

    assert registry.tail() == tail
    assert result_of(registry.rest.get("/v1/keys")) == keys
    expected = result_of(first)
    if way in COUNTED:
        assert expected[COUNTED[way]] >= 1
        expected = {COUNTED[way]: 0}
    for answer in (again, quoted):
        if way == "/v1/keys":  # its text is told once
            problem(answer, 409, expected["key"]["key_id"])
            continue
        told = result_of(answer)
        assert answer.status == first.status
        if way == "/v1/grants/heartbeat":  # each sign of life is one
            told["heartbeats"] = expected["heartbeats"]
        if told.get("existed"):  # only this says that nothing was made now
            assert sorted(told["existed"]) == sorted(job["job_id"] for job in expected["jobs"])
            told["existed"] = []
        assert told == expected


def test_another_payload_under_the_same_key_is_refused(registry: RestRegistry) -> None:
    one, other = {"spec": SPEC}, {"spec": {**SPEC, "payload": 1}}
    made = result_of(registry.rest.post("/v1/jobs", one, idempotency_key="mine"))
    assert result_of(registry.rest.post("/v1/jobs", {**one, "request_id": "mine"})) == made
    result_of(registry.rest.post("/v1/jobs/batch", {"requests": [one]}, idempotency_key="yours"))
    tail = registry.tail()

    for path, asked, name in (
        ("/v1/jobs", other, "mine"),
        ("/v1/jobs/batch", {"requests": [other]}, "yours"),
    ):
        told = problem(registry.rest.post(path, asked, idempotency_key=name), 409)
        assert told["applied"] == "no"
    assert registry.tail() == tail
