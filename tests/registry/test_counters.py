"""What the line counts of the jobs it changes."""

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.errors import Conflict, Fenced
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, CompleteValidation, Success, decide
from holdfast.core.outputs import ValidationResult
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest
from holdfast.registry import counters
from holdfast.registry.counters import OTHER, Histogram, JobCounters
from holdfast.registry.local import LocalRegistry
from holdfast.testing.fakes import EPOCH
from holdfast.testing.world import LEASE, TRANSIENT, open_world, output
from tests.conftest import memory_store


def test_a_histogram_puts_everything_into_one_bucket() -> None:
    found = Histogram((1.0, 2.0))

    for number in (0.5, 1.0, 1.5, 9.0):
        found.add(number)

    assert (found.buckets, found.total) == ([2, 1, 1], 12.0)


def test_a_clock_that_went_back_counts_as_no_time() -> None:
    found = Histogram()

    found.add_interval(EPOCH, EPOCH - LEASE)

    assert (found.buckets[0], found.total) == (1, 0)


def test_kinds_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "KINDS_MAX", 2)
    found = JobCounters()

    for name in "abcda":
        found.kinds[name].renewals += 1

    assert {name: kind.renewals for name, kind in found.kinds.items()} == {"a": 2, "b": 1, OTHER: 2}


async def test_an_attempt_is_measured_from_its_claim_and_a_job_from_its_making(
    tmp_path: Path,
) -> None:
    async with open_world(memory_store, tmp_path) as world:
        await world.enqueue("slow", kind="slow", delay=timedelta(seconds=5))
        world.clock.advance(12)
        grant = await world.claim()
        world.clock.advance(2)
        await world.registry.heartbeat(grant)
        world.clock.advance(1)
        await world.registry.complete(grant, Success())

        kind = world.local.counters.kinds["slow"]
        assert (kind.wait.total, kind.run.total, kind.latency.total) == (7, 3, 15)
        assert kind.renewals == 1
        assert kind.events == {
            EventType.QUEUED: 1,
            EventType.CLAIMED: 1,
            EventType.STARTED: 1,
            EventType.SUCCEEDED: 1,
        }


async def test_jobs_are_not_counted_for_nobody(tmp_path: Path) -> None:
    async with open_world(memory_store, tmp_path) as world:
        registry = LocalRegistry(world.store, world.ids)
        await registry.enqueue(JobRequest(spec=Spec()), actor="user:ana")

        assert registry.counters.kinds == {}


async def test_a_job_that_nobody_had_is_measured_too(tmp_path: Path) -> None:
    async with open_world(memory_store, tmp_path) as world:
        await world.enqueue("idle")
        world.clock.advance(4)
        await world.registry.cancel("idle", actor="user:ana")

        kind = world.local.counters.kinds["command"]
        assert (kind.latency.total, sum(kind.run.buckets), kind.late) == (4, 0, 0)


async def test_a_lease_taken_over_in_one_commit_is_an_expiry_a_retry_and_a_claim(
    tmp_path: Path,
) -> None:
    async with open_world(memory_store, tmp_path) as world:
        await world.enqueue("job-1")
        await world.claim(lease=LEASE)
        world.clock.advance(61)
        await world.registry.acquire("job-1", owner="worker-8")

        kind = world.local.counters.kinds["command"]
        assert (kind.lapsed, kind.retries, kind.events[EventType.CLAIMED]) == (1, 1, 2)
        assert (sum(kind.run.buckets), sum(kind.wait.buckets)) == (1, 2)


async def test_released_jobs_are_no_retries_and_failed_ones_are(tmp_path: Path) -> None:
    async with open_world(memory_store, tmp_path) as world:
        await world.enqueue("given-back")
        await world.registry.release(await world.claim())
        await world.registry.complete(await world.claim(), TRANSIENT)

        kind = world.local.counters.kinds["command"]
        assert (kind.retries, kind.lapsed, sum(kind.run.buckets)) == (1, 0, 2)


