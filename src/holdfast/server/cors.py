"""CORS: which pages of other origins a browser lets call this server. None, unless the setting names them.

A page sends its key in a header of its own. Cookies and other credentials of the browser are never allowed:
this server has none, and a proxy in front of it may.
"""

import re
from collections.abc import Iterable

from holdfast.core.errors import Invalid
from holdfast.server.edge import Scope, Send

ANY = "*"
_ORIGIN = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_METHODS = b"GET, POST"
_HEADERS = (
    b"authorization, content-type, idempotency-key, last-event-id, traceparent, tracestate,"
    b" connect-protocol-version, connect-timeout-ms"
)
_EXPOSED = b"allow, retry-after, www-authenticate"
_SECONDS = b"600"
REFUSED = (
    b"Pages of this origin may not call this server: start it with --cors-origin and the origin of the page,"
    b" such as https://app.example.org.\n"
)


def check_origin(text: str) -> str:
    """Return the origin as browsers send it, without the usual port; raise `Invalid` for anything else."""
    if text != ANY and not _ORIGIN.fullmatch(text):
        raise Invalid(f"{text!r} is not an origin, such as https://app.example.org or http://localhost:5173.")
    return re.sub(r"^(http://.*):80$|^(https://.*):443$", r"\1\2", text.lower())


class AllowedOrigins:
    """The origins whose pages may call this server."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(one.encode() for one in origins)
        self._any = ANY.encode() in self._origins

    def __bool__(self) -> bool:
        return bool(self._origins)

    def __contains__(self, origin: object) -> bool:
        return self._any or origin in self._origins

    def of(self, scope: Scope) -> bytes | None:
        """Return the origin of the page that sent this request, if it is allowed."""
        origin = _header(scope, b"origin")
        return origin if origin is not None and origin in self else None


def is_preflight(scope: Scope) -> bool:
    """Whether a browser asks what a page may send, before it sends it."""
    return scope["method"] == "OPTIONS" and _header(scope, b"access-control-request-method") is not None


def with_cors(send: Send, origin: bytes) -> Send:
    """Return a `send` that lets the page read the response."""

    async def send_readable(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"]
            assert isinstance(headers, Iterable)
            readable = [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", _EXPOSED),
                (b"vary", b"origin"),  # for caches, as every origin gets its own name back
            ]
            message = {**message, "headers": [*headers, *readable]}
        await send(message)

    return send_readable


async def allow_preflight(send: Send) -> None:
    """Send what a page may send."""
    headers = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _HEADERS),
        (b"access-control-max-age", _SECONDS),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for one, value in scope["headers"] if one == name), None)
