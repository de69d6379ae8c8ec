"""The edge: what is refused before a request reaches a service, time limits for reading it, and texts for
statuses that the protocol sends without one."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Container
from typing import Any, TypeAlias

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.server.limits import HEADER_BYTES_MAX, REQUEST_SECONDS_MAX

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
Service: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

PLAIN_TEXT = (b"content-type", b"text/plain; charset=utf-8")
NOT_FOUND = b"Not found. GET / names what this server has.\n"
KEY_IN_URL = b"A key in a URL ends up in logs: send it in the Authorization header.\n"
GRPC = (b"application/grpc+", b"application/grpc;")
_KEY = re.compile(rb"hf_[0-9a-f]{12}_")
_LOCAL = rb"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]{1,5})?"
_LOCAL_HEADERS = {
    b"host": re.compile(_LOCAL, re.IGNORECASE),
    b"origin": re.compile(rb"https?://" + _LOCAL, re.IGNORECASE),
}
"""Headers that must name this machine by a name that no other machine can have, and those names."""
NOT_LOCAL = (
    b"Without keys this server may be called as localhost or 127.0.0.1 only: use such a URL, or start the"
    b" server with --keys.\n"
)
NOT_LOCAL_PAGE = (
    b"Without keys only pages of this machine may call this server: start it with --cors-origin and the"
    b" origin of the page, or with --keys.\n"
)
NOT_UTF8 = b"A header is not UTF-8.\n"
GRPC_ELSEWHERE = (
    b"This address speaks Connect and gRPC-Web. For gRPC, start the server with --grpc HOST:PORT, and call"
    b" it there.\n"
)
HEADERS_TOO_LARGE = f"The headers are larger than {HEADER_BYTES_MAX // 1024} KiB.\n".encode()
REQUEST_TIMEOUT = "The rest of the request did not arrive in time. Send it again, all of it at once."
STATUS_TEXTS = {
    404: NOT_FOUND,
    405: b"Method not allowed: send a POST.\n",
    415: b"Send application/json or application/proto; to a stream, application/connect+json or"
    b" application/connect+proto.\n",
}
"""The texts of the statuses that the protocol sends without a body."""


def rejection(
    scope: Scope, *, guarded: bool, origins: Container[bytes] = frozenset()
) -> tuple[int, bytes] | None:
    """Return why a request is refused, as a status and a text, or None. Unless it is `guarded` by keys, a
    server also refuses what a page in a browser may have sent under another name (DNS rebinding), except for
    pages of these `origins`."""
    size = len(scope["raw_path"]) + len(scope["query_string"])
    trailers = "http.response.trailers" in scope.get("extensions", ())  # gRPC ends with them
    for name, value in scope["headers"]:
        size += len(name) + len(value)
        if not value.isascii() and not _is_utf8(value):
            return 400, NOT_UTF8
        elsewhere = not guarded and name in _LOCAL_HEADERS and not _LOCAL_HEADERS[name].fullmatch(value)
        if elsewhere and (name == b"host" or value not in origins):
            return 403, NOT_LOCAL if name == b"host" else NOT_LOCAL_PAGE
        if name == b"content-type" and (value + b";").lower().startswith(GRPC) and not trailers:
            return 415, GRPC_ELSEWHERE
    if size > HEADER_BYTES_MAX:
        return 431, HEADERS_TOO_LARGE
    if _KEY.search(scope["query_string"]) or _KEY.search(scope["raw_path"]):
        return 400, KEY_IN_URL
    return None


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def with_read_timeout(receive: Receive) -> Receive:
    """Return a `receive` that fails unless all of the request arrives within `REQUEST_SECONDS_MAX`."""
    began = asyncio.get_running_loop().time()
    whole = False

    async def receive_in_time() -> dict[str, Any]:
        nonlocal whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout_at(began + REQUEST_SECONDS_MAX):
                message = await receive()
        except TimeoutError:
            raise ConnectError(Code.DEADLINE_EXCEEDED, REQUEST_TIMEOUT) from None
        whole = not message.get("more_body", False)
        return message

    return receive_in_time


def with_error_text(send: Send) -> Send:
    """Return a `send` that adds a text to a status without a body."""
    text: bytes | None = None

    async def send_with_text(message: dict[str, Any]) -> None:
        nonlocal text
        if message["type"] == "http.response.start":
            has_body = any(name == PLAIN_TEXT[0] for name, _ in message["headers"])
            text = None if has_body else STATUS_TEXTS.get(message["status"])
            if text is not None:
                message = {**message, "headers": [*message["headers"], PLAIN_TEXT]}
        elif text is not None:
            message = {**message, "body": text}
        await send(message)

    return send_with_text


async def send_text(send: Send, status: int, text: bytes) -> None:
    """Send a plain text response."""
    await send({"type": "http.response.start", "status": status, "headers": [PLAIN_TEXT]})
    await send({"type": "http.response.body", "body": text})
