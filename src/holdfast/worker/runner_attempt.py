"""An attempt that runs in a runner: what is sent to begin it, and its ending when the process dies."""

import asyncio

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.process_spec import exit_failure
from holdfast.worker.executor import Ending
from holdfast.worker.failures import memory_exceeded, stopped
from holdfast.worker.frames import Run
from holdfast.worker.held_job import HeldJob
from holdfast.worker.processes import ProcessExit


class RunnerAttempt(Struct, eq=False):
    """Work in a runner: a handler, or the compensation of one that `failed`.

    `tries` counts how often no runner could be started for a compensation. `stop_attempt` uses
    `stop_reply`, the reply of the runner, `changed`, a further reason to stop, and `ended`.
    """

    held: HeldJob
    failed: Ending | None = None
    tries: int = 0
    number: int = 0
    stopping: "asyncio.Task[None] | None" = None
    stop_reply: "asyncio.Future[bool] | None" = None
    changed: asyncio.Event | None = None
    ended: asyncio.Event | None = None


def run_message(attempt: RunnerAttempt) -> Run:
    """Return the message that begins it."""
    held = attempt.held
    grant = held.grant
    job = grant.job
    spec = job.spec
    kept = held.checkpoint
    return Run(
        attempt.number,
        spec.kind,
        job.job_id,
        bytes(spec.payload),
        grant.attempt,
        grant.fencing_token,
        spec.lock,
        held.deadline,
        spec.queue,
        job.correlation,
        job.trace_id,
        None if kept is None else msgspec.json.encode(kept),
        held.traceparent,
        spec.outputs,
    )


def crash_ending(held: HeldJob, exit: ProcessExit, memory_bytes: int | None) -> Ending:  # noqa: A002
    """Return the ending of an attempt whose process has died: stopped by the worker, or a crash."""
    if held.must_stop:
        return stopped(held)
    code = exit.status if exit.status >= 0 else 128 - exit.status
    if exit.memory and memory_bytes is not None:
        return Ending(failure=memory_exceeded(memory_bytes))
    failure = exit_failure(code, f"The process that ran it died ({code}).")
    return Ending(failure=replace(failure, crash=True))
