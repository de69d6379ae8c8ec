"""Submitting: requests tied to the trace that whoever makes them is in."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from holdfast import tracing
from holdfast.ports import Request
from holdfast.registry.requests import within
from holdfast.sdk.context import current


class Submitting:
    """The requests as they are to be sent, inside. Those that name no trace are part of the caller's: the
    current one, else that of the job whose handler this is, else `parent`."""

    __slots__ = ("_parent", "_requests", "_span")

    def __init__(self, requests: Sequence[Request], parent: str | None = None) -> None:
        self._requests = requests
        self._parent = parent
        self._span: AbstractContextManager[tracing.Span] | None = None

    def __enter__(self) -> Sequence[Request]:
        parent = tracing.current()
        if parent is None:
            context = current.get(None)
            parent = self._parent if context is None else context.traceparent
        if tracing.wanted(parent):
            self._span = tracing.over(_begun(self._requests, parent))
            parent = self._span.__enter__().traceparent
        return self._requests if parent is None else [within(one, parent) for one in self._requests]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._span is not None:
            self._span.__exit__(kind, error, trace)


def _begun(requests: Sequence[Request], parent: str | None) -> tracing.Span:
    kinds = {request.spec.kind for request in requests}
    name = f"submit {kinds.pop()}" if len(kinds) == 1 else "submit"
    return tracing.start(name, "producer", parent, {"holdfast.jobs": len(requests)})
