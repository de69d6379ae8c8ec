"""An ASGI middleware that turns stale writers away at the door."""

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, TypeAlias

import msgspec

from holdfast.core.errors import Conflict, Exhausted, Fenced, HoldfastError, Invalid, Unavailable
from holdfast.fencing.fence import HEADER, Fence, parse
from holdfast.fencing.guard import Guard

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

READING = ("GET", "HEAD", "OPTIONS", "TRACE")
KEY = "holdfast.fence"
"""Where the application finds the fence in its scope."""

_NAME = HEADER.lower().encode()
_STATUS: dict[type[HoldfastError], int] = {
    Invalid: 400,
    Conflict: 409,
    Fenced: 409,
    Exhausted: 429,
    Unavailable: 503,
}


class FenceMiddleware:
    """Refuses requests that would write under a stale token: 409. One without a fence gets 428.

        app = FenceMiddleware(app, Guard(Cached(registry)))

    `resource` says what a request writes to, from its scope; a fence for something else is refused.
    Without it, the fence's own word counts. Methods other than `reading` may write. The application
    finds the fence as `scope[KEY]`, to compare it once more in the transaction that writes: what passes
    here may be stale a moment later.
    """

    def __init__(
        self,
        app: Application,
        guard: Guard,
        *,
        resource: Callable[[Scope], str] | None = None,
        reading: Collection[str] = READING,
        required: bool = True,
    ) -> None:
        self._app = app
        self._guard = guard
        self._resource = resource
        self._reading = frozenset(reading)
        self._required = required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in self._reading:
            return await self._app(scope, receive, send)
        try:
            fence = self._fence(scope)
            if fence is not None:
                await self._guard.check(fence)
        except HoldfastError as error:
            return await _refuse(send, error)
        if fence is None and self._required:
            detail = f"Say under which token you write: {HEADER}."
            return await _answer(send, 428, "fence_required", detail, "Add the header.")
        return await self._app({**scope, KEY: fence}, receive, send)

    def _fence(self, scope: Scope) -> Fence | None:
        values = [value for name, value in scope["headers"] if name.lower() == _NAME]
        if not values:
            return None
        if len(values) > 1:
            raise Invalid(f"{HEADER} is there {len(values)} times; a request has one fence.")
        fence = parse(values[0].decode("latin-1"))
        if self._resource is not None and (writes := self._resource(scope)) != fence.resource:
            raise Invalid(f"This request writes to {writes}; its fence is for {fence.resource}.")
        return fence


async def _refuse(send: Send, error: HoldfastError) -> None:
    # By what it is a kind of: stores have finer kinds of their own.
    kind = next((kind for kind in _STATUS if isinstance(error, kind)), type(error))
    status = _STATUS.get(kind, 500)
    await _answer(send, status, kind.__name__.lower(), error.message, error.advice)


async def _answer(send: Send, status: int, kind: str, detail: str, advice: str) -> None:
    body = msgspec.json.encode({"error": kind, "detail": detail, "advice": advice})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == _STATUS[Unavailable]:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
