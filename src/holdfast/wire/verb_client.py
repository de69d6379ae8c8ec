"""The client of the verbs: sends a request to a server and decodes the response, by the table of
verbs."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

from msgspec import Struct
from protobuf import Message

from holdfast.core.errors import Unavailable
from holdfast.core.limits import batches
from holdfast.ports import Ids
from holdfast.wire.mapping import undecodable_response
from holdfast.wire.server_connection import CALL_MS, CHORE_MS, ServerConnection, encoded_size
from holdfast.wire.verbs import VERBS_BY_NAME, Load

T = TypeVar("T")
M = TypeVar("M", bound=Message)

MESSAGE_BYTES = 700 * 1024
"""The size of one request: a server accepts 1 MiB, and a message is larger than its data."""


class VerbClient:
    """Calls verbs by name. Every mutation gets an op_id if the caller gave none, so that it can be sent
    again, to another server too."""

    def __init__(self, connection: ServerConnection, ids: Ids) -> None:
        self.connection = connection
        self._ids = ids

    def op_id_or_new(self, op_id: str | None) -> str:
        """Return the caller's op_id, or a new one."""
        return self._ids.new() if op_id is None else op_id

    async def call(self, name: str, request: Struct, *, timeout_ms: int | None = None) -> Any:  # noqa: ANN401
        """Return the response to a request, or raise the error that the server returned."""
        return await self.send(name, VERBS_BY_NAME[name].request.encode(request), timeout_ms=timeout_ms)

    async def send(self, name: str, message: Message, *, timeout_ms: int | None = None) -> Any:  # noqa: ANN401
        """Call with a request that is encoded already."""
        verb = VERBS_BY_NAME[name]
        if timeout_ms is None:
            timeout_ms = CHORE_MS if verb.load is Load.CHORE else CALL_MS
        with nothing_applied_by_reads(verb.name):
            return verb.response.read(await self.connection.call(name, message, timeout_ms=timeout_ms))

    async def stream(self, name: str, request: Struct) -> AsyncGenerator[Any, None]:
        """The responses to a request, as they arrive."""
        verb = VERBS_BY_NAME[name]
        async with aclosing(self.connection.stream(name, verb.request.encode(request))) as messages:
            with nothing_applied_by_reads(verb.name):
                async for message in messages:
                    yield verb.response.read(message)


@contextmanager
def nothing_applied_by_reads(name: str) -> Iterator[None]:
    """A context in which a verb that only reads fails with `applied="no"`, also if its response was lost."""
    try:
        yield
    except Unavailable as error:
        if VERBS_BY_NAME[name].reads:
            error.applied = "no"
        raise


def check_count(sent: Sequence[object], returned: Sequence[T]) -> Sequence[T]:
    """Return the responses if there is one for each item that was sent; else raise `Unavailable`."""
    if len(returned) != len(sent):
        raise undecodable_response(f"it has {len(returned)} parts, and {len(sent)} were requested.")
    return returned


def chunks(messages: list[M]) -> list[list[M]]:
    """Return the messages in order, in chunks that a server accepts."""
    weights = ((1, encoded_size(message)) for message in messages)
    return [messages[start:end] for start, end, _ in batches(weights, MESSAGE_BYTES)]
