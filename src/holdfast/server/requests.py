"""Requests: how many came, by what was asked, in which protocol, with which answer, and how long it took."""

from typing import Any

from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext

from holdfast.ports import Clock
from holdfast.registry.counted import OTHER, Histogram

METHODS_MAX = 500
"""More than there are: a mistake elsewhere must not make a label of whatever comes."""


class Requests:
    """What was asked of this server since it began. To count one costs 0.5 us."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, ...], int] = {}
        self.times: dict[tuple[str, ...], Histogram] = {}

    def add(self, method: str, protocol: str, code: str, seconds: float) -> None:
        """Count one that was answered. `method` is one of ours, never a path as it came."""
        times = self.times.get((method, protocol))
        if times is None:
            method = method if len(self.times) < METHODS_MAX else OTHER
            times = self.times.setdefault((method, protocol), Histogram())
        times.add(seconds)
        key = (method, protocol, code)
        self.answers[key] = self.answers.get(key, 0) + 1


class Count:
    """Counts every call of Connect's protocols, also those that the gate turns away."""

    def __init__(self, requests: Requests, clock: Clock) -> None:
        self._requests = requests
        self._clock = clock

    async def on_start(self, _: RequestContext[Any, Any]) -> float:
        return self._clock.monotonic()

    async def on_end(
        self, began: float, ctx: RequestContext[Any, Any], error: Exception | None, /
    ) -> None:
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
