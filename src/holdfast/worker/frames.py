"""What a worker and a runner say to each other, in length-prefixed msgpack frames over a socket."""

import struct
from collections.abc import Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from holdfast.core.outputs import Promise
from holdfast.worker.executor import Ending

FRAME_BYTES_MAX = 64 * 1024 * 1024
FRAME_BYTES = 1024 * 1024
"""What a frame should not exceed, unless a single message does."""


class Run(Struct, array_like=True, tag=1, gc=False, frozen=True):
    """Begin this attempt. `number` names it between the two; `deadline` is monotonic seconds."""

    number: int
    kind: str
    job_id: str
    payload: bytes
    attempt: int
    fencing_token: int
    lock: str | None
    deadline: float
    queue: str
    correlation_id: str
    trace_id: str | None
    checkpoint: bytes | None
    traceparent: str | None
    promise: Promise | None


class Stop(Struct, array_like=True, tag=2, frozen=True):
    """Stop this attempt. `now`: cancel it; otherwise tell it, and let it end by itself."""

    number: int
    now: bool


class Renewed(Struct, array_like=True, tag=3, frozen=True):
    """The lease of this attempt was renewed."""

    number: int
    deadline: float


class Answer(Struct, array_like=True, tag=4, frozen=True):
    """The answer to a `Checkpoint`: nothing, or why it was not kept."""

    number: int
    call: int
    error: str | None


class Compensate(Struct, array_like=True, tag=5, frozen=True):
    """The last attempt has failed: run the compensation of this job."""

    run: Run


class Known(Struct, array_like=True, frozen=True):
    """One kind of job that an app has."""

    kind: str
    isolation: str
    memory_bytes: int | None
    compensates: bool


class Hello(Struct, array_like=True, tag=11, frozen=True):
    """The first word of a runner: what its app has, or why it could not be loaded."""

    url: str
    known: tuple[Known, ...]
    error: str | None = None
    outputs: str | None = None


class Ended(Struct, array_like=True, tag=12, gc=False, frozen=True):
    """An attempt, or its compensation, is over since `at` (monotonic seconds)."""

    number: int
    ending: Ending
    at: float


class Said(Struct, array_like=True, tag=13, gc=False, frozen=True):
    """Output, or an event of the handler's own. `at` is seconds since the epoch."""

    number: int
    event_type: str
    at: float
    stream: str | None = None
    data: bytes | None = None
    attributes: dict[str, object] | None = None


class Advanced(Struct, array_like=True, tag=14, frozen=True):
    """How far the handler says it is."""

    number: int
    done: int
    total: int | None
    message: str | None


class Checkpoint(Struct, array_like=True, tag=15, frozen=True):
    """Keep this for the next attempt, and answer."""

    number: int
    call: int
    value: bytes


class Told(Struct, array_like=True, tag=16, frozen=True):
    """The handler was told to stop. `thread`: it runs in a thread, and cannot be made to."""

    number: int
    thread: bool


ToRunner: TypeAlias = Run | Stop | Renewed | Answer | Compensate
ToWorker: TypeAlias = Hello | Ended | Said | Advanced | Checkpoint | Told

_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()
M = TypeVar("M")


def encode(messages: Sequence[ToRunner] | Sequence[ToWorker]) -> bytes:
    """The messages in one frame, or in several when they are large."""
    body = _encoder.encode(messages)
    if len(body) > FRAME_BYTES and len(messages) > 1:
        middle = len(messages) // 2
        return encode(messages[:middle]) + encode(messages[middle:])
    return _LENGTH.pack(len(body)) + body


class Frames(Generic[M]):
    """Cuts a stream of bytes into messages."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[list[M]]") -> None:
        self._decoder = decoder
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[M]:
        self._pending += data
        while len(self._pending) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._pending)
            if length > FRAME_BYTES_MAX:
                raise ValueError(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._pending) < end:
                return
            messages = self._decoder.decode(memoryview(self._pending)[_LENGTH.size : end])
            del self._pending[:end]
            yield from messages


def from_worker() -> Frames[ToRunner]:
    return Frames(msgspec.msgpack.Decoder(list[ToRunner]))


def from_runner() -> Frames[ToWorker]:
    return Frames(msgspec.msgpack.Decoder(list[ToWorker]))
