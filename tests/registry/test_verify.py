"""verify: every tampered field is found, and nothing is found in a healthy store."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import ReasonCode
from holdfast.core.event import Event
from holdfast.core.job import CancelRequest, DeadLetter, Failure, Job, Lease
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Clock, Ids, JobFilter, JobPage, JobRequest, Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing.fakes import EPOCH
from holdfast.testing.world import TRANSIENT, World, open_world, output


class TamperedStore(MemoryStore):
    """A memory store whose records and log can be falsified behind its back."""

    def falsify(self, job_id: str, **changes: object) -> None:
        self._jobs[job_id] = replace(self._jobs[job_id], **changes)

    def forget(self, event_id: str) -> None:
        self._log = [event for event in self._log if event.event_id != event_id]

    def rewrite(self, event_id: str, **changes: object) -> None:
        self._log = [
            replace(event, **changes) if event.event_id == event_id else event for event in self._log
        ]


async def tampered_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return TamperedStore(clock, ids)


def tampered(world: World) -> TamperedStore:
    assert isinstance(world.store, TamperedStore)
    return world.store


LEASE = Lease(
    owner="thief",
    expires_at=EPOCH,
    ttl=timedelta(seconds=60),
    granted_at=EPOCH,
    heartbeat_at=EPOCH,
)
LETTER = DeadLetter(
    reason_code=ReasonCode.TIMEOUT,
    last_error="x",
    attempts=1,
    stage="exec",  # type: ignore[arg-type]
    correlation_id="x",
)


async def test_a_healthy_store_is_equal_and_counted(world: World) -> None:
    for n in range(3):
        await world.enqueue(f"job-{n}")
    grants = await world.registry.claim(["default"], owner="w", limit=2)
    await world.registry.publish(grants[0], [output(1, world=world)])
    await world.registry.complete(grants[0], Success())
    await world.registry.cancel("job-1", actor="user:ana")

    found = await world.registry.verify()

    assert found.equal
    assert (found.jobs, found.transitions, found.events, found.control) == (3, 7, 7, 1)


async def test_an_empty_store_and_one_of_many_pages_are_equal(world: World) -> None:
    assert (await world.registry.verify()).jobs == 0
    requests = [JobRequest(spec=Spec()) for _ in range(501)]
    await world.registry.enqueue_many(requests, actor="user:ana")

    found = await world.registry.verify()

    assert found.equal
    assert found.jobs == 501


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("state", {"state": State.SUCCEEDED}),
        ("version", {"version": 9}),
        ("transition_no", {"transition_no": 9}),
        ("attempt", {"attempt": 9}),
        ("failures", {"failures": 9}),
        ("crashes", {"crashes": 9}),
        ("fencing_token", {"fencing_token": 9}),
        ("owner", {"lease": LEASE}),
        ("cancel_requested", {"cancel": CancelRequest(actor="x", requested_at=EPOCH)}),
        ("reason", {"reason": "because"}),
        ("error", {"error": Failure(message="x")}),
        ("dead_letter", {"dead_letter": LETTER}),
        ("result", {"result": 1}),
        ("found", {"found": ValidationResult(missing=1)}),
    ],
)
async def test_each_falsified_field_is_named(tmp_path: Path, field: str, changes: dict[str, object]) -> None:
    async with open_world(tampered_store, tmp_path) as world:
        await world.enqueue("honest")
        await world.enqueue("job-1")
        tampered(world).falsify("job-1", **changes)

        found = await world.registry.verify()

        assert not found.equal
        [mismatch] = found.mismatches
        assert mismatch.job_id == "job-1"
        assert any(detail.startswith(f"{field}: stored") for detail in mismatch.details)


async def test_a_falsified_lock_is_named(tmp_path: Path) -> None:
    async with open_world(tampered_store, tmp_path) as world:
        job = await world.enqueue("job-1", lock="disk")
        await world.claim()
        tampered(world).falsify("job-1", spec=replace(job.spec, lock="tape"))

        [mismatch] = (await world.registry.verify()).mismatches

        assert mismatch.details == ("lock: stored 'tape', derived 'disk'",)


async def test_a_lost_event_is_a_gap_and_the_counts_differ(tmp_path: Path) -> None:
    async with open_world(tampered_store, tmp_path) as world:
        await world.enqueue("job-1")
        await world.registry.complete(await world.claim(), Success())
        tampered(world).forget("job-1/3")

        found = await world.registry.verify()

        assert not found.equal
        assert found.transitions == found.events + 1
        assert "gaps: stored (), derived (3,)" in found.mismatches[0].details


async def test_a_history_that_moves_back_is_found(tmp_path: Path) -> None:
    async with open_world(tampered_store, tmp_path) as world:
        await world.enqueue("job-1")
        grant = await world.claim()
        await world.registry.complete(grant, TRANSIENT)
        tampered(world).rewrite("job-1/4", attempt=1)
        tampered(world).falsify("job-1", attempt=1)

        [mismatch] = (await world.registry.verify()).mismatches

        assert len(mismatch.details) == 1
        assert mismatch.details[0].startswith("moved back: ")


class BusyStore(MemoryStore):
    """A memory store on which somebody works between any two reads."""

    world: World

    async def list_jobs(
        self, which: JobFilter, *, after: str | None, limit: int, newest: bool = False
    ) -> JobPage:
        page = await super().list_jobs(which, after=after, limit=limit, newest=newest)
        await self.world.registry.claim(["default"], owner="busy")
        return page


async def busy_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return BusyStore(clock, ids)


async def test_a_store_in_use_is_not_called_broken(tmp_path: Path) -> None:
    async with open_world(busy_store, tmp_path) as world:
        assert isinstance(world.store, BusyStore)
        world.store.world = world
        job: Job = await world.enqueue("job-1")
        assert job.version == 1

        found = await world.registry.verify()

        assert found.equal, found


class ForgetfulStore(MemoryStore):
    """A memory store in which a job is pruned between the two readings of it."""

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        self._jobs.pop("gone", None)
        self._log = [event for event in self._log if event.job_id != "gone"]
        return await super().histories(job_ids)


async def forgetful_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return ForgetfulStore(clock, ids)


async def test_a_job_that_is_pruned_meanwhile_is_not_called_broken(tmp_path: Path) -> None:
    async with open_world(forgetful_store, tmp_path) as world:
        await world.enqueue("gone")
        await world.enqueue("kept")

        found = await world.registry.verify()

        assert found.equal, found
        assert found.jobs == 1