async def test_missed_deadlines_are_told_from_lost_leases(tmp_path: Path) -> None:
    async with open_world(memory_store, tmp_path) as world:
        await world.enqueue("queued", kind="late", ttl=timedelta(seconds=30))
        await world.enqueue("held", kind="held", ttl=timedelta(seconds=30))
        await world.registry.acquire("held", owner="worker-7")
        await world.lapse()

        await world.enqueue("lost", kind="lost", retry=Retry(max_crashes=1))
        await world.registry.acquire("lost", owner="worker-7")
        await world.lapse()

        late, held, lost = (world.local.counters.kinds[name] for name in ("late", "held", "lost"))
        assert (late.late, late.lapsed, late.retries) == (1, 0, 0)
        assert (held.late, held.lapsed, held.retries) == (1, 1, 0)
        assert (lost.late, lost.lapsed, lost.retries) == (0, 1, 0)


def test_a_job_whose_last_outputs_come_later_has_ended_once() -> None:
    job = Job("job-1", Spec(promised_outputs=2), State.VALIDATING, EPOCH, EPOCH, EPOCH)
    some = decide(
        CompleteValidation(op_id="o-1", actor="validator:v", found=ValidationResult(verified=1, missing=1)),
        job,
        EPOCH,
    )
    assert isinstance(some, Change)
    rest = decide(
        CompleteValidation(op_id="o-2", actor="validator:v", found=ValidationResult(verified=2)),
        some.after,
        EPOCH,
    )
    assert isinstance(rest, Change)
    found = JobCounters()

    found.count_changes([some, rest])

    kind = found.kinds["command"]
    assert (sum(kind.latency.buckets), sum(kind.events.values())) == (1, 2)
    assert kind.verdicts == {State.PARTIAL_SUCCESS: 1, State.SUCCEEDED: 1}


def test_what_an_unsuccessful_job_left_is_a_verdict_that_changes_nothing() -> None:
    job = Job("job-1", Spec(promised_outputs=2), State.CANCELLED, EPOCH, EPOCH, EPOCH, ended_at=EPOCH)
    told = CompleteValidation(op_id="o-1", actor="validator:v", found=ValidationResult(verified=1, missing=1))
    looked = decide(told, job, EPOCH)
    assert isinstance(looked, Change)
    found = JobCounters()

    found.count_changes([looked])

    kind = found.kinds["command"]
    assert kind.verdicts == {"unchanged": 1}
    assert kind.events == {"job_outputs_verified": 1}
    assert sum(kind.latency.buckets) == 0


async def test_conflicts_count_for_the_kind_of_the_job(tmp_path: Path) -> None:
    async with open_world(memory_store, tmp_path) as world:
        await world.enqueue("job-1", kind="wanted")
        await world.registry.acquire("job-1", owner="worker-7")
        new = JobRequest(spec=Spec(kind="new", executor="x"), job_id="job-2")
        for job_id, create in (("job-1", None), ("job-2", new)):
            with pytest.raises(Conflict):
                await world.registry.acquire(job_id, owner="worker-8", create=create)

        kinds = world.local.counters.kinds
        assert {name: kind.conflicts for name, kind in kinds.items()} == {"wanted": 1, "new": 1}


async def test_other_events_are_counted_by_type_and_foreign_ones_together(tmp_path: Path) -> None:
    async with open_world(memory_store, tmp_path) as world:
        await world.enqueue("job-1")
        grant = await world.claim(heartbeat_interval=timedelta(seconds=10))
        await world.registry.publish(grant, [output(n, world=world) for n in (1, 2)])
        world.clock.advance(25)
        await world.registry.expire()
        mine = Event("invoice_sent", EventClass.EXTERNAL, world.clock.now(), given_id="i-1")
        await world.registry.record([mine, mine])
        await world.registry.complete(grant, Success(), follow_ups=[JobRequest(spec=Spec())])
        for _ in range(2):
            with pytest.raises(Fenced):
                await world.registry.heartbeat(grant)

        assert world.local.counters.other_events == {
            "output": 2,
            "external": 1,
            EventType.ORPHAN_SUSPECTED: 1,
            EventType.STALE_WRITE_REJECTED: 1,
        }
        assert world.local.counters.kinds["command"].events[EventType.QUEUED] == 2
