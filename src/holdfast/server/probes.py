"""Probes: the paths /healthz, /readyz and /metrics, for operators and their tools."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from holdfast.core.errors import Denied, HoldfastError
from holdfast.registry.prometheus_text import CONTENT_TYPE
from holdfast.server.admission import check_may_count
from holdfast.server.calls import NO_KEY
from holdfast.server.context import ServerContext
from holdfast.server.edge import PLAIN_TEXT, Scope, Send, rejection
from holdfast.server.metrics import ServerMetrics
from holdfast.server.readiness import Readiness

Page: TypeAlias = Callable[[Scope, Send], Awaitable[None]]

JSON = (b"content-type", b"application/json")
PROMETHEUS = (b"content-type", CONTENT_TYPE.encode())
ONLY_GET = b"Method not allowed: send a GET.\n"
STORE_DOWN = b"The keys cannot be read now: the store does not answer. Try again, and see /readyz.\n"


class Probes:
    """The pages for operators, by path."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._readiness = Readiness(context)
        self._metrics = ServerMetrics(context, self._readiness)
        self._pages: dict[str, Page] = {
            "/healthz": self._alive,
            "/readyz": self._ready,
            "/metrics": self._metrics_page,
        }

    def page(self, path: str) -> Page | None:
        return self._pages.get(path)

    async def _alive(self, scope: Scope, send: Send) -> None:
        await _respond(scope, send, 200, b"ok\n", PLAIN_TEXT)

    async def _ready(self, scope: Scope, send: Send) -> None:
        obstacles = await self._readiness.obstacles()
        document = {"ready": not obstacles, "not_ready": obstacles}
        status = 503 if obstacles else 200
        await _respond(scope, send, status, msgspec.json.encode(document) + b"\n", JSON)

    async def _metrics_page(self, scope: Scope, send: Send) -> None:
        """Send the metrics to a caller that may count the jobs of every queue."""
        if (rejected := rejection(scope, guarded=self._context.settings.keys)) is not None:
            await _respond(scope, send, *rejected, PLAIN_TEXT)
            return
        headers = dict(scope["headers"])
        try:
            authorization = headers.get(b"authorization", b"").decode()
            principal = await self._context.keyring.principal(authorization)
            if principal is None:
                await _respond(scope, send, 401, f"{NO_KEY}\n".encode(), PLAIN_TEXT)
                return
            check_may_count(principal, None)
        except Denied as error:
            await _respond(scope, send, 403, f"{error.message}\n".encode(), PLAIN_TEXT)
        except HoldfastError:
            await _respond(scope, send, 503, STORE_DOWN, PLAIN_TEXT)
        else:
            await _respond(scope, send, 200, await self._metrics.page(), PROMETHEUS)


async def _respond(scope: Scope, send: Send, status: int, body: bytes, kind: tuple[bytes, bytes]) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        status, body, kind = 405, ONLY_GET, PLAIN_TEXT
    headers = [kind, (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
