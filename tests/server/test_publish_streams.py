"""Publish streams: how long they may be quiet, and how much of them is in memory."""

import asyncio
import gzip
import json
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.core.access import ANONYMOUS, Principal, Scope
from holdfast.core.errors import Exhausted
from holdfast.core.limits import OUTPUT_EVENT_BYTES_MAX, PUBLISH_BYTES
from holdfast.server.calls import current_principal
from holdfast.server.codecs import fields_in
from holdfast.server.fair_limiter import FairLimiter
from holdfast.server.limits import (
    PUBLISH_BYTES_MAX,
    PUBLISH_IDLE_SECONDS_MAX,
    PUBLISH_MEMORY_BYTES,
    PUBLISH_MEMORY_BYTES_PER_KEY,
    PUBLISH_SECONDS_MAX,
    PUBLISH_STREAMS_PER_KEY_MAX,
    REQUEST_BYTES_MAX,
    STALLED_SECONDS_MAX,
)
from holdfast.server.publish_streams import PublishStream, PublishStreams, publish_memory
from holdfast.testing.simulation.loop import Node, virtual_loop
from holdfast.wire.generated.job.v1 import job_pb as pb
from tests.server.job_v1_worker import framed

T = TypeVar("T")
TOKEN = "t" * 200
HALF = PUBLISH_MEMORY_BYTES // 2


def virtually(work: Coroutine[Any, Any, T]) -> T:
    """What comes of this, in a time that passes at once."""
    loop = virtual_loop()
    task = loop.start(Node("server"), work)
    loop.run(1e6, task.done)
    return task.result()


def coming(*parts: tuple[float, bytes]) -> Any:  # noqa: ANN401
    """A body whose parts come after so many seconds each; then it ends."""
    left = list(parts)

    async def receive() -> dict[str, Any]:
        seconds, data = left.pop(0) if left else (0.0, b"")
        wait = asyncio.get_running_loop().create_future()
        turn = asyncio.get_running_loop().call_later(seconds, wait.set_result, None)
        try:
            await wait
        finally:
            turn.cancel()
        return {"type": "http.request", "body": data, "more_body": bool(left)}

    return receive


async def read(upload: PublishStream, principal: Principal = ANONYMOUS) -> bytes:
    """All that comes through."""
    current_principal.set(principal)
    got = b""
    while True:
        message = await upload()
        got += bytes(message["body"])
        if not message["more_body"]:
            return got


def late(parts: Sequence[tuple[float, bytes]], room: FairLimiter | None = None) -> bool:
    """Whether this stream is ended for being late."""
    upload = PublishStream(coming(*parts), room or publish_memory())
    try:
        virtually(read(upload))
    except ConnectError as error:
        return error.code is Code.DEADLINE_EXCEEDED
    finally:
        upload.close()
    return False


def test_a_stream_may_be_quiet_between_messages_for_as_long_as_a_job_may() -> None:
    one = framed(b"x" * 10)
    quiet = PUBLISH_IDLE_SECONDS_MAX

    assert quiet >= 300, "as long as jobs of these clients are leased"
    assert not late([(0, one), (quiet - 1, one), (quiet - 1, one)])
    assert late([(0, one), (quiet + 1, one)])


@pytest.mark.parametrize("cut", [1, 4, 5, 9])
def test_in_the_middle_of_a_message_a_stream_may_not_be_quiet(cut: int) -> None:
    one = framed(b"x" * 10)

    assert not late([(0, one[:cut]), (STALLED_SECONDS_MAX - 1, one[cut:])])
    assert late([(0, one[:cut]), (STALLED_SECONDS_MAX + 1, one[cut:])])


def test_a_large_message_comes_in_time_or_gives_its_room_back() -> None:
    large = framed(bytes(3_000_000))
    slow = PUBLISH_SECONDS_MAX / 5 + 1
    parts = [(slow, large[n : n + 600_000]) for n in range(0, len(large), 600_000)]
    room = publish_memory()

    assert late(parts, room)
    assert room.bytes_in_use() == 0
    assert not late([(1.0, part) for _, part in parts], publish_memory())


def test_everything_comes_through_as_it_was_sent() -> None:
    small = b"".join(map(framed, (b"", b"a", b"x" * 70, b"{}"))) + b"\0\0"
    body = b"".join(map(framed, (b"", b"a", bytes(2_000_000), b"{}", b"x" * 70_000))) + b"\0\0"
    room = publish_memory()

    for some, size in ((small, 1), (small, 7), (body, 60_000), (body, len(body))):
        parts = [(0.0, some[n : n + size]) for n in range(0, len(some), size)]
        upload = PublishStream(coming(*parts), room)
        assert virtually(read(upload)) == some
        upload.close()

    assert room.bytes_in_use() == 0


def test_a_large_message_is_read_when_there_is_room_for_it() -> None:
    async def body() -> list[str]:
        room, told = publish_memory(), list[str]()

        async def take(name: str, key: str | None, size: int) -> None:
            await room.acquire(key, size)
            told.append(name)

        await take("first", "a", HALF)
        waiting = [
            asyncio.ensure_future(take(*one))
            for one in (("a again", "a", 1), ("other", "b", HALF), ("last", None, 1))
        ]
        await _turns()
        assert told == ["first", "other"], "one key has a part of it only; then all is taken"
        room.release("b", HALF)
        await _turns()
        assert told == ["first", "other", "last"]
        room.release("a", HALF)
        await asyncio.gather(*waiting)
        return told

    assert virtually(body()) == ["first", "other", "last", "a again"]


