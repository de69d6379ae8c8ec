"""The channel from a runner to its worker: what handlers report, gathered for a moment, in frames."""

import asyncio
import threading
from collections import deque

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.event import Attributes
from holdfast.core.job import Failure
from holdfast.core.limits import OUTPUT_CHUNK_BYTES_MAX, clip
from holdfast.runner.errors import Cancelled
from holdfast.system import SystemClock
from holdfast.worker.executor import Ending
from holdfast.worker.frames import (
    Checkpoint,
    EmittedEvent,
    Ended,
    Hello,
    ProgressUpdate,
    Returned,
    ToWorker,
    encode,
)

GATHER_SECONDS = 0.02


class FrameSender:
    """Sends messages to the worker; those of one iteration of the loop go in one frame."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self.loop = loop
        self.clock = SystemClock()
        self.paused = False
        self._room = threading.Event()
        self._closed = False
        self._transport = transport
        self._thread = threading.get_ident()
        self._waiting: list[ToWorker] = []
        self._calls: dict[int, asyncio.Future[None]] = {}
        self._last_call = 0

    def post(self, message: ToWorker) -> None:
        """Send the message, with all others of this iteration of the loop. On the loop only."""
        if not self._waiting:
            self.loop.call_soon(self._send)
        self._waiting.append(message)

    def returned(self, number: int) -> None:
        """Report that the handler of this attempt has returned nothing. On the loop only."""
        now = self.clock.monotonic()
        last = self._waiting[-1] if self._waiting else None
        if type(last) is Returned:  # what was sent before stays before
            last.numbers.append(number)
            last.at.append(now)
        else:
            self.post(Returned([number], [now]))

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            self._transport.write(encode(waiting))
        except (TypeError, ValueError, OverflowError, RecursionError):
            for message in waiting:  # one cannot be encoded; the others must still arrive
                self._transport.write(_encode_one(message))

    def pause(self) -> None:
        """Stop sending: the worker lags behind."""
        self._room.clear()
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._room.set()

    def close(self) -> None:
        """Send nothing any more. A function that goes on in a thread ends with what it reports next."""
        self._closed = self.paused = True
        self._room.set()

    def on_loop(self) -> bool:
        """Whether the caller is in the thread of the loop."""
        return threading.get_ident() == self._thread

    def wait(self) -> None:
        """Wait while the worker lags: this slows a thread down that reports more than the worker can take."""
        if not self.on_loop():
            self._room.wait()
        if self._closed:
            raise Cancelled("The worker of this job is gone.")

    def checkpoint(self, number: int, value: bytes) -> "asyncio.Future[None]":
        self._last_call += 1
        stored: asyncio.Future[None] = self.loop.create_future()
        self._calls[self._last_call] = stored
        self.post(Checkpoint(number, self._last_call, value))
        return stored

    def finish_checkpoint(self, call: int, error: Exception | None) -> None:
        stored = self._calls.pop(call, None)
        if stored is None or stored.done():
            return
        if error is None:
            stored.set_result(None)
        else:
            stored.set_exception(error)


class FrameChannel:
    """The channel of one attempt. Used from any thread; everything is sent from the loop, in order."""

    __slots__ = ("_gathering", "_number", "_pieces", "_sender")

    def __init__(self, sender: FrameSender, number: int) -> None:
        self._sender = sender
        self._number = number
        self._pieces: deque[tuple[str, bytes]] = deque()
        self._gathering = False

    def write(self, stream: str, data: bytes) -> None:
        """Gather output for a moment: `print` writes a line in several pieces."""
        sender = self._sender
        if sender.paused:
            sender.wait()
        self._pieces.append((stream, data))
        if self._gathering:
            return
        self._gathering = True
        if sender.on_loop():
            sender.loop.call_later(GATHER_SECONDS, self.flush)
        else:
            sender.loop.call_soon_threadsafe(sender.loop.call_later, GATHER_SECONDS, self.flush)

    def flush(self) -> None:
        """Send what was written so far. On the loop only. Threads may write meanwhile, so the flag is
        cleared before the pieces are read."""
        self._gathering = False
        pieces = self._pieces
        if not pieces:
            return
        now = self._sender.clock.now().timestamp()
        stream = pieces[0][0]
        gathered: list[bytes] = []
        while pieces:
            other, data = pieces.popleft()
            if other != stream:
                self._send_output(stream, b"".join(gathered), now)
                stream, gathered = other, []
            gathered.append(data)
        self._send_output(stream, b"".join(gathered), now)

    def _send_output(self, stream: str, data: bytes, now: float) -> None:
        for start in range(0, len(data), OUTPUT_CHUNK_BYTES_MAX):
            piece = data[start : start + OUTPUT_CHUNK_BYTES_MAX]
            self._sender.post(EmittedEvent(self._number, WorkerEventType.OUTPUT, now, stream, piece))

    def emit(self, event_type: WorkerEventType, attributes: Attributes) -> None:
        now = self._sender.clock.now().timestamp()
        self._post(EmittedEvent(self._number, event_type, now, None, None, attributes))

    def progress(self, done: int, total: int | None, message: str | None) -> None:
        self._post(ProgressUpdate(self._number, done, total, message))

    def _post(self, message: ToWorker) -> None:
        if self._sender.paused:
            self._sender.wait()
        if self._sender.on_loop():
            self._after_output(message)
        else:
            self._sender.loop.call_soon_threadsafe(self._after_output, message)

    def _after_output(self, message: ToWorker) -> None:
        self.flush()
        self._sender.post(message)

    def checkpoint(self, value: bytes) -> "asyncio.Future[None]":
        return self._sender.checkpoint(self._number, value)


def _encode_one(message: ToWorker) -> bytes:
    """Return the encoded message, or a failure in its place: an attempt must always end."""
    try:
        return encode([message])
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        assert not isinstance(message, Hello | Returned)  # these contain plain texts and numbers only
        words = f"A message of the handler could not be sent to the worker: {error}."
        failure = Failure(message=clip(words), code=type(error).__name__, retryable=False)
        return encode([Ended(message.number, Ending(failure=failure), at=0.0)])
