"""Capacity: how much of a server each key may use at a time, by what its calls cost. Calls of one kind never
wait for those of another: what is heavy cannot delay an owner's sign of life."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from holdfast.core.errors import Exhausted
from holdfast.ports import Clock
from holdfast.server import limits
from holdfast.server.calls import who
from holdfast.server.door import Receive, Scope, Send
from holdfast.server.room import Bounds, Room
from holdfast.wire.verbs import Load

T = TypeVar("T")

_BOUNDS = {
    Load.OWNER: Bounds(
        places=limits.OWNER_CALLS_MAX,
        places_per_key=limits.OWNER_CALLS_PER_KEY_MAX,
        bytes_per_key=limits.OWNER_ANSWERS_BYTES_PER_KEY_MAX,
        waiting=limits.OWNER_CALLS_WAITING_MAX,
        waiting_per_key=limits.OWNER_CALLS_WAITING_PER_KEY_MAX,
        seconds=limits.TURN_SECONDS_MAX,
    ),
    Load.LIGHT: Bounds(
        places=limits.LIGHT_CALLS_MAX,
        places_per_key=limits.LIGHT_CALLS_PER_KEY_MAX,
        bytes_per_key=limits.ANSWERS_BYTES_PER_KEY_MAX,
        waiting=limits.LIGHT_CALLS_WAITING_MAX,
        waiting_per_key=limits.LIGHT_CALLS_WAITING_PER_KEY_MAX,
        seconds=limits.TURN_SECONDS_MAX,
    ),
    Load.HEAVY: Bounds(
        places=limits.HEAVY_READS_MAX,
        places_per_key=limits.HEAVY_READS_PER_KEY_MAX,
        bytes=limits.ANSWERS_BYTES_MAX,
        bytes_per_key=limits.ANSWERS_BYTES_PER_KEY_MAX,
        waiting=limits.HEAVY_READS_WAITING_MAX,
        waiting_per_key=limits.HEAVY_READS_WAITING_PER_KEY_MAX,
        seconds=limits.TURN_SECONDS_MAX,
    ),
    Load.CHORE: Bounds(
        places=limits.CHORES_MAX,
        places_per_key=limits.CHORES_PER_KEY_MAX,
        bytes_per_key=limits.ANSWERS_BYTES_PER_KEY_MAX,
        waiting=limits.CHORES_WAITING_MAX,
        waiting_per_key=limits.CHORES_WAITING_PER_KEY_MAX,
        seconds=limits.TURN_SECONDS_MAX,
    ),
}
_BODIES = Bounds(
    bytes=limits.BODIES_BYTES_MAX,
    bytes_per_key=limits.BODIES_BYTES_PER_KEY_MAX,
    waiting=limits.BODIES_WAITING_MAX,
    waiting_per_key=limits.BODIES_WAITING_PER_KEY_MAX,
    seconds=limits.TURN_SECONDS_MAX,
)
_WORDS = {
    Load.OWNER: "calls of owners",
    Load.LIGHT: "calls",
    Load.HEAVY: "heavy reads",
    Load.CHORE: "long calls",
}


class Capacity:
    """The rooms of one server, one for each kind of call, and one for the bodies of requests."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rooms = {load: Room(_WORDS[load], bounds) for load, bounds in _BOUNDS.items()}
        self._bodies = Room("large requests", _BODIES)

    @asynccontextmanager
    async def place(self, load: Load, *, jobs: int = 0) -> AsyncIterator[None]:
        """A place for the call under way, in its turn; `Exhausted` when its key has too many that wait.
        The bytes of a heavy read, or of so many `jobs`, are taken before it, and kept until its answer is
        sent."""
        if load is Load.WAIT:
            yield
            return
        room, key = self._rooms[load], who.get().key_id
        size = limits.ANSWER_BYTES_MAX if load is Load.HEAVY else jobs * limits.JOB_DATA_BYTES_MAX
        try:
            await room.take(key, size)
        except Exhausted:
            await self._clock.sleep(limits.REFUSAL_SECONDS)  # else it is asked again at once
            raise
        try:
            yield
        finally:
            answer = under_way.get()
            if answer is None:
                room.give_back(key, size)
            else:
                answer.keep(room, key, size)
                room.give_back(key)

    def exchange(self, scope: Scope, receive: Receive, send: Send) -> "Exchange":
        """A request and its answer, whose bytes are counted here."""
        return Exchange(self._rooms[Load.LIGHT], self._bodies, scope, receive, send)

    def told(self) -> Iterator[tuple[str, Room]]:
        """Every room by the word that metrics have for it."""
        yield from self._rooms.items()
        yield "body", self._bodies


