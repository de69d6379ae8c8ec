"""An ASGI middleware that refuses the writes of old owners."""

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

READ_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")
SCOPE_KEY = "holdfast.fence"
"""The key of the fence in the scope of the application."""

_NAME = HEADER.lower().encode()
_STATUS: dict[type[HoldfastError], int] = {
    Invalid: 400,
    Conflict: 409,
    Fenced: 409,
    Exhausted: 429,
    Unavailable: 503,
}


class FenceMiddleware:
    """Refuses requests that would write under a stale token with 409, and those without a fence with 428.

        app = FenceMiddleware(app, Guard(CachedAuthority(registry)))

    `resource` returns what a request writes to, from its scope; a fence for another resource is refused.
    Without it, the resource in the fence counts. Methods other than `read_methods` may write. The
    application finds the fence as `scope[SCOPE_KEY]`, to compare it once more in the transaction that
    writes: what passes here may be stale a moment later.
    """

    def __init__(
        self,
        app: Application,
        guard: Guard,
        *,
        resource: Callable[[Scope], str] | None = None,
        read_methods: Collection[str] = READ_METHODS,
        required: bool = True,
    ) -> None:
        self._app = app
        self._guard = guard
        self._resource = resource
        self._read_methods = frozenset(read_methods)
        self._required = required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in self._read_methods:
            return await self._app(scope, receive, send)
        try:
            fence = self._fence(scope)
            if fence is not None:
                await self._guard.check(fence)
        except HoldfastError as error:
            return await _refuse(send, error)
        if fence is None and self._required:
            detail = f"A write needs the fencing token of its owner: {HEADER}."
            return await _respond(send, 428, "fence_required", detail, "Add the header.")
        return await self._app({**scope, SCOPE_KEY: fence}, receive, send)

    def _fence(self, scope: Scope) -> Fence | None:
        values = [value for name, value in scope["headers"] if name.lower() == _NAME]
        if not values:
            return None
        if len(values) > 1:
            raise Invalid(f"{HEADER} occurs {len(values)} times; a request has one fence.")
        fence = parse(values[0].decode("latin-1"))
        if self._resource is not None and (writes := self._resource(scope)) != fence.resource:
            raise Invalid(f"This request writes to {writes}; its fence is for {fence.resource}.")
        return fence


async def _refuse(send: Send, error: HoldfastError) -> None:
    # By isinstance: stores have subclasses of these errors.
    kind = next((kind for kind in _STATUS if isinstance(error, kind)), type(error))
    status = _STATUS.get(kind, 500)
    await _respond(send, status, kind.__name__.lower(), error.message, error.advice)


async def _respond(send: Send, status: int, kind: str, detail: str, advice: str) -> None:
    body = msgspec.json.encode({"error": kind, "detail": detail, "advice": advice})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == _STATUS[Unavailable]:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
