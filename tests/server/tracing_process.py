"""Submits to a server over HTTP and works for it, all in this process; prints every span and event.

Started as `python -m tests.server.tracing_process FOLDER on|off`; with `on`, OpenTelemetry keeps what is
recorded in memory.
"""

import asyncio
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from holdfast import AsyncClient, tracing
from holdfast.core.job import Job
from holdfast.ports import Grant
from holdfast.registry.local import LocalRegistry
from holdfast.runner import RUNNER_ARGV
from holdfast.runner.call import Call
from holdfast.sdk.job_calls import command
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.command_executor import CommandExecutor
from holdfast.worker.function_executor import FunctionExecutor
from holdfast.worker.processes import Processes
from holdfast.worker.spool import MemorySpool
from holdfast.worker.worker import Worker
from tests.server import tracing_app
from tests.server.running_server import serving

PATIENCE_SECONDS = 60.0


class Quiet:
    """A report that is not read."""

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None: ...

    def trouble(self, why: str) -> None:
        sys.stderr.write(f"{why}\n")

    def paused(self, seconds: float, why: str) -> None: ...

    def resumed(self) -> None: ...


def asking() -> AbstractContextManager[object]:
    """The submitter is serving a request of its own, and has a span for that."""
    if tracing.is_enabled():
        return tracing.use_span(tracing.start_span("web request", "server", None, {}))
    return nullcontext()


async def play() -> dict[str, Any]:
    """One job of each kind, from its submission to its end."""
    clock, ids = SystemClock(), SystemIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    processes = Processes(clock)
    async with serving(registry) as served, AsyncClient(served.url) as client:
        calls: dict[str, Call[Any]] = {
            "plain": tracing_app.plain.call(),
            "coroutine": tracing_app.coroutine.call(),
            "broken": tracing_app.broken.call(),
            "command": command(["sh", "-c", "echo $TRACEPARENT"]),
        }
        with asking():
            made = {name: (await client.enqueue(call)).job_id for name, call in calls.items()}
        env = {**os.environ, "TRACED": "1"} if tracing.is_enabled() else os.environ
        functions = FunctionExecutor(
            processes, "tests.server.tracing_app:app", runner_argv=RUNNER_ARGV, slots=4, env=env
        )
        await functions.load()
        worker = Worker(
            client.registry,
            WorkerSettings(owner="w", slots=4, drain=True),
            Quiet(),
            clock=clock,
            ids=ids,
            executors=[functions, CommandExecutor(processes, own=os.environ)],
            spool=MemorySpool(),
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            await worker.run()
        await processes.close()
        found = (await registry.events()).events
        follow_up = next(e.job_id for e in found if e.cause is not None)
        jobs = {name: await registry.status(job_id) for name, job_id in made.items()}
        jobs["after"] = await registry.status(follow_up or "")
    await registry.close()
    return {
        "jobs": jobs,
        "events": found,
    }


def record() -> Any:  # noqa: ANN401
    """Load OpenTelemetry, keeping what is recorded."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    trace.set_tracer_provider(provider)
    return memory


def told(span: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": f"{span.context.trace_id:032x}",
        "span": f"{span.context.span_id:016x}",
        "parent": None if span.parent is None else f"{span.parent.span_id:016x}",
        "attributes": dict(span.attributes),
        "status": span.status.status_code.name,
        "why": span.status.description,
    }


def main() -> None:
    os.chdir(sys.argv[1])
    memory = record() if sys.argv[2] == "on" else None
    result = asyncio.run(play())
    spans = [] if memory is None else [told(span) for span in memory.get_finished_spans()]
    loaded = sorted(name for name in sys.modules if name.startswith("opentelemetry.sdk"))
    answer = {**result, "spans": spans, "loaded": loaded}
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