class Exchange:
    """The bytes of one request and of its answer, for as long as they are held here. Those of the answer
    are counted in the room where its call had a place, so that a key that does not read waits for itself
    alone; `answers` is the room of a call that took no place."""

    def __init__(
        self, answers: Room, bodies: Room, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._answers = answers
        self._bodies = bodies
        self._size = _body_size(scope)
        self._pieces = "http.response.trailers" not in scope.get("extensions", ())
        self._receive = receive
        self._send = send
        self._key: str | None = None
        self._kept = 0
        self._body = 0
        self._begun = False
        self._closed = False

    def keep(self, room: Room, key: str | None, size: int) -> None:
        """So many bytes were taken in this room for the answer, and are given back when it is sent."""
        if self._closed:  # the client left while it was made
            room.give_back(key, size, place=False)
            return
        self._release()  # it had a place before, in another room maybe
        self._answers = room
        self._key = key
        self._kept = size

    async def receive(self) -> dict[str, Any]:
        """The next part of the request. Before the first of a large one there is room for all of it."""
        if not self._begun:
            self._begun = True
            if self._size > limits.BODY_BYTES_SMALL:
                self._key = _key()
                await self._bodies.take(self._key, self._size)
                self._body = self._size
        return await self._receive()

    async def send(self, message: dict[str, Any]) -> None:
        """Send a part of the answer, in pieces: the next when the connection has taken the last. What is
        large is counted until then."""
        body = message.get("body", b"")
        if message["type"] != "http.response.body" or len(body) <= limits.SEND_BYTES:
            await self._send(message)
            return
        self._count(len(body))
        if self._pieces:
            await self._send_pieces(message, body)
        else:
            await self._send(message)
        self._release()

    async def _send_pieces(self, message: dict[str, Any], body: bytes) -> None:
        more = message.get("more_body", False)
        for start in range(0, len(body), limits.SEND_BYTES):
            piece = body[start : start + limits.SEND_BYTES]
            last = start + limits.SEND_BYTES >= len(body)
            await self._send({**message, "body": piece, "more_body": more or not last})

    def _count(self, size: int) -> None:
        """The answer has this size: no more is kept for it, and no less."""
        if not self._kept:
            self._key = _key()
        if size < self._kept:
            self._answers.give_back(self._key, self._kept - size, place=False)
        else:
            self._answers.hold(self._key, size - self._kept)
        self._kept = size

    def close(self) -> None:
        """All of it is sent, or never will be."""
        self._closed = True
        self._release()
        if self._body:
            self._bodies.give_back(self._key, self._body)
            self._body = 0

    def _release(self) -> None:
        """Nothing of the answer is held any more."""
        if self._kept:
            self._answers.give_back(self._key, self._kept, place=False)
            self._kept = 0


under_way: ContextVar[Exchange | None] = ContextVar("holdfast_exchange", default=None)
"""The exchange that the call under way is part of."""


def _key() -> str | None:
    principal = who.get(None)
    return None if principal is None else principal.key_id


def _body_size(scope: Scope) -> int:
    """How large a request may become in memory: as it says, or as it may be once it is unpacked."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return limits.REQUEST_BYTES_MAX
    length = headers.get(b"content-length", b"")
    size = int(length) if length.isdigit() else 0
    if headers.get(b"content-encoding", b"identity") != b"identity":
        size *= limits.GZIP_RATIO_MAX
    return min(size, limits.REQUEST_BYTES_MAX)


async def apart(load: Load, work: Callable[[], T]) -> T:
    """What `work` makes of an answer: of a heavy read in a thread, so that others are answered
    meanwhile."""
    return await asyncio.to_thread(work) if load is Load.HEAVY else work()
