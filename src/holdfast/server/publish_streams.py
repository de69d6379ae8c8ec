"""Publish streams: the messages of PublishJobEvents as they arrive. A stream may be silent for long, and a
message may be large; the memory for all of them is bounded before anything is decoded."""

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
from holdfast.server.calls import current_principal
from holdfast.server.edge import REQUEST_TIMEOUT, Receive
from holdfast.server.fair_limiter import Bounds, FairLimiter
from holdfast.server.limits import (
    GZIP_RATIO_MAX,
    PUBLISH_BYTES_MAX,
    PUBLISH_IDLE_SECONDS_MAX,
    PUBLISH_MEMORY_BYTES,
    PUBLISH_MEMORY_BYTES_PER_KEY,
    PUBLISH_SECONDS_MAX,
    PUBLISH_STREAMS_MAX,
    PUBLISH_STREAMS_PER_KEY_MAX,
    REQUEST_BYTES_MAX,
    STALLED_SECONDS_MAX,
)

HEAD_BYTES = TASK_TOKEN_CHARACTERS_MAX + 64
"""The first bytes of a message, in which clients send its task token."""

PREFIX_BYTES = 5
COMPRESSED = 1
TOKEN_AT = 3
"""Where the token begins at the latest, after its tag and its length."""
_JSON_TOKEN = re.compile(rb'"task_?[tT]oken"\s*:\s*"([A-Za-z0-9_-]+)"')


def publish_memory() -> FairLimiter:
    """Return the limiter of the memory for large messages; one key may have a part of it only."""
    return FairLimiter(
        "large messages",
        Bounds(bytes=PUBLISH_MEMORY_BYTES, bytes_per_key=PUBLISH_MEMORY_BYTES_PER_KEY),
    )


class PublishStreams:
    """The open publish streams, counted by key."""

    def __init__(self) -> None:
        self._streams: Counter[str | None] = Counter()

    @contextmanager
    def slot(self, principal: Principal) -> Iterator[None]:
        """Count a stream while it is open; `Exhausted` when there are too many."""
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


class PublishStream:
    """One publish stream as the service receives it: message by message, a large one when there is memory
    for it. `token` is the task token of the current one, if it can be read without decoding."""

    def __init__(self, receive: Receive, memory: FairLimiter) -> None:
        self._receive = receive
        self._memory = memory
        self._data = b""
        self._at = 0
        self._left = 0
        self._until: float | None = None
        self._key: str | None = None
        self._held = 0
        self._ended = False
        self._disconnect: dict[str, Any] | None = None
        self._head = b""
        self._compressed = False

    @property
    def token(self) -> str | None:
        """The task token at the head of the current message."""
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
        """Return the next part of the stream. When a message begins, those before it are processed."""
        if self._ended and self._at == len(self._data):
            return self._disconnect or await self._receive()
        if not self._left:
            self.close()
            await self._begin()
        elif self._at == len(self._data):
            await self._receive_part(STALLED_SECONDS_MAX)
        part = self._data[self._at : self._at + self._left]
        self._at += len(part)
        self._left -= len(part)
        if not part and self._disconnect is not None:
            return self._disconnect
        more = not self._ended or self._at < len(self._data)
        return {"type": "http.request", "body": part, "more_body": more}

    async def _begin(self) -> None:
        """Read the head of the next message, and wait for memory if it is a large one."""
        await self._fill(PREFIX_BYTES, PUBLISH_IDLE_SECONDS_MAX)
        prefix = self._data[self._at : self._at + PREFIX_BYTES]
        if len(prefix) < PREFIX_BYTES:  # the end, or a truncated message, which the service refuses
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
            self._key = current_principal.get().key_id
            await self._memory.acquire(self._key, unpacked)
            self._held = unpacked
            self._until = asyncio.get_running_loop().time() + PUBLISH_SECONDS_MAX

    async def _fill(self, count: int, seconds: float) -> None:
        """Receive up to `count` bytes, or the end. The first may take `seconds` to arrive."""
        self._data, self._at = self._data[self._at :], 0
        while len(self._data) < count and not self._ended:
            await self._receive_part(STALLED_SECONDS_MAX if self._data else seconds)

    async def _receive_part(self, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(min(until, self._until or until)):
                message = await self._receive()
        except TimeoutError:
            raise ConnectError(Code.DEADLINE_EXCEEDED, REQUEST_TIMEOUT) from None
        if message["type"] != "http.request":
            self._disconnect, self._ended = message, True
            return
        self._data, self._at = self._data[self._at :] + message.get("body", b""), 0
        self._ended = not message.get("more_body", False)

    def close(self) -> None:
        """Release the memory of the last message."""
        if self._held:
            self._memory.release(self._key, self._held)
            self._held, self._until = 0, None


current_publish_stream: ContextVar[PublishStream | None] = ContextVar("holdfast_upload", default=None)
"""The publish stream of the current call."""
