"""Limits by Connect, each at the limit, one beyond it and a thousand times: none gives way."""

import base64
import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from connectrpc.code import Code
from protobuf import Message

from holdfast.core import limits
from holdfast.core.task_token import TASK_TOKEN_CHARACTERS_MAX
from holdfast.server.limits import (
    CLAIM_ITEMS_MAX,
    OFFSET_ITEMS_MAX,
    PUBLISH_BYTES_MAX,
    QUEUES_PER_CLAIM_MAX,
    REQUEST_BYTES_MAX,
)
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old
from tests.server.connect_client import refusal
from tests.server.raw_http_client import (
    EVENTS,
    JOBS,
    REGISTRY,
    RawResponse,
    ThreadedServer,
    expect,
)
from tests.server.served_registry import ServedRegistry, traced

Ask: TypeAlias = Callable[[int], tuple[str, dict[str, Any]]]
INVALID, EXHAUSTED = "invalid_argument", "resource_exhausted"
AT = "2026-01-01T00:00:00Z"


def _request(**request: object) -> tuple[str, dict[str, Any]]:
    return REGISTRY + "Enqueue", {"requests": [{"spec": {}, **request}], "actor": "user:x"}


def _spec(**spec: object) -> tuple[str, dict[str, Any]]:
    return _request(spec=spec)


def _claim(**more: object) -> tuple[str, dict[str, Any]]:
    return REGISTRY + "Claim", {"queues": ["none"], "owner": "w", **more}


def _recorded(n: int) -> tuple[str, dict[str, Any]]:
    event = {"eventType": "it_was", "eventClass": "external", "occurredAt": AT, "givenId": "e"}
    return REGISTRY + "Record", {"events": [event] * n}


def _text(n: int) -> str:
    """JSON of so many bytes."""
    return '"' + "x" * (n - 2) + '"'


LIMITS: dict[str, tuple[int, Ask]] = {
    "payload": (limits.PAYLOAD_BYTES_MAX, lambda n: _spec(payload=_text(n))),
    "kind": (limits.ID_CHARACTERS_MAX, lambda n: _spec(kind="k" * n)),
    "queue": (limits.QUEUE_CHARACTERS_MAX, lambda n: _spec(queue="q" * n)),
    "region": (limits.ID_CHARACTERS_MAX, lambda n: _spec(region="r" * n)),
    "lock": (limits.ID_CHARACTERS_MAX, lambda n: _spec(lock="l" * n)),
    "name": (limits.LABEL_CHARACTERS_MAX, lambda n: _spec(name="n" * n)),
    "labels": (limits.LABELS_MAX, lambda n: _spec(labels={str(k): "v" for k in range(n)})),
    "label": (limits.LABEL_CHARACTERS_MAX, lambda n: _spec(labels={"k": "v" * (n - 1)})),
    "priority": (limits.PRIORITY_MAX, lambda n: _spec(priority=n)),
    "failures": (limits.ATTEMPTS_MAX, lambda n: _spec(retry={"maxFailures": n})),
    "lease": (24 * 3600, lambda n: _spec(lease=f"{n}s")),
    "delay": (366 * 86400, lambda n: _spec(delay=f"{n}s")),
    "ttl": (3660 * 86400, lambda n: _spec(ttl=f"{n}s")),
    "timeout": (3660 * 86400, lambda n: _spec(timeout=f"{n}s")),
    "request_id": (limits.ID_CHARACTERS_MAX, lambda n: _request(requestId="r" * n)),
    "job_id": (limits.ID_CHARACTERS_MAX, lambda n: _request(jobId="j" * n)),
    "trace_id": (limits.ID_CHARACTERS_MAX, lambda n: _request(traceId="t" * n)),
    "submitted_by": (limits.ID_CHARACTERS_MAX, lambda n: _request(submittedBy="s" * n)),
    "owner": (limits.ID_CHARACTERS_MAX, lambda n: _claim(owner="o" * n)),
    "op_id": (limits.ID_CHARACTERS_MAX, lambda n: _claim(opId="o" * n)),
    "queues": (QUEUES_PER_CLAIM_MAX, lambda n: _claim(queues=["none"] * n)),
    "jobs read": (
        limits.BATCH_ITEMS_MAX,
        lambda n: (REGISTRY + "Status", {"jobIds": ["x"] * n}),
    ),
    "jobs made": (
        limits.BATCH_ITEMS_MAX,
        lambda n: (REGISTRY + "Enqueue", {"requests": [{"spec": {"name": "x"}}] * n}),
    ),
    "completions": (
        limits.BATCH_ITEMS_MAX,
        lambda n: (REGISTRY + "Complete", {"completions": [{"taskToken": "x"}] * n}),
    ),
    "facts": (limits.BATCH_ITEMS_MAX, _recorded),
    "page": (limits.PAGE_ITEMS_MAX, lambda n: (REGISTRY + "ListJobs", {"limit": n})),
    "feed": (limits.PAGE_ITEMS_MAX, lambda n: (REGISTRY + "Events", {"limit": n})),
    "page_size": (limits.PAGE_ITEMS_MAX, lambda n: (JOBS + "ListJobs", {"pageSize": n})),
    "depth": (OFFSET_ITEMS_MAX, lambda n: (JOBS + "ListJobs", {"pageSize": 1, "page": n})),
    "filter": (
        limits.LABEL_CHARACTERS_MAX,
        lambda n: (REGISTRY + "ListJobs", {"which": {"queue": "q" * n}}),
    ),
}


