"""Endpoints: what happens to every REST request before and after its verb."""

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
from holdfast.server import call_records
from holdfast.server.calls import (
    TOO_LONG,
    Authentication,
    Unauthenticated,
    release_frames,
    seconds_max,
)
from holdfast.server.capacity import in_thread_if_heavy
from holdfast.server.context import ServerContext
from holdfast.server.rest.problems import (
    RequestError,
    error_response,
    internal_error_response,
    request_error_response,
)
from holdfast.server.rest.request_decoder import ADVICE, JSON, read_form
from holdfast.server.rest.routes import Route
from holdfast.system import first_of
from holdfast.wire.verbs import Load

A = TypeVar("A")
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

CLIENT_GONE = 499
"""The status of a request whose client disconnected before the response: only the metrics show it."""

_CLIENT_ERRORS = (RequestError, Unauthenticated, ClientDisconnect, ConnectError)

_encode = msgspec.json.Encoder().encode


class Endpoints:
    """Makes handlers of REST requests, which authenticate, return errors as problems, and count."""

    def __init__(self, context: ServerContext, authentication: Authentication) -> None:
        self._requests = context.request_metrics
        self._clock = context.clock
        self._authentication = authentication
        self._capacity = context.capacity

    def endpoint(self, route: Route, verb: Callable[[Any], Any]) -> Endpoint:
        """Return the handler of a route whose verb is this one."""

        async def handle(request: Request) -> Response:
            form = await read_form(request, route.form, route.idempotency_field)
            verb_request = route.to_request(form)
            load = route.load_of(verb_request)

            async def respond() -> bytes:
                async with self._capacity.slot(load, jobs=route.jobs_of(verb_request)):
                    response = await verb(verb_request)
                    return await in_thread_if_heavy(
                        load, lambda: _encode(document(route.unwrap(form, response)))
                    )

            try:
                async with asyncio.timeout(seconds_max(load)):
                    watched = load in (Load.WAIT, Load.HEAVY)
                    body = await (unless_gone(request, respond()) if watched else respond())
            except TimeoutError:
                raise Unavailable(TOO_LONG, applied="unknown" if route.changes else "no") from None
            return Response(body, route.status, media_type=JSON)

        return self.guarded(handle, f"{route.method} {route.path}", waits=route.waits)

    def guarded(self, handle: Endpoint, method: str, *, waits: bool) -> Endpoint:
        """Return the handler behind authentication. `method` is its name in logs and metrics."""

        async def guard(request: Request) -> Response:
            began = self._clock.monotonic()
            record: call_records.CallRecord | None = None
            error: Exception | None = None
            try:
                await self._authentication.authenticate(request.headers.get("authorization"))
                record = call_records.begin_call(method, request.headers, began, waits=waits)
                response = await handle(request)
            except _CLIENT_ERRORS as raised:  # the client's own errors are not logged
                response = _refused(raised)
            except Exception as raised:
                response, error = _refused(raised), raised
                release_frames(raised)
            now, code = self._clock.monotonic(), str(response.status_code)
            self._requests.add(method, "rest", code, now - began)
            if record is not None:
                call_records.end_call(record, code, error, now)
            elif error is not None:
                call_records.record_failure(error, method)
            error = None  # otherwise it and this frame, with the request, keep each other alive
            return response

        return guard


def _refused(error: Exception) -> Response:
    """Return the response that reports an error."""
    if isinstance(error, Unauthenticated):
        unauthorized = RequestError(401, "Unauthorized", str(error), "Send a valid API key.")
        return request_error_response(unauthorized, {"www-authenticate": "Bearer"})
    if isinstance(error, RequestError):
        return request_error_response(error)
    if isinstance(error, HoldfastError):
        return error_response(error)
    if isinstance(error, TimeoutError):
        return error_response(Unavailable(TOO_LONG, applied="unknown"))
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_GONE)
    if isinstance(error, ConnectError):  # raised at the edge when the body does not arrive in time
        return request_error_response(RequestError(408, "Request timeout", error.message, ADVICE))
    return internal_error_response()


async def unless_gone(request: Request, responding: Coroutine[Any, Any, A]) -> A:
    """Return the response; raise `ClientDisconnect` and cancel the work if the client leaves first."""
    return await first_of(responding, _disconnected(request))


async def _disconnected(request: Request) -> NoReturn:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect


async def not_routed(request: Request, error: Exception) -> Response:
    """Return the problem for a path that does not exist, or that does not allow this method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        words = f"{request.method} is not allowed here. These are: {allowed}."
        return request_error_response(
            RequestError(405, "Method not allowed", words, ADVICE), {"allow": allowed}
        )
    words = f"There is nothing at {request.url.path}."
    return request_error_response(RequestError(404, "Path not found", words, ADVICE))


def _methods(request: Request) -> list[str]:
    """Return the methods of the routes that are exactly this path, or else of those that match it."""
    path, routes = request.scope["path"], request.app.routes
    named = [one for one in routes if one.path == path]
    found = named or [one for one in routes if one.path_regex.match(path)]
    return sorted({method for one in found for method in one.methods})
