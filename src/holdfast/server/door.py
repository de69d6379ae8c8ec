"""The door: what is refused before a service hears of it, and words where the protocol has none."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.server.limits import HEADER_BYTES_MAX, REQUEST_SECONDS_MAX

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
Service: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

PLAIN = (b"content-type", b"text/plain; charset=utf-8")
NOTHING = b"There is nothing here. See docs/service.md for what there is.\n"
IN_URL = b"A key in a URL ends up in logs: send it in the Authorization header.\n"
GRPC = (b"application/grpc+", b"application/grpc;")
_KEY = re.compile(rb"hf_[0-9a-f]{12}_")
_HERE = rb"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]{1,5})?"
_NAMES = {
    b"host": re.compile(_HERE, re.IGNORECASE),
    b"origin": re.compile(rb"https?://" + _HERE, re.IGNORECASE),
}
"""Headers that must name this machine by a name that no other can have, and how they do."""
STRANGE = (
    b"Without keys this server answers only to localhost and 127.0.0.1: call it so, or start it with"
    b" --keys.\n"
)
NO_TEXT = b"A header is not UTF-8.\n"
NO_GRPC = (
    b"This address speaks Connect and gRPC-Web. For gRPC, start the server with --grpc HOST:PORT, and call"
    b" it there.\n"
)
LARGE = f"The headers are larger than {HEADER_BYTES_MAX // 1024} KiB.\n".encode()
LATE = "The rest of the request did not come in time. Send it again, all of it at once."
WORDS = {
    404: NOTHING,
    405: b"Send a POST: every method is called so.\n",
    415: b"Send application/json or application/proto; to a stream, application/connect+json or"
    b" application/connect+proto.\n",
}
"""What is said where the protocol gives a status and nothing else."""


def refused(scope: Scope, *, guarded: bool) -> tuple[int, bytes] | None:
    """Why a request is turned away at once: a status and words; None when it may come in. Where no keys
    guard it, so is what a page of the web may have sent: under a name that was made to mean us."""
    size = len(scope["raw_path"]) + len(scope["query_string"])
    trailers = "http.response.trailers" in scope.get("extensions", ())  # gRPC ends with them
    for name, value in scope["headers"]:
        size += len(name) + len(value)
        if not value.isascii() and not _text(value):
            return 400, NO_TEXT
        if not guarded and name in _NAMES and not _NAMES[name].fullmatch(value):
            return 403, STRANGE
        if name == b"content-type" and (value + b";").lower().startswith(GRPC) and not trailers:
            return 415, NO_GRPC
    if size > HEADER_BYTES_MAX:
        return 431, LARGE
    if _KEY.search(scope["query_string"]) or _KEY.search(scope["raw_path"]):
        return 400, IN_URL
    return None


def _text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def prompt(receive: Receive) -> Receive:
    """The request as it comes, if it comes: all of it in the time that a request has."""
    began = asyncio.get_running_loop().time()
    whole = False

    async def promptly() -> dict[str, Any]:
        nonlocal whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout_at(began + REQUEST_SECONDS_MAX):
                message = await receive()
        except TimeoutError:
            raise ConnectError(Code.DEADLINE_EXCEEDED, LATE) from None
        whole = not message.get("more_body", False)
        return message

    return promptly


def patient(send: Send) -> Send:
    """Say what a bare status means. A client that does not read is waited for: its connection ends it."""
    words: bytes | None = None

    async def patiently(message: dict[str, Any]) -> None:
        nonlocal words
        if message["type"] == "http.response.start":
            named = any(name == PLAIN[0] for name, _ in message["headers"])
            words = None if named else WORDS.get(message["status"])
            if words is not None:
                message = {**message, "headers": [*message["headers"], PLAIN]}
        elif words is not None:
            message = {**message, "body": words}
        await send(message)

    return patiently


async def say(send: Send, status: int, words: bytes) -> None:
    """Answer with these words."""
    await send({"type": "http.response.start", "status": status, "headers": [PLAIN]})
    await send({"type": "http.response.body", "body": words})