@pytest.mark.parametrize("what", LIMITS)
def test_a_limit_is_kept_to_the_last(server: ThreadedServer, what: str) -> None:
    most, ask = LIMITS[what]

    expect(server.call(*ask(most)), "ok")
    expect(server.call(*ask(most + 1)), INVALID)
    path, asked = ask(_far(most, ask))
    large = len(json.dumps(asked)) > REQUEST_BYTES_MAX
    expect(server.call(path, asked), EXHAUSTED if large else INVALID)


def _far(most: int, ask: Ask) -> int:
    """A thousand times the limit, or as much as is far too large as a whole."""
    return most * min(1000, 2 + 4 * REQUEST_BYTES_MAX // len(json.dumps(ask(most))))


OWNED: dict[str, tuple[int, Ask]] = {
    "checkpoint": (
        limits.CHECKPOINT_BYTES_MAX,
        lambda n: ("Heartbeat", {"checkpoint": _text(n)}),
    ),
    "attributes": (
        limits.ATTRIBUTES_BYTES_MAX,
        lambda n: ("Publish", {"events": [_said(attributes=f'{{"a":{_text(n - 6)}}}')]}),
    ),
    "output": (
        limits.OUTPUT_EVENT_BYTES_MAX,
        lambda n: ("Publish", {"events": [_said(eventType="output", data=_base64(n))]}),
    ),
    "stream": (
        limits.ID_CHARACTERS_MAX,
        lambda n: ("Publish", {"events": [_said(eventType="output", stream="s" * n)]}),
    ),
    "events": (
        limits.EVENTS_PER_PUBLISH_MAX,
        lambda n: ("Publish", {"events": [_said(sequence=k + 1) for k in range(n)]}),
    ),
    "lease": (24 * 3600, lambda n: ("Heartbeat", {"lease": f"{n}s"})),
    "delay": (366 * 86400, lambda n: ("Release", {"delay": f"{n}s"})),
}


def _said(**event: object) -> dict[str, Any]:
    return {
        "eventType": "custom", "eventClass": "worker", "occurredAt": AT, "sequence": 1, **event
    }  # fmt: skip


def _base64(n: int) -> str:
    return base64.b64encode(bytes(n)).decode()


@pytest.mark.parametrize("what", OWNED)
def test_a_limit_of_owners_is_kept_to_the_last(server: ThreadedServer, what: str) -> None:
    most, ask = OWNED[what]
    token = server.claim(f"owned-{what}")["taskToken"]

    for n in (_far(most, ask), most + 1, most):
        method, asked = ask(n)
        answer = server.call(REGISTRY + method, {"taskToken": token, **asked})
        large = len(json.dumps(asked)) > REQUEST_BYTES_MAX
        expect(answer, "ok" if n == most else EXHAUSTED if large else INVALID)


def test_a_result_has_a_limit(server: ThreadedServer) -> None:
    token = server.claim("result")["taskToken"]
    for n in (limits.RESULT_BYTES_MAX + 1, limits.RESULT_BYTES_MAX):
        done = {"completions": [{"taskToken": token, "success": {"result": _text(n)}}]}
        [answer] = server.call(REGISTRY + "Complete", done).json()["answers"]
        assert ("job" in answer) == (n == limits.RESULT_BYTES_MAX)


def test_limits_of_published_events_in_job_v1(server: ThreadedServer) -> None:
    token = server.claim("published")["taskToken"]

    def publish(events: list[dict[str, Any]]) -> RawResponse:
        return server.stream(EVENTS + "PublishJobEvents", [{"taskToken": token, "events": events}])

    def output(n: int) -> dict[str, Any]:
        return {"sequence": 1, "eventType": 5, "output": {"output": _base64(n)}}

    most = limits.EVENTS_PER_PUBLISH_MAX
    many = [{"sequence": n + 2, "eventType": 4} for n in range(most + 1)]
    expect(publish([output(limits.OUTPUT_EVENT_BYTES_MAX + 1)]), INVALID, "bytes")
    expect(publish([output(10 * limits.OUTPUT_EVENT_BYTES_MAX)]), INVALID, "bytes")
    expect(publish([output(PUBLISH_BYTES_MAX)]), EXHAUSTED, "larger than 32 MiB")
    expect(publish([output(limits.OUTPUT_EVENT_BYTES_MAX)]), "ok")
    expect(publish(many), "ok")
    expect(publish([{"sequence": n + 9000} for n in range(most)]), INVALID, "Event 9000")


def test_a_task_token_has_a_length(server: ThreadedServer) -> None:
    for n, code in ((0, INVALID), (1, ""), (2, INVALID), (1000, INVALID)):
        length = n if n < 2 else TASK_TOKEN_CHARACTERS_MAX * (n - 1) + 1
        for answer in _with(server, "x" * (TASK_TOKEN_CHARACTERS_MAX if n == 1 else length)):
            expect(answer, code or "not_found", "task token")


def _with(server: ThreadedServer, token: str) -> list[RawResponse]:
    asked = {"taskToken": token}
    return [
        *(server.call(REGISTRY + m, asked) for m in ("Heartbeat", "Aggregate", "Release", "Publish")),
        server.call(JOBS + "UpdateJob", asked),
        server.call(JOBS + "CompleteJob", {**asked, "jobResult": {}}),
        server.stream(EVENTS + "PublishJobEvents", [asked]),
    ]


def test_a_claim_gets_no_more_than_its_share(server: ThreadedServer) -> None:
    asked = {"requests": [{"spec": {"queue": "share"}}] * (CLAIM_ITEMS_MAX + 20)}
    expect(server.call(REGISTRY + "Enqueue", asked), "ok")

    got = server.call(*_claim(queues=["share"], limit=limits.BATCH_ITEMS_MAX)).json()["grants"]

    assert len(got) == CLAIM_ITEMS_MAX
    left = server.stream(JOBS + "DequeueJob", [{"queue": "share", "maxJobs": 2**31 - 1}]).messages
    assert len(left) == 20


HUGE = "x" * 900_000


def _huge(number: int) -> list[tuple[str, Message]]:
    """Calls with a name that no queue, kind, region or executor has."""
    name = f"{number}{HUGE}"
    claims = [
        pb.ClaimRequest(queues=[name], owner="w"),
        pb.ClaimRequest(queues=["a"], owner="w", kinds=[name]),
        pb.ClaimRequest(queues=["a"], owner="w", region=name),
        pb.ClaimRequest(queues=["a"], owner="w", executor=name),
    ]
    made = pb.JobRequest(job_id="made", spec=pb.Spec(queue=name))
    return [
        *(("claim", one) for one in claims),
        *(("changes", pb.ChangesRequest(claim=one)) for one in claims),
        ("enqueue", pb.EnqueueRequest(requests=[made], actor="user:a")),
        ("acquire", pb.AcquireRequest(job_id="made", owner="w", create=made)),
    ]


async def test_refused_names_are_not_remembered(served: ServedRegistry) -> None:
    async def refused(number: int) -> None:
        for method, asked in _huge(number):
            told = await refusal(getattr(served.connect.registry, method)(asked))
            assert (method, told.code) == (method, Code.INVALID_ARGUMENT)
        echo = old.JobParams(command="echo")
        made = old.EnqueueJobRequest(queue=f"{number}{HUGE}", job_params=echo)
        assert (await refusal(served.connect.jobs.enqueue_job(made))).code is Code.INVALID_ARGUMENT

    await refused(0)
    with traced() as grown:
        for number in range(1, 5):
            await refused(number)
        assert grown() < 3_000_000
