"""A worker stops at the quota of an attempt, and says how much it did not send."""

import pytest

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Flaws, Job
from holdfast.core.lifecycle import Success
from holdfast.core.limits import EVENT_BYTES
from holdfast.core.quota import event_bytes
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.system import SystemClock
from holdfast.testing.world import fill
from holdfast.worker.held_job import HeldJob
from holdfast.worker.output import DROPPED_EVENT_BYTES, AttemptOutput
from holdfast.worker.redaction import Redactor
from holdfast.worker.spool import MemoryAttemptLog, MemorySpool, SpooledEvent


async def run_attempt(registry: LocalRegistry, bytes_max: int, left: int | None = None) -> Job:
    """The job after a worker has published output and events in it, and ended it."""
    job = await registry.enqueue(JobRequest(spec=Spec()), actor="user:ana")
    grant = await registry.acquire(job.job_id, owner="w-1")
    if left is not None:
        await fill(registry._store, job.job_id, left)
    clock = SystemClock()
    hold = HeldJob(grant, clock.monotonic() + 60)
    log, hidden = MemorySpool().log(hold), Redactor(["hush-hush"])
    output = AttemptOutput(registry, clock, hold, log, redactor=hidden, bytes_max=bytes_max)
    output.write(b"a" * 100, "stdout")
    output.write(b"b" * 100, "stderr")
    output.write(b"c" * 50 + b"hush", "stdout")
    output.add_event(WorkerEventType.PROCESS_END, exit_code=0)
    output.seal(b"")
    await output.flush()
    assert hold.lost is None
    await output.close()
    return await registry.complete(grant, Success())


async def log(registry: LocalRegistry, job: Job) -> list[Event]:
    page = await registry.logs(job.job_id)
    return [event for event in page.events if event.sequence is not None]


async def test_what_a_worker_does_not_send_is_on_record_to_the_byte() -> None:
    registry = await open_local("memory://")
    job = await run_attempt(registry, 2 * EVENT_BYTES + 130)
    events = await log(registry, job)

    assert b"".join(event.data or b"" for event in events) == b"a" * 100 + b"b" * 30
    assert job.flaws == Flaws(dropped_bytes=70 + 54)
    told = [e.event_type for e in events if e.event_type != WorkerEventType.OUTPUT]
    assert told == ["process_error", "process_end", "process_error"]
    await registry.close()


async def test_events_beyond_the_reserve_are_not_spooled_and_are_on_record_to_the_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "x" * 10_000
    size = event_bytes(None, {"name": "line", "data": text})
    reserve = 5 * size + DROPPED_EVENT_BYTES
    for module in ("holdfast.worker.output", "holdfast.core.quota"):
        monkeypatch.setattr(f"{module}.OUTPUT_RESERVE_BYTES", reserve)
    registry = await open_local("memory://")
    job = await registry.enqueue(JobRequest(spec=Spec()), actor="user:ana")
    grant = await registry.acquire(job.job_id, owner="w-1")
    await fill(registry._store, job.job_id, 0)
    clock, log_ = SystemClock(), MemoryAttemptLog()
    output = AttemptOutput(registry, clock, HeldJob(grant, clock.monotonic() + 60), log_, bytes_max=0)
    for _ in range(100):
        output.add_event(WorkerEventType.CUSTOM, name="line", data=text)
    spooled = log_.read(1_000, 10**9)
    output.seal(b"")
    await output.flush()
    await output.close()
    job = await registry.complete(grant, Success())

    assert spooled is not None
    assert [piece.event_type for piece in spooled.events] == ["custom"] * 5 + ["process_error"]
    told = [event.event_type for event in await log(registry, job)]
    assert told == ["custom"] * 5 + ["process_error"] * 2
    assert job.flaws == Flaws(dropped_bytes=95 * size)
    await registry.close()


def test_what_waits_in_the_spool_counts_with_its_attributes() -> None:
    piece = SpooledEvent(1, WorkerEventType.CUSTOM, 0.0, None, None, {"data": "x" * 10_000})
    log_ = MemoryAttemptLog()

    size = log_.append(piece)

    batch = log_.read(10, 10**9)
    assert batch is not None
    assert size == batch.size > 10_000


async def test_a_worker_that_knows_of_no_quota_is_refused_and_ends_its_job_all_the_same() -> None:
    registry = await open_local("memory://")
    job = await run_attempt(registry, 10**9, left=EVENT_BYTES + 150)
    events = await log(registry, job)

    assert b"".join(event.data or b"" for event in events) == b"a" * 100
    assert job.flaws == Flaws(dropped_bytes=100 + 50 + 4)
    assert events[-1].event_type == WorkerEventType.PROCESS_END
    await registry.close()
