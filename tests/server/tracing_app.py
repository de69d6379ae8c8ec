"""An app whose handlers say in which trace they run. With TRACED set, OpenTelemetry is loaded beside it."""

import os
import sys

import holdfast

app = holdfast.App()

if os.environ.get("TRACED"):
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    trace.set_tracer_provider(TracerProvider())


def current() -> str | None:
    """The current span, as OpenTelemetry sees it."""
    if not os.environ.get("TRACED"):
        return None
    context = trace.get_current_span().get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@app.job
def plain(ctx: holdfast.Context) -> dict[str, object]:
    """In a thread."""
    ctx.follow_up(after.call())
    ctx.emit("seen", n=1)
    loaded = sorted(name for name in sys.modules if name.startswith("opentelemetry"))
    return {"context": ctx.traceparent, "current": current(), "loaded": loaded}


@app.job
async def coroutine(ctx: holdfast.Context) -> dict[str, object]:
    """On the loop."""
    return {"context": ctx.traceparent, "current": current()}


@app.job
def after() -> None:
    """What comes after `plain`."""


@app.job(retry=holdfast.Retry(max_failures=1))
def broken() -> None:
    raise KeyError("no")
