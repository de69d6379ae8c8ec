"""Capacity: how much of a server each key may use at a time, by what its calls cost. Calls of one kind
never wait for those of another: a heavy read cannot delay a heartbeat."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from holdfast.core.errors import Exhausted
from holdfast.ports import Clock
from holdfast.server import limits
from holdfast.server.calls import current_principal
from holdfast.server.edge import Receive, Scope, Send
from holdfast.server.fair_limiter import Bounds, FairLimiter
from holdfast.server.listener import connections_max
from holdfast.wire.verbs import Load

T = TypeVar("T")

_BOUNDS = {
    Load.OWNER: Bounds(
        slots=limits.OWNER_CALLS_MAX,
        slots_per_key=limits.OWNER_CALLS_PER_KEY_MAX,
        bytes_per_key=limits.OWNER_RESPONSES_BYTES_PER_KEY_MAX,
        waiting=limits.OWNER_CALLS_WAITING_MAX,
        waiting_per_key=limits.OWNER_CALLS_WAITING_PER_KEY_MAX,
        seconds=limits.SLOT_SECONDS_MAX,
    ),
    Load.LIGHT: Bounds(
        slots=limits.LIGHT_CALLS_MAX,
        slots_per_key=limits.LIGHT_CALLS_PER_KEY_MAX,
        bytes_per_key=limits.RESPONSES_BYTES_PER_KEY_MAX,
        waiting=limits.LIGHT_CALLS_WAITING_MAX,
        waiting_per_key=limits.LIGHT_CALLS_WAITING_PER_KEY_MAX,
        seconds=limits.SLOT_SECONDS_MAX,
    ),
    Load.HEAVY: Bounds(
        slots=limits.HEAVY_READS_MAX,
        slots_per_key=limits.HEAVY_READS_PER_KEY_MAX,
        bytes=limits.RESPONSES_BYTES_MAX,
        bytes_per_key=limits.RESPONSES_BYTES_PER_KEY_MAX,
        waiting=limits.HEAVY_READS_WAITING_MAX,
        waiting_per_key=limits.HEAVY_READS_WAITING_PER_KEY_MAX,
        seconds=limits.SLOT_SECONDS_MAX,
    ),
    Load.CHORE: Bounds(
        slots=limits.CHORES_MAX,
        slots_per_key=limits.CHORES_PER_KEY_MAX,
        bytes_per_key=limits.RESPONSES_BYTES_PER_KEY_MAX,
        waiting=limits.CHORES_WAITING_MAX,
        waiting_per_key=limits.CHORES_WAITING_PER_KEY_MAX,
        seconds=limits.SLOT_SECONDS_MAX,
    ),
}
_BODIES = Bounds(
    bytes=limits.BODIES_BYTES_MAX,
    bytes_per_key=limits.BODIES_BYTES_PER_KEY_MAX,
    waiting=limits.BODIES_WAITING_MAX,
    waiting_per_key=limits.BODIES_WAITING_PER_KEY_MAX,
    seconds=limits.SLOT_SECONDS_MAX,
)
_NAMES = {
    Load.OWNER: "calls of owners",
    Load.LIGHT: "calls",
    Load.HEAVY: "heavy reads",
    Load.CHORE: "long calls",
}


class Capacity:
    """The limiters of one server: one for each kind of call, and one for the bodies of requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limiters = {load: FairLimiter(_NAMES[load], bounds) for load, bounds in _BOUNDS.items()}
        self._bodies = FairLimiter("large requests", _BODIES)

    @asynccontextmanager
    async def slot(self, load: Load, *, jobs: int = 0) -> AsyncIterator[None]:
        """Wait for a slot for the current call, in fair order; `Exhausted` when its key has too many calls
        that wait. The bytes of a heavy read, or of this many `jobs`, are acquired first, and held until its
        response is sent."""
        if load is Load.WAIT:
            yield
            return
        limiter, key = self._limiters[load], current_principal.get().key_id
        size = limits.RESPONSE_BYTES_MAX if load is Load.HEAVY else jobs * limits.JOB_DATA_BYTES_MAX
        try:
            await limiter.acquire(key, size)
        except Exhausted:
            await self._clock.sleep(limits.REFUSAL_SECONDS)  # else the client asks again at once
            raise
        try:
            yield
        finally:
            exchange = current_exchange.get()
            if exchange is None:
                limiter.release(key, size)
            else:
                exchange.hold_response(limiter, key, size)
                limiter.release(key)

    def exchange(self, scope: Scope, receive: Receive, send: Send) -> "Exchange":
        """Return a request and its response, whose bytes are counted here."""
        return Exchange(self._limiters[Load.LIGHT], self._bodies, scope, receive, send)

    def limiters(self) -> Iterator[tuple[str, FairLimiter]]:
        """Return every limiter with its label in the metrics."""
        yield from self._limiters.items()
        yield "body", self._bodies


