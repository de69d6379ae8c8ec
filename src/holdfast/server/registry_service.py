"""RegistryService of holdfast.v1: the verbs, with its messages."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from connectrpc.request import RequestContext
from protobuf import Message

from holdfast.server.capacity import Capacity, in_thread_if_heavy
from holdfast.server.verbs import Verbs
from holdfast.wire.generated.holdfast.v1 import registry_connect
from holdfast.wire.verbs import VERBS, Verb

Call = RequestContext[Any, Any]


class RegistryService(registry_connect.RegistryService):
    """The handlers, one for each verb: set below, from the table `VERBS`."""

    def __init__(self, verbs: Verbs, capacity: Capacity) -> None:
        self.verbs = verbs
        self.capacity = capacity


def _unary(verb: Verb) -> Callable[..., Any]:
    async def handler(self: RegistryService, message: Message, _: Call) -> Message:
        request = verb.decode_request(message)
        load = verb.load_of(request)
        async with self.capacity.slot(load, jobs=verb.jobs_of(request)):
            response = await self.verbs.handler(verb.name)(request)
            encoded: Message = await in_thread_if_heavy(load, partial(verb.response.encode, response))
        return encoded

    return handler


def _stream(verb: Verb) -> Callable[..., Any]:
    async def handler(self: RegistryService, message: Message, _: Call) -> AsyncGenerator[Message, None]:
        request = verb.request.decode(message)
        async with aclosing(self.verbs.handler(verb.name)(request)) as responses:
            async for response in responses:
                yield verb.response.encode(response)

    return handler


for _verb in VERBS:
    setattr(RegistryService, _verb.name, (_stream if _verb.stream else _unary)(_verb))
