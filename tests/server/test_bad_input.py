"""Bad input by Connect: the right code, a sentence that helps, no leak, and the server goes on."""

from datetime import UTC, datetime
from typing import Any

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.core.errors import Invalid
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.server.codecs import codecs
from holdfast.server.context import ServerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.wire.errors import INTERNAL_ERROR
from holdfast.wire.generated.job.v1.job_pb import JobResult
from tests.server.invalid_requests import (
    CALLS,
    ENQUEUE_JOB,
    NAMES,
    NIL,
    NO_NAMES,
    NO_UUIDS,
    OK,
    POISON,
    SAID,
    SPECS,
    STREAMS,
    UUID4,
)
from tests.server.raw_http_client import (
    EVENTS,
    JOBS,
    REGISTRY,
    RawResponse,
    ThreadedServer,
    expect,
    threaded_server,
)
from tests.server.served_registry import ServedRegistry

ENQUEUE = JOBS + "EnqueueJob"
DEQUEUE = JOBS + "DequeueJob"
PUBLISH = EVENTS + "PublishJobEvents"
GOOD = {"jobParams": {"command": "true"}}


# Scenario 5.


@pytest.mark.parametrize("text", NO_UUIDS, ids=range(len(NO_UUIDS)))
def test_what_is_no_uuid_is_invalid_in_job_v1(server: ThreadedServer, text: str) -> None:
    for answer in (
        server.call(ENQUEUE, {**GOOD, "requestId": text}),
        server.call(JOBS + "GetJob", {"jobId": text}),
        server.call(JOBS + "CancelJob", {"jobId": text}),
        server.stream(EVENTS + "StreamJobEvents", [{"jobId": text}]),
        server.stream(DEQUEUE, [{"queue": "none", "requestId": text}]),
    ):
        expect(answer, "invalid_argument", "UUID")


@pytest.mark.parametrize("job_id", [NIL, UUID4, UUID4.upper()])
def test_an_unknown_id_is_not_found(server: ThreadedServer, job_id: str) -> None:
    for answer in (
        server.call(JOBS + "GetJob", {"jobId": job_id}),
        server.call(JOBS + "CancelJob", {"jobId": job_id}),
        server.stream(EVENTS + "StreamJobEvents", [{"jobId": job_id}]),
        *_by_id(server, job_id),
    ):
        expect(answer, "not_found", job_id)


@pytest.mark.parametrize("job_id", NO_UUIDS, ids=range(len(NO_UUIDS)))
def test_no_id_is_strange_enough_to_break_holdfast_v1(server: ThreadedServer, job_id: str) -> None:
    for answer in _by_id(server, job_id):
        expect(answer, "not_found", "There is no job")
    asked = {"requests": [{"spec": {}, "jobId": job_id}], "actor": "user:x"}
    if job_id not in ("x", *NO_UUIDS[2:5]):
        expect(server.call(REGISTRY + "Enqueue", asked), "invalid_argument", "job_id")


def _by_id(server: ThreadedServer, job_id: str) -> list[RawResponse]:
    asked: dict[str, Any] = {"jobId": job_id}
    acted = {**asked, "actor": "user:x"}
    return [
        *(server.call(REGISTRY + m, acted) for m in ("Cancel", "Replay")),
        server.call(REGISTRY + "Handoff", {**acted, "step": "begin"}),
        *(server.call(REGISTRY + m, asked) for m in ("Why", "History", "Logs", "Changes")),
        server.call(REGISTRY + "Acquire", {**asked, "owner": "w"}),
        server.stream(REGISTRY + "Watch", [asked]),
    ]


def test_a_uuid_may_be_written_in_capitals(server: ThreadedServer) -> None:
    job_id = server.enqueue("capitals", requestId=UUID4.upper())

    assert server.enqueue("capitals", requestId=UUID4) == job_id
    assert server.call(JOBS + "GetJob", {"jobId": job_id.upper()}).json()["job"]["jobId"] == job_id


