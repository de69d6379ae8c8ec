"""Traces of the commands: whether they send any, and the trace that they are called in."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.core.errors import Invalid
from holdfast.core.trace import traceparent_of
from holdfast.sdk.settings import read_setting
from holdfast.system import SystemIds
from holdfast.tracing import configure

if TYPE_CHECKING:
    from holdfast.cli.worker_log import LineWriter

TRACE_EXPORTERS = ("off", "otlp")


@contextmanager
def traced(service: str, out: "LineWriter | None" = None, *, as_json: bool = False) -> Iterator[None]:
    """Send the traces of this process and of those it starts, if HOLDFAST_TRACES says so. A collector that
    does not answer is reported to `out`, or on stderr."""
    given = read_setting("traces")
    where = "off" if given is None else str(given.value)
    if given is not None and where not in TRACE_EXPORTERS:
        raise Invalid(f"{given.place}: traces are off or otlp, not {where!r}.")
    end = configure(where, service, SystemIds().chance())
    if where != "off":
        os.environ["HOLDFAST_TRACES"] = where
        if out is not None:
            from holdfast.cli.server_log import LineHandler

            logging.getLogger("opentelemetry").addHandler(LineHandler(out, as_json=as_json))
    try:
        yield
    finally:
        end()


def caller_trace() -> str | None:
    """Return the trace that this command was started in: TRACEPARENT, which jobs have too."""
    return traceparent_of(os.environ.get("TRACEPARENT", ""))
