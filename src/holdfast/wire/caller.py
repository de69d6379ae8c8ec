"""The caller: sends the request of a verb to a server, and reads the response, as the table of verbs says."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from msgspec import Struct
from protobuf import Message

from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.ports import Ids
from holdfast.wire.link import CALL_MS, CHORE_MS, Link, check_written
from holdfast.wire.mapping import misread
from holdfast.wire.verbs import BY_NAME, Load

T = TypeVar("T")
M = TypeVar("M", bound=Message)

MESSAGE_BYTES = 700 * 1024
"""How much is sent at once: a server takes 1 MiB, and a message has more in it than its data."""


class Caller:
    """Calls verbs by their names. Every mutation gets an op_id, if its caller has none: so it can be sent
    again, to another server too."""

    def __init__(self, link: Link, ids: Ids) -> None:
        self.link = link
        self._ids = ids

    def op(self, op_id: str | None) -> str:
        """Return the caller's op_id, or a new one."""
        return self._ids.new() if op_id is None else op_id

    async def call(self, name: str, request: Struct, *, timeout_ms: int | None = None) -> Any:  # noqa: ANN401
        """Return the response to a request, or raise the error that the server returned."""
        return await self.send(name, BY_NAME[name].request.encode(request), timeout_ms=timeout_ms)

    async def send(self, name: str, message: Message, *, timeout_ms: int | None = None) -> Any:  # noqa: ANN401
        """Call with a request that is encoded already."""
        verb = BY_NAME[name]
        if timeout_ms is None:
            timeout_ms = CHORE_MS if verb.load is Load.CHORE else CALL_MS
        return verb.response.read(await self.link.call(name, message, timeout_ms=timeout_ms))

    async def stream(self, name: str, request: Struct) -> AsyncGenerator[Any, None]:
        """The responses to a request, as they come."""
        verb = BY_NAME[name]
        async with aclosing(self.link.stream(name, verb.request.encode(request))) as messages:
            async for message in messages:
                yield verb.response.read(message)


def one_each(sent: Sequence[object], returned: Sequence[T]) -> Sequence[T]:
    """Return what was returned, if there is one for each that was sent."""
    if len(returned) != len(sent):
        raise misread(f"it has {len(returned)} parts, and {len(sent)} were asked for.")
    return returned


def chunks(messages: Sequence[M]) -> list[list[M]]:
    """Return the messages in order, as many at a time as a server takes."""
    chunks: list[list[M]] = []
    total = MESSAGE_BYTES
    for message in messages:
        size = check_written(message)
        total += size
        if total > MESSAGE_BYTES or len(chunks[-1]) == BATCH_ITEMS_MAX:
            chunks.append([])
            total = size
        chunks[-1].append(message)
    return chunks