async def _turns() -> None:
    for _ in range(10):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        await future


def test_whoever_leaves_while_it_waits_takes_no_room() -> None:
    async def body() -> int:
        room = publish_memory()
        await room.acquire(None, PUBLISH_MEMORY_BYTES)
        waiting = asyncio.ensure_future(room.acquire(None, 1))
        await _turns()
        waiting.cancel()
        await _turns()
        granted = asyncio.ensure_future(room.acquire(None, 1))
        await _turns()
        room.release(None, PUBLISH_MEMORY_BYTES)
        assert room.bytes_in_use() == 1
        granted.cancel()
        await _turns()
        return room.bytes_in_use()

    assert virtually(body()) == 0


def test_one_key_does_not_get_all_streams() -> None:
    streams, key = PublishStreams(), Principal("ana", frozenset({Scope.WORK}), key_id="k")
    other = Principal("ben", frozenset({Scope.WORK}), key_id="l")
    seats = [streams.slot(key) for _ in range(PUBLISH_STREAMS_PER_KEY_MAX)]
    for seat in seats:
        seat.__enter__()

    with pytest.raises(Exhausted, match="ana has"), streams.slot(key):
        pass
    with streams.slot(other), streams.slot(ANONYMOUS):
        pass
    seats[0].__exit__(None, None, None)
    with streams.slot(key):
        pass


BINARY = pb.PublishJobEventsRequest(task_token=TOKEN).to_binary()
JSON = json.dumps({"taskToken": TOKEN, "events": []}).encode()


@pytest.mark.parametrize(
    ("message", "flags", "token"),
    [
        (BINARY, 0, TOKEN),
        (pb.PublishJobEventsRequest(task_token="short").to_binary(), 0, "short"),
        (JSON, 0, TOKEN),
        (b'{"task_token": "x"}', 0, "x"),
        (gzip.compress(BINARY, mtime=0), 1, TOKEN),
        (gzip.compress(JSON, mtime=0), 1, TOKEN),
        (b"{}", 0, None),
        (b"", 0, None),
        (b"nonsense", 1, None),
        (b"\n", 0, None),
        (b"\n\xff", 0, None),
    ],
)
def test_the_token_of_a_message_is_seen_before_it_is_decoded(
    message: bytes, flags: int, token: str | None
) -> None:
    upload = PublishStream(coming((0, framed(message, flags))), publish_memory())

    virtually(read(upload))

    assert upload.token == token


def test_fields_are_counted_without_decoding() -> None:
    events = [pb.JobEvent(sequence=n + 1, attempt=1) for n in range(5)]
    batch = pb.OutputBatch(outputs=[pb.OutputItem(output=b"\x08" * 300)] * 3)
    message = pb.PublishJobEventsRequest(task_token="x", events=events).to_binary()
    nested = b"\x12" + _sized(b"\x52" + _sized(batch.to_binary())) + b"\x19" + bytes(8) + b"\x1d" + bytes(4)
    desc = pb.PublishJobEventsRequest.desc()

    assert fields_in(message, desc, 100) == 1 + 5 * 3
    assert fields_in(nested, desc, 100) == 1 + 1 + 3 * 2 + 2
    assert fields_in(message, desc, 10) == 11
    assert fields_in(b"\x13", desc, 10) == 11, "a group is not looked into"
    assert fields_in(b"\x12\xff", desc, 10) == 1, "what is torn is for the decoder"
    behind = message + b"\x12\x7f\x08"
    assert fields_in(behind, desc, 100) > 1 + 5 * 3, "and what is before it is counted"


def test_a_number_that_is_too_long_is_not_read() -> None:
    desc = pb.PublishJobEventsRequest.desc()

    assert fields_in(b"\x08" + b"\xff" * 9 + b"\x01" + b"\x08\x01", desc, 10) == 2
    assert fields_in(b"\x08" + b"\xff" * 10 + b"\x01" + b"\x08\x01", desc, 10) == 1
    assert fields_in(b"\xff" * 1_000, desc, 10) == 0


def _sized(data: bytes) -> bytes:
    assert len(data) < 2**14
    return bytes([len(data) & 127 | 128, len(data) >> 7]) + data


def test_limits_fit_into_each_other() -> None:
    base64 = 4 / 3

    assert base64 * OUTPUT_EVENT_BYTES_MAX + 4096 < REQUEST_BYTES_MAX, "an event fits into a request"
    assert PUBLISH_BYTES <= REQUEST_BYTES_MAX, "what is committed at once is no more than a request"
    assert REQUEST_BYTES_MAX < PUBLISH_BYTES_MAX <= PUBLISH_MEMORY_BYTES_PER_KEY
    assert PUBLISH_MEMORY_BYTES_PER_KEY <= PUBLISH_MEMORY_BYTES, "the largest message gets its turn"
