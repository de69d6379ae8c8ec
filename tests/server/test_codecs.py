"""Codecs: a message of very many parts is refused before it is decoded, which would block the server."""

import json
from typing import Any

import httpx
import pytest
from connectrpc.code import Code
from connectrpc.codec import Codec
from connectrpc.errors import ConnectError
from protobuf.wkt import Timestamp

from holdfast.core.errors import Invalid
from holdfast.core.limits import BATCH_ITEMS_MAX, EVENTS_PER_PUBLISH_MAX, FOLLOW_UPS_MAX
from holdfast.registry.local import LocalRegistry
from holdfast.server.codecs import codecs, publish_codecs
from holdfast.server.context import ServerSettings
from holdfast.server.limits import PUBLISH_FIELDS_MAX, REQUEST_BYTES_MAX, REQUEST_FIELDS_MAX
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from holdfast.wire import requests
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb
from holdfast.wire.verbs import VERBS
from tests.server.running_server import serving

BINARY, JSON = codecs()
LARGE_BINARY, LARGE_JSON = publish_codecs()
VERB = {verb.name: verb for verb in VERBS}


def refused(codec: Codec, data: bytes, kind: type[Any], fields: int) -> None:
    with pytest.raises(ConnectError, match=f"more than {fields:,} fields") as caught:
        codec.decode(data, kind)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED


def test_a_request_of_very_many_parts_is_not_decoded() -> None:
    many = REQUEST_FIELDS_MAX + 1
    follow_ups = b"\x3a\x00" * many
    size = len(follow_ups)
    within = b"\x0a" + bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14)) + follow_ups

    refused(BINARY, b"\x0a\x00" * many, pb.CompleteRequest, REQUEST_FIELDS_MAX)
    refused(BINARY, within, pb.CompleteRequest, REQUEST_FIELDS_MAX)
    listed = b'{"completions":[%b]}' % b",".join([b"{}"] * many)
    refused(JSON, listed, pb.CompleteRequest, REQUEST_FIELDS_MAX)
    refused(JSON, b"[]" * many, pb.CompleteRequest, REQUEST_FIELDS_MAX)


def test_what_is_in_a_text_is_no_part() -> None:
    payload = json.dumps([{"a,b": "{:}"}] * 30_000)
    asked = pb.EnqueueRequest(requests=[pb.JobRequest(spec=pb.Spec(payload=payload))])

    for codec in (BINARY, JSON):
        data = codec.encode(asked)
        assert len(data) < REQUEST_BYTES_MAX
        assert codec.decode(data, pb.EnqueueRequest) == asked


def test_as_many_parts_as_a_batch_may_have_are_decoded() -> None:
    one = pb.JobRequest(spec=pb.Spec(kind="k", queue="q", payload="1"), request_id="r")

    for codec, each in ((BINARY, 20), (JSON, 12)):
        ended = pb.Completion(task_token="t", op_id="o", follow_ups=[one] * each)
        asked = pb.CompleteRequest(completions=[ended] * BATCH_ITEMS_MAX)
        data = codec.encode(asked)
        assert REQUEST_BYTES_MAX // 4 < len(data) < REQUEST_BYTES_MAX
        assert codec.decode(data, pb.CompleteRequest) == asked


def test_an_upload_of_very_many_brackets_is_not_decoded() -> None:
    data = b"[]" * REQUEST_BYTES_MAX

    refused(LARGE_JSON, data, job_pb.PublishJobEventsRequest, PUBLISH_FIELDS_MAX)
    assert LARGE_BINARY.name() == "proto"


@pytest.mark.parametrize(
    ("verb", "field", "most"),
    [
        ("enqueue", "requests", BATCH_ITEMS_MAX),
        ("complete", "completions", BATCH_ITEMS_MAX),
        ("publish", "events", EVENTS_PER_PUBLISH_MAX),
        ("record", "events", BATCH_ITEMS_MAX),
    ],
)
@pytest.mark.parametrize("over", [0, 1, 5_000])
def test_of_a_list_that_is_too_long_no_more_is_understood(
    verb: str, field: str, most: int, over: int
) -> None:
    event = pb.Event(event_type="x", event_class="worker", occurred_at=Timestamp(seconds=1))
    message, item = {
        "enqueue": (pb.EnqueueRequest, pb.JobRequest(spec=pb.Spec(payload="1"))),
        "complete": (pb.CompleteRequest, pb.Completion()),
        "publish": (pb.PublishRequest, event),
        "record": (pb.RecordRequest, event),
    }[verb]
    asked = message(**{field: [item] * (most + over)})

    ask = VERB[verb].decode_request(asked)

    assert len(getattr(ask, field)) == most + min(over, 1), "one too many: the verb refuses it"


def test_too_many_follow_ups_are_refused_before_they_are_understood() -> None:
    wrong = [pb.JobRequest()] * (FOLLOW_UPS_MAX + 7)
    few = [pb.JobRequest(spec=pb.Spec(payload="1"))]
    asked = pb.CompleteRequest(completions=[pb.Completion(follow_ups=wrong), pb.Completion(follow_ups=few)])

    [first, second] = VERB["complete"].decode_request(asked).completions

    assert isinstance(first, Invalid)
    assert "107 follow-ups at once" in first.message
    assert isinstance(second, requests.AttemptCompletion)


async def test_so_is_a_body_of_very_many_parts_by_rest() -> None:
    body = b'{"completions":[%b]}' % b",".join([b"{}"] * REQUEST_FIELDS_MAX)

    registry = LocalRegistry(MemoryStore(SystemClock(), SystemIds()), SystemIds())
    async with serving(registry, ServerSettings()) as served, httpx.AsyncClient() as client:
        said = {"content-type": "application/json", "idempotency-key": "one"}
        place = f"{served.url}/v1/grants/complete/batch"
        answer = await client.post(place, content=body, headers=said)
        assert answer.status_code == 413
        assert f"more than {REQUEST_FIELDS_MAX:,} fields" in answer.json()["detail"]
    await registry.close()
