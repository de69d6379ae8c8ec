"""Traces by OpenTelemetry: off, and free of cost, unless its SDK is loaded in this process.

`configure` loads it; a program that uses holdfast as a library may load it, too. Nothing else here imports
it. A context is passed as text in the form of the W3C (`core.trace`), so that the process that begins a
trace and those that continue it are independent.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

from holdfast.core.errors import Invalid

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span as Recorded
    from opentelemetry.trace import SpanContext, Tracer, TracerProvider

Kind: TypeAlias = Literal["producer", "server", "consumer"]
Attributes: TypeAlias = Mapping[str, str | int]

ROOT_SAMPLE_RATE = 0.01
"""The share of traces that are sampled when they begin here; others keep the decision of their origin."""

GOLDEN_RATIO = 0.6180339887498949
SEND_SECONDS = 3.0
"""The timeout of sending a batch of spans, and so how long a command may wait at its end for a lost
collector."""

_TIMEOUTS = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
_SDK = "opentelemetry.sdk.trace"


def is_enabled() -> bool:
    """Return whether this process traces."""
    return _SDK in sys.modules


class Span:
    """A started span. `traceparent` is passed on, so that other spans can become its children."""

    __slots__ = ("_recorded", "traceparent")

    def __init__(self, recorded: "Recorded") -> None:
        self._recorded = recorded
        self.traceparent = _text(recorded.get_span_context())

    def set_attributes(self, attributes: Attributes) -> None:
        """Add attributes to the span."""
        self._recorded.set_attributes(attributes)

    def end(self, error: str | None = None) -> None:
        """End the span; `error` is the name of an error."""
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self._recorded.set_status(Status(StatusCode.ERROR, error))
        self._recorded.end()


class RootSampler:
    """The sampler of traces that begin in this process: it decides before a span is created.

    Multiples of the golden ratio, from a random start, are as even as random numbers and cost a tenth.
    """

    def __init__(self, share: float, position: float) -> None:
        self._share = share
        self._position = position

    def skips(self, parent: str | None) -> bool:
        if parent is not None:
            return parent.endswith("-00")
        self._position = (self._position + GOLDEN_RATIO) % 1.0
        return self._position >= self._share


_root_sampler: RootSampler | None = None
"""None where the host program has set up OpenTelemetry, and its sampler decides."""


def should_start(parent: str | None) -> bool:
    """Return whether to start a span, as a child of `parent` or in a trace of its own."""
    return _SDK in sys.modules and not (_root_sampler is not None and _root_sampler.skips(parent))


def start_span(name: str, kind: Kind, parent: str | None, attributes: Attributes) -> Span:
    """Start a span, after `should_start` returned True."""
    from opentelemetry.trace import SpanKind

    return Span(
        _tracer().start_span(
            name,
            _context(parent),
            SpanKind[kind.upper()],
            attributes,
            set_status_on_exception=False,
        )
    )


@contextmanager
def use_span(begun: Span) -> Iterator[Span]:
    """Make the span the current one inside the block, and end it with the block."""
    from opentelemetry.context import attach, detach
    from opentelemetry.trace import set_span_in_context

    error, token = None, attach(set_span_in_context(begun._recorded))
    try:
        yield begun
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        detach(token)
        begun.end(error)


def current_traceparent() -> str | None:
    """Return the context of the current span, or None."""
    if not is_enabled():
        return None
    trace = sys.modules["opentelemetry.trace"]  # an import statement takes as long as the rest
    span = trace.get_current_span()
    return None if span is trace.INVALID_SPAN else _text(span.get_span_context())


def attach_context(traceparent: str | None) -> None:
    """Make the context the parent of all spans that this task starts from now on."""
    if traceparent is not None and is_enabled():
        from opentelemetry.context import attach

        attach(_context(traceparent))


def configure(where: str, service: str, chance: float) -> Callable[[], None]:
    """Set up the sending of traces: `otlp`, or `off`. The standard variables
    (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER_ARG, ...) give the collector and the share. Call
    the returned function at the end."""
    global _root_sampler  # noqa: PLW0603
    if where == "off":
        return lambda: None
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise Invalid("Traces need more packages: pip install 'holdfast[tracing]'") from error
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return lambda: None  # the host program has set it up
    name = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    if not os.environ.get("OTEL_TRACES_SAMPLER"):
        _root_sampler = RootSampler(_sample_rate(), chance)
    provider = TracerProvider(resource=Resource.create(name), shutdown_on_exit=False)
    given = any(os.environ.get(name) for name in _TIMEOUTS)
    exporter = OTLPSpanExporter(timeout=None if given else SEND_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

    def end() -> None:
        flush()
        provider.shutdown()

    return end


def flush() -> None:
    """Send the pending spans within `SEND_SECONDS`, before this process ends."""
    if is_enabled():
        from opentelemetry.trace import get_tracer_provider

        send = getattr(get_tracer_provider(), "force_flush", None)
        if send is not None:
            send(int(SEND_SECONDS * 1000))


def _sample_rate() -> float:
    """The share of traces to sample: the standard variable, or one in a hundred."""
    given = os.environ.get("OTEL_TRACES_SAMPLER_ARG") or ROOT_SAMPLE_RATE
    try:
        share = float(given)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise Invalid(f"OTEL_TRACES_SAMPLER_ARG is a share from 0 to 1, not {given!r}.")
    return share


_cached_tracer: "tuple[TracerProvider, Tracer] | None" = None


def _tracer() -> "Tracer":
    """The tracer, cached: creating one takes longer than a span."""
    global _cached_tracer  # noqa: PLW0603
    from opentelemetry.trace import get_tracer_provider

    provider = get_tracer_provider()
    if _cached_tracer is None or _cached_tracer[0] is not provider:
        _cached_tracer = provider, provider.get_tracer("holdfast")
    return _cached_tracer[1]


def _text(context: "SpanContext") -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"


def _context(traceparent: str | None) -> "Context":
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if traceparent is None:
        return Context()
    _, trace, parent, flags = traceparent.split("-")
    remote = SpanContext(int(trace, 16), int(parent, 16), True, TraceFlags(int(flags, 16)))
    return set_span_in_context(NonRecordingSpan(remote), Context())
