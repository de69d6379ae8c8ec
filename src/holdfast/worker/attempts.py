"""Attempts at jobs that run in runners: what is sent to begin one, and what came of one that died."""

import asyncio

import msgspec
from msgspec.structs import replace

from holdfast.core.command import exited
from holdfast.worker.executor import Ending
from holdfast.worker.frames import Run
from holdfast.worker.hold import Hold
from holdfast.worker.outcomes import stopped, too_big
from holdfast.worker.processes import Exit


class Attempt:
    """Work in a runner: a handler, or the compensation of one that `failed`.

    `tries` counts how often no runner could be had for a compensation. `told`, `stirred` and `over` are for
    whoever has to stop it.
    """

    __slots__ = ("failed", "hold", "number", "over", "stirred", "stopping", "told", "tries")

    def __init__(self, hold: Hold, failed: Ending | None = None, tries: int = 0) -> None:
        self.hold = hold
        self.failed = failed
        self.number = 0
        self.tries = tries
        self.stopping: asyncio.Task[None] | None = None
        self.told: asyncio.Future[bool] | None = None
        self.stirred: asyncio.Event | None = None
        self.over: asyncio.Event | None = None


def run_of(attempt: Attempt) -> Run:
    """What a runner needs to know to begin it."""
    hold = attempt.hold
    grant = hold.grant
    job = grant.job
    spec = job.spec
    kept = hold.checkpoint
    return Run(
        attempt.number,
        spec.kind,
        job.job_id,
        bytes(spec.payload),
        grant.attempt,
        grant.fencing_token,
        spec.lock,
        hold.deadline,
        spec.queue,
        job.correlation,
        job.trace_id,
        None if kept is None else msgspec.json.encode(kept),
        hold.traceparent,
        spec.outputs,
    )


def died(hold: Hold, exit: Exit, memory_bytes: int | None) -> Ending:  # noqa: A002
    """What became of a job whose process has died: stopped by us, or a crash."""
    if hold.stopping:
        return stopped(hold)
    code = exit.status if exit.status >= 0 else 128 - exit.status
    if exit.memory and memory_bytes is not None:
        return Ending(failure=too_big(memory_bytes))
    failure = exited(code, f"The process that ran it died ({code}).")
    return Ending(failure=replace(failure, crash=True))
