"""Traces of the commands: whether they send any, and the trace that they are called in."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.core.errors import Invalid
from holdfast.core.trace import traceparent_of
from holdfast.sdk.settings import chosen
from holdfast.system import SystemIds
from holdfast.tracing import switch_on

if TYPE_CHECKING:
    from holdfast.cli.worker_log import Out

WHERE = ("off", "otlp")


@contextmanager
def traced(service: str, out: "Out | None" = None, *, as_json: bool = False) -> Iterator[None]:
    """Inside, this process sends its traces, if HOLDFAST_TRACES says so. What it starts hears of it. A
    collector that is not there is told of in `out`, or on stderr."""
    given = chosen("traces")
    where = "off" if given is None else str(given.value)
    if given is not None and where not in WHERE:
        raise Invalid(f"{given.place}: traces are off or otlp, not {where!r}.")
    end = switch_on(where, service, SystemIds().chance())
    if where != "off":
        os.environ["HOLDFAST_TRACES"] = where
        if out is not None:
            from holdfast.cli.serve_log import Lines

            logging.getLogger("opentelemetry").addHandler(Lines(out, as_json=as_json))
    try:
        yield
    finally:
        end()


def caller_trace() -> str | None:
    """The trace that whoever runs this command is in: TRACEPARENT, as jobs have it too."""
    return traceparent_of(os.environ.get("TRACEPARENT", ""))
