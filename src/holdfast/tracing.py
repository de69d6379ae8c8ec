"""Traces by OpenTelemetry: off unless its SDK is loaded in this process, and then free of cost.

`switch_on` loads it; so may whoever uses holdfast as a library. Nothing else here imports it. A context
travels as text, as the W3C writes it (`core.trace`): where it begins and where it goes on need not know
of one another.
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

ROOTS_SAMPLED = 0.01
"""Of the traces that begin here; those that began elsewhere are as they were there."""

GOLDEN = 0.6180339887498949
SEND_SECONDS = 3.0
"""How long a batch of spans is tried: so long a command may wait at its end for a collector that is gone."""

_TIMEOUTS = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
_SDK = "opentelemetry.sdk.trace"


def on() -> bool:
    """Whether anybody in this process traces."""
    return _SDK in sys.modules


class Span:
    """A part of a trace that has begun. `traceparent` is what to hand on, so that more can be part of it."""

    __slots__ = ("_recorded", "traceparent")

    def __init__(self, recorded: "Recorded") -> None:
        self._recorded = recorded
        self.traceparent = _text(recorded.get_span_context())

    def note(self, attributes: Attributes) -> None:
        """Add what is known by now."""
        self._recorded.set_attributes(attributes)

    def end(self, error: str | None = None) -> None:
        """It is over; `error` names what went wrong, in a word."""
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self._recorded.set_status(Status(StatusCode.ERROR, error))
        self._recorded.end()


class Roots:
    """Which traces are sampled that begin in this process: decided before anything is made for them.

    Multiples of the golden ratio, from a chance on, are as good as chance and cost a tenth.
    """

    def __init__(self, share: float, place: float) -> None:
        self._share = share
        self._place = place

    def passed_over(self, parent: str | None) -> bool:
        if parent is not None:
            return parent.endswith("-00")
        self._place = (self._place + GOLDEN) % 1.0
        return self._place >= self._share


_roots: Roots | None = None
"""None where somebody else has set up OpenTelemetry, and decides this."""


def wanted(parent: str | None) -> bool:
    """Whether to begin a span, as part of `parent` or of a trace of its own."""
    return _SDK in sys.modules and not (_roots is not None and _roots.passed_over(parent))


def start(name: str, kind: Kind, parent: str | None, attributes: Attributes) -> Span:
    """Begin a span that is `wanted`."""
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
def over(begun: Span) -> Iterator[Span]:
    """The span, over what is done inside: there it is the current one, and it ends with it."""
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


def current() -> str | None:
    """The context that the code which asks is in, if there is one."""
    if not on():
        return None
    trace = sys.modules["opentelemetry.trace"]  # an import takes as long as all the rest
    span = trace.get_current_span()
    return None if span is trace.INVALID_SPAN else _text(span.get_span_context())


def enter(traceparent: str | None) -> None:
    """From here on, for as long as this task lives, spans are part of this one."""
    if traceparent is not None and on():
        from opentelemetry.context import attach

        attach(_context(traceparent))


def switch_on(where: str, service: str, chance: float) -> Callable[[], None]:
    """Send traces: `otlp`, or `off` for not at all. Where to, and how many, is said by the standard
    variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER_ARG, ...). Call the answer at the end."""
    global _roots  # noqa: PLW0603
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
        return lambda: None  # whoever started us has seen to it
    name = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    if not os.environ.get("OTEL_TRACES_SAMPLER"):
        _roots = Roots(_share(), chance)
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
    """Send what is there, within a moment: this process is about to end."""
    if on():
        from opentelemetry.trace import get_tracer_provider

        send = getattr(get_tracer_provider(), "force_flush", None)
        if send is not None:
            send(int(SEND_SECONDS * 1000))


def _share() -> float:
    """One in a hundred of those that begin here, unless the standard variable says otherwise."""
    given = os.environ.get("OTEL_TRACES_SAMPLER_ARG") or ROOTS_SAMPLED
    try:
        share = float(given)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise Invalid(f"OTEL_TRACES_SAMPLER_ARG is a share from 0 to 1, not {given!r}.")
    return share


_made: "tuple[TracerProvider, Tracer] | None" = None


def _tracer() -> "Tracer":
    """Our tracer. To make one takes longer than a span."""
    global _made  # noqa: PLW0603
    from opentelemetry.trace import get_tracer_provider

    provider = get_tracer_provider()
    if _made is None or _made[0] is not provider:
        _made = provider, provider.get_tracer("holdfast")
    return _made[1]


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