def test_an_expired_token_finds_nothing_and_an_illegal_move_fails_its_precondition() -> None:
    clock = ManualClock(datetime.now(UTC))
    with threaded_server(store=MemoryStore(clock, SystemIds())) as server:
        grant = server.claim("default", lease="60s")
        old, job_id = grant["taskToken"], grant["job"]["jobId"]
        clock.advance(61)
        again = server.call(REGISTRY + "Acquire", {"jobId": job_id, "owner": "w2"}).json()["grant"]

        done = {"taskToken": old, "jobResult": {"success": True}}
        expect(server.call(JOBS + "CompleteJob", done), "not_found", "oken")
        expect(server.call(JOBS + "UpdateJob", {"taskToken": old}), "not_found", "oken")
        said = {"taskToken": old, "events": [{"sequence": 1, "eventType": 5}]}
        expect(server.stream(PUBLISH, [said]), "not_found", "oken")
        stale = server.call(REGISTRY + "Heartbeat", {"taskToken": old})
        expect(stale, "aborted", "oken")
        assert (stale.detail.kind, stale.detail.job_id) == ("Fenced", job_id)
        assert "discard" in stale.detail.advice

        done["taskToken"] = again["taskToken"]
        expect(server.call(JOBS + "CompleteJob", done), OK)
        expect(server.call(JOBS + "CancelJob", {"jobId": job_id}), "failed_precondition", "succ")
        for method, more in (("Cancel", {"actor": "user:x"}), ("Acquire", {"owner": "w"})):
            late = server.call(REGISTRY + method, {"jobId": job_id, **more})
            expect(late, "failed_precondition", "succeeded")
            assert (late.detail.job_id, late.detail.kind) == (job_id, "Conflict")
        server.fine()


def test_a_full_queue_takes_no_more_and_others_do() -> None:
    with threaded_server(ServerSettings(queue_items_max=3)) as server:
        for _ in range(3):
            server.enqueue("full")

        expect(server.call(ENQUEUE, {**GOOD, "queue": "full"}), "resource_exhausted", "workers")
        asked = {"requests": [{"spec": {"queue": "full"}}], "actor": "user:x"}
        full = server.call(REGISTRY + "Enqueue", asked)
        expect(full, "resource_exhausted", "full")
        assert "at most 3" in full.message
        assert "Back off" in full.detail.advice
        asked = {"requests": [{"spec": {"queue": "empty"}}] * 4, "actor": "user:x"}
        expect(server.call(REGISTRY + "Enqueue", asked), "resource_exhausted", "would be")
        server.fine()


# Values.


@pytest.mark.parametrize(("text", "words", "code"), ENQUEUE_JOB, ids=range(len(ENQUEUE_JOB)))
def test_json_is_read_strictly(server: ThreadedServer, text: str, words: str, code: str) -> None:
    expect(server.call(ENQUEUE, text), code, words)


@pytest.mark.parametrize(("spec", "code"), SPECS, ids=range(len(SPECS)))
def test_values_out_of_bounds_are_invalid(server: ThreadedServer, spec: dict[str, Any], code: str) -> None:
    asked = {"requests": [{"spec": spec}], "actor": "user:x"}
    expect(server.call(REGISTRY + "Enqueue", asked), code)


def test_calls_and_streams_refuse_what_makes_no_sense(server: ThreadedServer) -> None:
    for path, asked, code in CALLS:
        expect(server.call(path, asked), code)
    for path, asked, code in STREAMS:
        expect(server.stream(path, [asked]), code)


def test_names_are_names_in_every_place(server: ThreadedServer) -> None:
    for name in NO_NAMES:
        spec = {"requests": [{"spec": {"queue": name}}], "actor": "user:x"}
        expect(server.call(ENQUEUE, {**GOOD, "queue": name}), "invalid_argument", "queue")
        expect(server.stream(DEQUEUE, [{"queue": name}]), "invalid_argument", "queue")
        expect(server.call(REGISTRY + "Enqueue", spec), "invalid_argument", "queue")
        asked = {"queues": [name], "owner": "w"}
        expect(server.call(REGISTRY + "Claim", asked), "invalid_argument", "queue")
        for method in ("Counts", "ListJobs"):
            answer = server.call(REGISTRY + method, {"queue": name} if method[0] == "C" else {})
            expect(answer, OK)
    for name in NAMES:
        expect(server.call(ENQUEUE, {**GOOD, "queue": name}), OK)
        counted = server.call(REGISTRY + "Counts", {"queue": name}).json()["counts"]
        assert counted == {"queued": "1"}, "a name is no pattern"


def test_jobs_made_by_hand_do_not_block_job_v1(server: ThreadedServer) -> None:
    for payload in POISON:
        spec = {"kind": "job.v1", "queue": "poison", "payload": payload}
        made = server.call(REGISTRY + "Enqueue", {"requests": [{"spec": spec}], "actor": "user:x"})
        job_id = made.json()["jobs"][0]["jobId"]
        expect(server.call(JOBS + "GetJob", {"jobId": job_id}), OK)
        [given] = server.stream(DEQUEUE, [{"queue": "poison"}]).messages
        assert given["job"]["jobId"] == job_id
        failure = {"message": "x", "exitCode": str(2**63 - 1), "retryable": False}
        done = {"completions": [{"taskToken": given["taskToken"], "failure": failure}]}
        expect(server.call(REGISTRY + "Complete", done), OK)
        ended = server.call(JOBS + "GetJob", {"jobId": job_id}).json()["job"]["result"]
        assert ended["exitCode"] == 1
    expect(server.call(JOBS + "ListJobs", {"queue": "poison"}), OK)


