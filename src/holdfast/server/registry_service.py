"""RegistryService of holdfast.v1: the verbs, said in its messages."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from connectrpc.request import RequestContext
from protobuf import Message

from holdfast.server.capacity import Capacity, apart
from holdfast.server.verbs import Verbs
from holdfast.wire.generated.holdfast.v1 import registry_connect
from holdfast.wire.verbs import VERBS, Verb

Call = RequestContext[Any, Any]


class RegistryService(registry_connect.RegistryService):
    """The handlers, one for each verb: put in below, from the table."""

    def __init__(self, verbs: Verbs, capacity: Capacity) -> None:
        self.verbs = verbs
        self.capacity = capacity


def _unary(verb: Verb) -> Callable[..., Any]:
    async def handler(self: RegistryService, request: Message, _: Call) -> Message:
        ask = verb.understood(request)
        load = verb.load_of(ask)
        async with self.capacity.place(load, jobs=verb.jobs_of(ask)):
            answer = await self.verbs.handler(verb.name)(ask)
            message: Message = await apart(load, partial(verb.response.encode, answer))
        return message

    return handler


def _stream(verb: Verb) -> Callable[..., Any]:
    async def handler(
        self: RegistryService, request: Message, _: Call
    ) -> AsyncGenerator[Message, None]:
        answers = self.verbs.handler(verb.name)(verb.request.decode(request))
        async with aclosing(answers) as slices:
            async for answer in slices:
                yield verb.response.encode(answer)

    return handler


for _verb in VERBS:
    setattr(RegistryService, _verb.name, (_stream if _verb.stream else _unary)(_verb))
