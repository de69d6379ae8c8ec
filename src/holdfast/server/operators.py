"""Operators: what they and their tools ask of a server. Is it alive, is it ready, what has it done?"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from holdfast.core.errors import Denied, HoldfastError
from holdfast.registry.exposition import CONTENT_TYPE
from holdfast.server.admission import overlook
from holdfast.server.calls import NO_KEY
from holdfast.server.context import Context
from holdfast.server.door import PLAIN, Scope, Send, refused
from holdfast.server.health import Readiness
from holdfast.server.metrics import Metrics

Page: TypeAlias = Callable[[Scope, Send], Awaitable[None]]

JSON = (b"content-type", b"application/json")
PROMETHEUS = (b"content-type", CONTENT_TYPE.encode())
ONLY_GET = b"Send a GET: this only tells.\n"
AWAY = b"The keys cannot be read now: the store does not answer. Ask again, and see /readyz.\n"


class Operators:
    """The pages for operators, by their path."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._readiness = Readiness(context)
        self._metrics = Metrics(context, self._readiness)
        self._pages: dict[str, Page] = {
            "/healthz": self._alive,
            "/readyz": self._ready,
            "/metrics": self._counted,
        }

    def page(self, path: str) -> Page | None:
        return self._pages.get(path)

    async def _alive(self, scope: Scope, send: Send) -> None:
        await _answer(scope, send, 200, b"ok\n", PLAIN)

    async def _ready(self, scope: Scope, send: Send) -> None:
        obstacles = await self._readiness.obstacles()
        document = {"ready": not obstacles, "not_ready": obstacles}
        status = 503 if obstacles else 200
        await _answer(scope, send, status, msgspec.json.encode(document) + b"\n", JSON)

    async def _counted(self, scope: Scope, send: Send) -> None:
        """For whoever may know how much there is in every queue."""
        if (no := refused(scope, guarded=self._context.settings.keys)) is not None:
            await _answer(scope, send, *no, PLAIN)
            return
        headers = dict(scope["headers"])
        try:
            who = await self._context.keyring.principal(headers.get(b"authorization", b"").decode())
            if who is None:
                await _answer(scope, send, 401, f"{NO_KEY}\n".encode(), PLAIN)
                return
            overlook(who, None)
        except Denied as error:
            await _answer(scope, send, 403, f"{error.message}\n".encode(), PLAIN)
        except HoldfastError:
            await _answer(scope, send, 503, AWAY, PLAIN)
        else:
            await _answer(scope, send, 200, await self._metrics.page(), PROMETHEUS)


async def _answer(
    scope: Scope, send: Send, status: int, body: bytes, kind: tuple[bytes, bytes]
) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        status, body, kind = 405, ONLY_GET, PLAIN
    headers = [kind, (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