def test_strange_worker_events_do_not_end_streams_of_job_v1(server: ThreadedServer) -> None:
    grant = server.claim("strange")
    at = {"eventClass": "worker", "occurredAt": "2026-01-01T00:00:00Z"}
    events = [{**at, **said, "sequence": n} for n, said in enumerate(SAID, 1)]
    asked = {"taskToken": grant["taskToken"], "events": events}
    expect(server.call(REGISTRY + "Publish", asked), OK)
    done = {"completions": [{"taskToken": grant["taskToken"], "success": {}}]}
    expect(server.call(REGISTRY + "Complete", done), OK)

    heard = server.stream(EVENTS + "StreamJobEvents", [{"jobId": grant["job"]["jobId"]}])

    expect(heard, OK)
    assert [one["event"]["sequence"] for one in heard.messages] == [str(n + 1) for n in range(7)]


def test_a_worker_cannot_forge_what_is_the_registrys_to_say(server: ThreadedServer) -> None:
    grant = server.claim("forged")
    forged = {
        "eventType": "custom", "eventClass": "transition", "occurredAt": "2026-01-01T00:00:00Z",
        "sequence": 1, "jobId": "other", "offset": 3, "transitionNo": 3, "toState": "succeeded",
        "givenId": "../x", "actor": "user:root", "opId": "\0", "logId": 7, "fencingToken": 99,
    }  # fmt: skip
    asked = {"taskToken": grant["taskToken"], "events": [forged]}
    expect(server.call(REGISTRY + "Publish", asked), OK)

    log = server.call(REGISTRY + "Logs", {"jobId": grant["job"]["jobId"]}).json()["events"]

    kept = next(event for event in log if event["eventType"] == "custom")
    assert (kept["eventClass"], kept["fencingToken"], kept["actor"]) == ("worker", "1", "worker:w")
    assert not {"offset", "transitionNo", "toState", "givenId", "opId"} & set(kept)


@pytest.mark.parametrize("text", ["nope", "", "[" * 65 + "]" * 65, "[" * 400_000, '"\\ud800"'])
def test_a_checkpoint_and_a_result_are_json(server: ThreadedServer, text: str) -> None:
    token = server.claim("json")["taskToken"]
    beat = server.call(REGISTRY + "Heartbeat", {"taskToken": token, "checkpoint": text})
    expect(beat, "invalid_argument", "checkpoint")
    done = {"completions": [{"taskToken": token, "success": {"result": text}}]}
    ended = server.call(REGISTRY + "Complete", done)
    assert ended.json()["answers"][0]["error"]["kind"] == "Invalid"
    server.call(REGISTRY + "Release", {"taskToken": token})


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"eventType": 99},
        {"eventType": 1, "output": {"output": ""}},
        {"eventType": 7, "outputBatch": {"startSequence": 5}},
        {"eventType": 7, "outputBatch": {"endSequence": "9223372036854775807"}},
        {"eventType": 7, "outputBatch": {"outputs": [{}], "firstTimestampMs": str(2**63 - 1)}},
        {"eventType": 7, "outputBatch": {"outputs": [{"timestampDeltaMs": str(2**63 - 1)}]}},
        {"eventType": 7, "outputBatch": {"outputs": [{"timestampDeltaMs": str(-(2**63))}]}},
        {"eventType": 5, "sequence": -1},
    ],
)
def test_events_of_job_v1_are_checked(server: ThreadedServer, event: dict[str, Any]) -> None:
    token = server.claim("events")["taskToken"]
    said = {"taskToken": token, "events": [{"sequence": 1, **event}]}
    expect(server.stream(PUBLISH, [said]), "invalid_argument")
    server.call(REGISTRY + "Release", {"taskToken": token})


def test_an_answer_that_cannot_be_written_is_a_fault_that_says_nothing() -> None:
    for codec in codecs():
        with pytest.raises(ConnectError) as caught:
            codec.encode(JobResult(exit_code=2**40))
        assert (caught.value.code, caught.value.message) == (Code.INTERNAL, INTERNAL_ERROR)


async def test_one_bad_request_among_many_makes_nothing(served: ServedRegistry) -> None:
    good = [JobRequest(spec=Spec(queue="q")) for _ in range(1_500)]
    bad: list[JobRequest] = [
        JobRequest(spec=Spec(queue="q", priority=99)),
        JobRequest(spec=Spec(queue="q"), job_id="not an id"),
        JobRequest(spec=Spec(queue="q"), request_id="r" * 1_000),
    ]
    for one in bad:
        with pytest.raises(Invalid):
            await served.remote.enqueue_many([*good, one], actor="user:a")
        assert await served.registry.counts("q") == {}
