"""Uploads: publish streams on their way in. A stream may be quiet for long, a message may be large; how much
of it all is in memory at a time is bounded, before anything of it is decoded."""

import asyncio
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.core.access import Principal
from holdfast.core.errors import Exhausted
from holdfast.core.task_token import TASK_TOKEN_CHARACTERS_MAX
from holdfast.server.calls import who
from holdfast.server.door import LATE, Receive
from holdfast.server.limits import (
    GZIP_RATIO_MAX,
    PUBLISH_BYTES_MAX,
    PUBLISH_QUIET_SECONDS_MAX,
    PUBLISH_ROOM_BYTES,
    PUBLISH_ROOM_BYTES_PER_KEY,
    PUBLISH_SECONDS_MAX,
    PUBLISH_STREAMS_MAX,
    PUBLISH_STREAMS_PER_KEY_MAX,
    REQUEST_BYTES_MAX,
    STALLED_SECONDS_MAX,
)
from holdfast.server.room import Bounds, Room

HEAD_BYTES = TASK_TOKEN_CHARACTERS_MAX + 64
"""Of a message: where its task token is, as clients write it."""

PREFIX_BYTES = 5
COMPRESSED = 1
TOKEN_AT = 3
"""Where the token begins at the latest, behind its tag and its length."""
_JSON_TOKEN = re.compile(rb'"task_?[tT]oken"\s*:\s*"([A-Za-z0-9_-]+)"')


def publish_room() -> Room:
    """Memory for large messages; one key gets a part of it only."""
    return Room(
        "large messages",
        Bounds(bytes=PUBLISH_ROOM_BYTES, bytes_per_key=PUBLISH_ROOM_BYTES_PER_KEY),
    )


class PublishStreams:
    """The open publish streams, counted by key."""

    def __init__(self) -> None:
        self._streams: Counter[str | None] = Counter()

    @contextmanager
    def place(self, principal: Principal) -> Iterator[None]:
        """A place among them; `Exhausted` when there is none."""
        key, streams = principal.key_id, self._streams
        if streams.total() >= PUBLISH_STREAMS_MAX:
            raise Exhausted(f"{PUBLISH_STREAMS_MAX:,} publish streams are open here already.")
        if key is not None and streams[key] >= PUBLISH_STREAMS_PER_KEY_MAX:
            raise Exhausted(f"{principal.name} has {streams[key]:,} publish streams already.")
        streams[key] += 1
        try:
            yield
        finally:
            streams[key] -= 1


class Upload:
    """One publish stream as the service receives it: message by message, the large ones when there is room
    for them. `token` is the task token of the message under way, as far as it can be seen from outside."""

    def __init__(self, receive: Receive, room: Room) -> None:
        self._receive = receive
        self._room = room
        self._data = b""
        self._at = 0
        self._left = 0
        self._until: float | None = None
        self._key: str | None = None
        self._held = 0
        self._over = False
        self._gone: dict[str, Any] | None = None
        self._head = b""
        self._compressed = False

    @property
    def token(self) -> str | None:
        """The task token at the head of the message under way."""
        head = self._head
        if self._compressed:
            with suppress(zlib.error):
                head = zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
        if found := _JSON_TOKEN.search(head):
            return found[1].decode()
        if not head.startswith(b"\n") or len(head) < TOKEN_AT:
            return None
        size, start = (head[1], 2) if head[1] < 128 else (head[1] - 128 + 128 * head[2], TOKEN_AT)
        return head[start : start + size].decode("ascii", errors="replace")

    async def __call__(self) -> dict[str, Any]:
        """The next part of the stream. At the beginning of a message all before it have been dealt with."""
        if self._over and self._at == len(self._data):
            return self._gone or await self._receive()
        if not self._left:
            self.close()
            await self._begin()
        elif self._at == len(self._data):
            await self._hear(STALLED_SECONDS_MAX)
        part = self._data[self._at : self._at + self._left]
        self._at += len(part)
        self._left -= len(part)
        if not part and self._gone is not None:
            return self._gone
        more = not self._over or self._at < len(self._data)
        return {"type": "http.request", "body": part, "more_body": more}

    async def _begin(self) -> None:
        """Look at the next message, and wait for room if it is a large one."""
        await self._fill(PREFIX_BYTES, PUBLISH_QUIET_SECONDS_MAX)
        prefix = self._data[self._at : self._at + PREFIX_BYTES]
        if len(prefix) < PREFIX_BYTES:  # the end, or torn: the service says so
            self._left = len(prefix)
            return
        size = int.from_bytes(prefix[1:], "big")
        await self._fill(PREFIX_BYTES + min(size, HEAD_BYTES), STALLED_SECONDS_MAX)
        start = self._at + PREFIX_BYTES
        self._head = self._data[start : start + min(size, HEAD_BYTES)]
        self._compressed = bool(prefix[0] & COMPRESSED)
        self._left = PREFIX_BYTES + size
        unpacked = min(size * GZIP_RATIO_MAX, PUBLISH_BYTES_MAX) if self._compressed else size
        if unpacked > REQUEST_BYTES_MAX and size <= PUBLISH_BYTES_MAX:
            self._key = who.get().key_id
            await self._room.take(self._key, unpacked)
            self._held = unpacked
            self._until = asyncio.get_running_loop().time() + PUBLISH_SECONDS_MAX

    async def _fill(self, count: int, seconds: float) -> None:
        """Have so many bytes at hand, unless the stream ends before. The first may take so long to come."""
        self._data, self._at = self._data[self._at :], 0
        while len(self._data) < count and not self._over:
            await self._hear(STALLED_SECONDS_MAX if self._data else seconds)

    async def _hear(self, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(min(until, self._until or until)):
                message = await self._receive()
        except TimeoutError:
            raise ConnectError(Code.DEADLINE_EXCEEDED, LATE) from None
        if message["type"] != "http.request":
            self._gone, self._over = message, True
            return
        self._data, self._at = self._data[self._at :] + message.get("body", b""), 0
        self._over = not message.get("more_body", False)

    def close(self) -> None:
        """Give back the room that the last message took."""
        if self._held:
            self._room.give_back(self._key, self._held)
            self._held, self._until = 0, None


upload: ContextVar[Upload | None] = ContextVar("holdfast_upload", default=None)
"""The stream that the call under way reads."""