class Exchange:
    """The bytes of one request and of its response, for as long as they are in memory. Those of the
    response are counted in the limiter where its call had a slot, so that a client that does not read
    delays calls of its own key only; `responses` is the limiter of a call that took no slot."""

    def __init__(
        self,
        responses: FairLimiter,
        bodies: FairLimiter,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._responses = responses
        self._bodies = bodies
        self._request_bytes = _body_size(scope)
        self._in_chunks = "http.response.trailers" not in scope.get("extensions", ())
        self._receive = receive
        self._send = send
        self._key: str | None = None
        self._response_held = 0
        self._request_held = 0
        self._begun = False
        self._closed = False

    def hold_response(self, limiter: FairLimiter, key: str | None, size: int) -> None:
        """Hold the bytes that were acquired in this limiter for the response, until it is sent."""
        if self._closed:  # the client left while the response was made
            limiter.release(key, size, slot=False)
            return
        self._release()  # it may have had a slot before, in another limiter
        self._responses = limiter
        self._key = key
        self._response_held = size

    async def receive(self) -> dict[str, Any]:
        """Return the next part of the request. A large one waits for memory first."""
        if not self._begun:
            self._begun = True
            if self._request_bytes > limits.BODY_BYTES_SMALL:
                self._key = _key()
                await self._bodies.acquire(self._key, self._request_bytes)
                self._request_held = self._request_bytes
        return await self._receive()

    async def send(self, message: dict[str, Any]) -> None:
        """Send a part of the response, in chunks, each when the last is sent. Large parts are counted."""
        body = message.get("body", b"")
        if message["type"] != "http.response.body" or len(body) <= limits.SEND_BYTES:
            await self._send(message)
            return
        self._count(len(body))
        if self._in_chunks:
            await self._send_chunks(message, body)
        else:
            await self._send(message)
        self._release()

    async def _send_chunks(self, message: dict[str, Any], body: bytes) -> None:
        more = message.get("more_body", False)
        for start in range(0, len(body), limits.SEND_BYTES):
            chunk = body[start : start + limits.SEND_BYTES]
            last = start + limits.SEND_BYTES >= len(body)
            await self._send({**message, "body": chunk, "more_body": more or not last})

    def _count(self, size: int) -> None:
        """Hold exactly this many bytes for the response."""
        if not self._response_held:
            self._key = _key()
        if size < self._response_held:
            self._responses.release(self._key, self._response_held - size, slot=False)
        else:
            self._responses.add_bytes(self._key, size - self._response_held)
        self._response_held = size

    def close(self) -> None:
        """Release all bytes: the response is sent, or never will be."""
        self._closed = True
        self._release()
        if self._request_held:
            self._bodies.release(self._key, self._request_held)
            self._request_held = 0

    def _release(self) -> None:
        """Release the bytes of the response."""
        if self._response_held:
            self._responses.release(self._key, self._response_held, slot=False)
            self._response_held = 0


current_exchange: ContextVar[Exchange | None] = ContextVar("holdfast_exchange", default=None)
"""The exchange of the current call."""


def _key() -> str | None:
    principal = current_principal.get(None)
    return None if principal is None else principal.key_id


def _body_size(scope: Scope) -> int:
    """Return how large a request may become in memory: as declared, or once it is unpacked."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return limits.REQUEST_BYTES_MAX
    length = headers.get(b"content-length", b"")
    size = int(length) if length.isdigit() else 0
    if headers.get(b"content-encoding", b"identity") != b"identity":
        size *= limits.GZIP_RATIO_MAX
    return min(size, limits.REQUEST_BYTES_MAX)


async def in_thread_if_heavy(load: Load, work: Callable[[], T]) -> T:
    """Return the result of `work`; for a heavy read it runs in a thread, so that the loop stays free."""
    return await asyncio.to_thread(work) if load is Load.HEAVY else work()


class WaitLimit:
    """Bounds the calls that wait for an event, in all and per key. Each takes a connection, but no slot."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._of_key: Counter[str | None] = Counter()

    def waiting(self) -> int:
        """Return how many calls wait now."""
        return self._count

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Count the current call while it waits; `Exhausted` when too many wait already."""
        key_id = _key()
        if (why := self._full(key_id)) is not None:
            await self._clock.sleep(limits.REFUSAL_SECONDS)  # else the client asks again at once
            raise Exhausted(why)
        self._count += 1
        self._of_key[key_id] += 1
        try:
            yield
        finally:
            self._count -= 1
            self._of_key[key_id] -= 1
            if not self._of_key[key_id]:
                del self._of_key[key_id]

    def _full(self, key_id: str | None) -> str | None:
        """Return why no other call of this key may wait, or None when it may."""
        most = max(1, connections_max() // limits.WAITING_SHARE)
        if self._count >= limits.WAITING_MAX:
            return f"{limits.WAITING_MAX:,} clients wait here already."
        if key_id is not None and self._of_key[key_id] >= most:
            return f"{most:,} clients wait here already with this key."
        return None
