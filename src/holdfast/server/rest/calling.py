"""Calling: what happens to every REST request before and after its verb, whatever it asks for."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeAlias, TypeVar

import msgspec
from connectrpc.errors import ConnectError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holdfast.core.documents import document
from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.server import tracing
from holdfast.server.calls import Gate, Unknown, release_frames, seconds_max
from holdfast.server.capacity import apart
from holdfast.server.context import Context
from holdfast.server.rest.problems import Wrong, fault, refusal, wrong
from holdfast.server.rest.reading import ADVICE, JSON, form_of
from holdfast.server.rest.routes import Route
from holdfast.system import first_of
from holdfast.wire.verbs import Load

A = TypeVar("A")
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

GONE = 499
"""Of a client that left before its answer: nobody reads it, the metrics do."""

_WRONG = (Wrong, Unknown, ClientDisconnect, ConnectError)

_encode = msgspec.json.Encoder().encode


class Calls:
    """Answers requests: lets nobody in who may not come, tells every error as a problem, and counts."""

    def __init__(self, context: Context, gate: Gate) -> None:
        self._requests = context.requests
        self._clock = context.clock
        self._gate = gate
        self._capacity = context.capacity

    def endpoint(self, route: Route, verb: Callable[[Any], Any]) -> Endpoint:
        """The handler of a route whose verb is this one."""

        async def handle(request: Request) -> Response:
            form = await form_of(request, route.form, route.named)
            ask = route.ask(form)
            load = route.load_of(ask)

            async def answered() -> bytes:
                async with self._capacity.place(load, jobs=route.jobs_of(ask)):
                    answer = await verb(ask)
                    return await apart(load, lambda: _encode(document(route.unwrap(form, answer))))

            async with asyncio.timeout(seconds_max(load)):
                leaves = load in (Load.WAIT, Load.HEAVY)
                said = await (unless_gone(request, answered()) if leaves else answered())
            return Response(said, route.status, media_type=JSON)

        return self.guarded(handle, f"{route.method} {route.path}", waits=route.waits)

    def guarded(self, handle: Endpoint, method: str, *, waits: bool) -> Endpoint:
        """The handler, for those who may come in. `method` is what it is called in logs and metrics."""

        async def answer(request: Request) -> Response:
            began = self._clock.monotonic()
            noted: tracing.Noted | None = None
            error: Exception | None = None
            try:
                await self._gate.admit(request.headers.get("authorization"))
                noted = tracing.begin(method, request.headers, began, waits=waits)
                told = await handle(request)
            except _WRONG as raised:  # the caller's own doing, and told to it alone
                told = _refused(raised)
            except Exception as raised:
                told, error = _refused(raised), raised
                release_frames(raised)
            now, code = self._clock.monotonic(), str(told.status_code)
            self._requests.add(method, "rest", code, now - began)
            if noted is not None:
                tracing.end(noted, code, error, now)
            elif error is not None:
                tracing.failed(error, method)
            error = None  # else it and this frame, with the request, would keep each other
            return told

        return answer


def _refused(error: Exception) -> Response:
    """The answer that an error is told by."""
    if isinstance(error, Unknown):
        told = Wrong(401, "Nobody knows you here", str(error), "Send a key that counts.")
        return wrong(told, {"www-authenticate": "Bearer"})
    if isinstance(error, Wrong):
        return wrong(error)
    if isinstance(error, HoldfastError):
        return refusal(error)
    if isinstance(error, TimeoutError):
        return refusal(Unavailable("It took too long.", applied="unknown"))
    if isinstance(error, ClientDisconnect):
        return Response(status_code=GONE)
    if isinstance(error, ConnectError):  # the door's word for a request that does not come
        return wrong(Wrong(408, "The request came too slowly", error.message, ADVICE))
    return fault()


async def unless_gone(request: Request, answering: Coroutine[Any, Any, A]) -> A:
    """The answer, unless the client leaves before: then nobody waits for it here any more."""
    return await first_of(answering, _left(request))


async def _left(request: Request) -> NoReturn:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect


async def lost(request: Request, error: Exception) -> Response:
    """There is no such path, or it does not take this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        words = f"{request.method} is not allowed here. These are: {allowed}."
        return wrong(Wrong(405, "Method not allowed", words, ADVICE), {"allow": allowed})
    words = f"There is nothing at {request.url.path}."
    return wrong(Wrong(404, "There is no such path", words, ADVICE))


def _methods(request: Request) -> list[str]:
    """What is taken at this path: by every route that names it, or else by those that have it."""
    path, routes = request.scope["path"], request.app.routes
    named = [one for one in routes if one.path == path]
    found = named or [one for one in routes if one.path_regex.match(path)]
    return sorted({method for one in found for method in one.methods})
