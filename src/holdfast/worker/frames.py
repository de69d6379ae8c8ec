"""The messages between a worker and a runner, in length-prefixed msgpack frames over a socket."""

import struct
from collections.abc import Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from holdfast.core.outputs import OutputPromise
from holdfast.worker.executor import Ending

FRAME_BYTES_MAX = 64 * 1024 * 1024
FRAME_BYTES = 1024 * 1024
"""The size that a frame exceeds only if a single message does."""


class Run(Struct, array_like=True, tag=1, gc=False, frozen=True):
    """Begin this attempt. `number` identifies it on this connection; `deadline` is monotonic seconds."""

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
    promise: OutputPromise | None


class Stop(Struct, array_like=True, tag=2, frozen=True):
    """Stop this attempt. `now`: cancel it; otherwise tell it, and let it end by itself."""

    number: int
    now: bool


class Renewed(Struct, array_like=True, tag=3, frozen=True):
    """The lease of this attempt was renewed."""

    number: int
    deadline: float


class CheckpointReply(Struct, array_like=True, tag=4, frozen=True):
    """The reply to a `Checkpoint`: `error` says why it was not stored."""

    number: int
    call: int
    error: str | None


class Compensate(Struct, array_like=True, tag=5, frozen=True):
    """The last attempt has failed: run the compensation of this job."""

    run: Run


class KnownJob(Struct, array_like=True, frozen=True):
    """One kind of job that an app has."""

    kind: str
    isolation: str
    memory_bytes: int | None
    compensates: bool
    only_async: bool = False
    """Whether its handler and its compensation are coroutines: then it takes no thread."""
    queue: str = "default"
    """The queue that its jobs are enqueued in, unless a caller names another."""


class Hello(Struct, array_like=True, tag=11, frozen=True):
    """The first message of a runner: what its app has, or why it could not be loaded."""

    url: str
    known: tuple[KnownJob, ...]
    error: str | None = None
    outputs: str | None = None


class Ended(Struct, array_like=True, tag=12, gc=False, frozen=True):
    """An attempt, or its compensation, is over since `at` (monotonic seconds)."""

    number: int
    ending: Ending
    at: float


class Returned(Struct, array_like=True, tag=17, gc=False, frozen=True):
    """Attempts whose handlers have returned nothing, and since when they are over (monotonic seconds)."""

    numbers: list[int]
    at: list[float]


class EmittedEvent(Struct, array_like=True, tag=13, gc=False, frozen=True):
    """Output, or an event that the handler emitted. `at` is seconds since the epoch."""

    number: int
    event_type: str
    at: float
    stream: str | None = None
    data: bytes | None = None
    attributes: dict[str, object] | None = None


class ProgressUpdate(Struct, array_like=True, tag=14, frozen=True):
    """The progress that the handler reports."""

    number: int
    done: int
    total: int | None
    message: str | None


class Checkpoint(Struct, array_like=True, tag=15, frozen=True):
    """Store this for the next attempt, and reply."""

    number: int
    call: int
    value: bytes


class StopReceived(Struct, array_like=True, tag=16, frozen=True):
    """The handler was told to stop. `thread`: it runs in a thread, which cannot be cancelled."""

    number: int
    thread: bool


ToRunner: TypeAlias = Run | Stop | Renewed | CheckpointReply | Compensate
OfOneAttempt: TypeAlias = Ended | EmittedEvent | ProgressUpdate | Checkpoint | StopReceived
ToWorker: TypeAlias = Hello | Returned | OfOneAttempt

_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()
M = TypeVar("M")


def encode(messages: Sequence[ToRunner] | Sequence[ToWorker]) -> bytes:
    """Return the messages in one frame, or in several when they are large."""
    body = _encoder.encode(messages)
    if len(body) > FRAME_BYTES and len(messages) > 1:
        middle = len(messages) // 2
        return encode(messages[:middle]) + encode(messages[middle:])
    return _LENGTH.pack(len(body)) + body


class FrameDecoder(Generic[M]):
    """Decodes a stream of bytes into messages."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[list[M]]") -> None:
        self._decoder = decoder
        self._pending = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[list[M]]:
        """Yield the messages of each frame that is complete."""
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
            yield messages


def from_worker() -> FrameDecoder[ToRunner]:
    return FrameDecoder(msgspec.msgpack.Decoder(list[ToRunner]))


def from_runner() -> FrameDecoder[ToWorker]:
    return FrameDecoder(msgspec.msgpack.Decoder(list[ToWorker]))
