"""The contract of every store: what `ports.Store` promises, as tests. Subclass it in three lines."""

import asyncio
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec
import pytest

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.errors import Conflict, Fenced
from holdfast.core.event import Event
from holdfast.core.job import Progress
from holdfast.core.lifecycle import Change, Claim, Enqueue, Refusal, Success, decide
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Due, Filter, One, Ready, Work
from holdfast.testing.world import Opener, World, output, play

FULL = Spec(
    kind="resize",
    queue="images",
    payload=msgspec.Raw(b'{"width":640}'),
    name="thumbnail",
    priority=2,
    region="eu-west",
    lock="disk:1",
    lease=timedelta(seconds=30),
    timeout=timedelta(minutes=5),
    delay=timedelta(seconds=3),
    ttl=timedelta(hours=1),
    retry=Retry(max_failures=3),
    labels={"team": "imaging"},
)


def make(job_id: str, spec: Spec = Spec()) -> Work:
    command = Enqueue(op_id=job_id, job_id=job_id, spec=spec, actor="user:ana")
    return Work(One(job_id), partial(decide, command))


def take(op_id: str, owner: str, **where: object) -> Work:
    command = Claim(op_id=op_id, owner=owner, actor=f"worker:{owner}")
    ready = Ready(op_id=op_id, **{"queues": ("default",), **where})  # type: ignore[arg-type]
    return Work(ready, partial(decide, command))


def seize(job_id: str, op_id: str, owner: str) -> Work:
    command = Claim(op_id=op_id, owner=owner, actor=f"worker:{owner}")
    return Work(One(job_id), partial(decide, command))


class StoreContract:
    """Set `open` to a function that opens an empty store in a folder, on a clock."""

    open: Opener

    def test_a_job_is_read_back_whole(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            [[made]] = await world.store.transact([make("job-1", FULL)])

            [job] = await world.store.get(["job-1"])

            assert isinstance(made, Change)
            assert job == made.after
            assert job is not None
            assert job.spec == FULL

        play(self.open, tmp_path, body)

    def test_signs_of_life_are_read_back_whole(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("job-1", promised_outputs=2)
            grant = await world.claim(heartbeat_interval=timedelta(seconds=10))
            after = await world.registry.heartbeat(
                grant, progress=Progress(3, 8, "fitting"), checkpoint={"epoch": 3}
            )
            cancelled = await world.registry.cancel("job-1", actor="user:ana", reason="enough")

            [job] = await world.store.get(["job-1"])

            assert job == cancelled
            assert job is not None
            assert job.progress == after.progress
            assert job.checkpoint == {"epoch": 3}
            assert job.lease is not None
            assert job.lease.heartbeat_interval == timedelta(seconds=10)

        play(self.open, tmp_path, body)

    def test_a_job_that_is_not_there_is_decided_as_none(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            [[refused]] = await world.store.transact([seize("nobody", "op", "worker-7")])

            assert isinstance(refused, Refusal)
            assert await world.store.get(["nobody"]) == [None]
            assert await world.store.histories(["nobody"]) == [[]]

        play(self.open, tmp_path, body)

    def test_state_and_events_land_together(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            job = await world.enqueue()
            grant = await world.claim()
            done = await world.registry.complete(grant, Success())

            [history] = await world.store.histories([job.job_id])

            assert [event.offset for event in history] == [1, 2, 3, 4]
            assert [event.transition_no for event in history] == [1, 2, 3, 4]
            assert done.version == 4
            assert [event.op_id for event in history][2] == history[3].op_id

        play(self.open, tmp_path, body)

    def test_works_of_one_batch_see_each_other(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            works = [make("job-1"), *(seize("job-1", f"op-{n}", f"w-{n}") for n in range(64))]

            answers = await world.store.transact(works)

            granted = [d for [d] in answers[1:] if isinstance(d, Change)]
            refused = [d for [d] in answers[1:] if isinstance(d, Refusal)]
            assert len(granted) == 1
            assert len(refused) == 63
            assert all(isinstance(d.error, Conflict) for d in refused)
            [history] = await world.store.histories(["job-1"])
            assert len(history) == 2

        play(self.open, tmp_path, body)

    def test_a_ready_job_goes_to_one_claim_of_a_batch(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.store.transact([make(f"job-{n}") for n in range(5)])

            answers = await world.store.transact([take(f"op-{n}", f"w-{n}") for n in range(8)])

            got = [d.after.job_id for ds in answers for d in ds if isinstance(d, Change)]
            assert sorted(got) == [f"job-{n}" for n in range(5)]

        play(self.open, tmp_path, body)

    def test_ready_order_is_priority_then_time_then_enqueue(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            for job_id in "abc":
                await world.enqueue(job_id)
            await world.enqueue("late", delay=timedelta(seconds=5))
            await world.enqueue("urgent", priority=0)
            await world.enqueue("idle", priority=9)
            world.clock.advance(10)
            await world.enqueue("d")

            grants = await world.registry.claim(["default"], owner="w", limit=10)

            assert [g.job_id for g in grants] == ["urgent", "a", "b", "c", "late", "d", "idle"]

        play(self.open, tmp_path, body)

    def test_a_delayed_job_is_not_ready_before_its_time(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("soon", delay=timedelta(seconds=5))
            at = world.clock.now() + timedelta(seconds=8)
            await world.enqueue("at", run_at=at)

            assert await world.registry.claim(["default"], owner="w", limit=9) == []
            world.clock.advance(5)
            assert [g.job_id for g in await world.registry.claim(["default"], owner="w")] == [
                "soon"
            ]
            world.clock.advance(3)
            assert [g.job_id for g in await world.registry.claim(["default"], owner="w")] == ["at"]

        play(self.open, tmp_path, body)

    def test_claims_choose_by_queue_kind_region_and_executor(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("other-queue", queue="other")
            await world.enqueue("other-kind", kind="resize")
            await world.enqueue("us", region="us-east-1")
            await world.enqueue("bound", executor="k8s")
            claim = partial(world.registry.claim, owner="w", limit=10)

            assert [g.job_id for g in await claim(["default"], kinds=["resize"])] == ["other-kind"]
            assert [g.job_id for g in await claim(["default"], executor="k8s")] == ["bound"]
            assert await claim(["default"], region="eu-west") == []
            assert [g.job_id for g in await claim(["default"])] == ["us"]
            assert [g.job_id for g in await claim(["none", "other"])] == ["other-queue"]

        play(self.open, tmp_path, body)

    def test_a_claim_over_queues_takes_them_in_order_up_to_its_limit(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("b1", queue="b")
            await world.enqueue("a1", queue="a")
            await world.enqueue("a2", queue="a")

            grants = await world.registry.claim(["a", "b"], owner="w", limit=2)
            rest = await world.registry.claim(["a", "b"], owner="w", limit=2)

            assert [g.job_id for g in grants] == ["a1", "a2"]
            assert [g.job_id for g in rest] == ["b1"]

        play(self.open, tmp_path, body)

    def test_a_repeated_claim_meets_its_own_grant(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("job-1")
            await world.enqueue("job-2")

            first = await world.claim(op_id="op-1")
            again = await world.claim(op_id="op-1")

            assert again == first
            assert await world.types("job-1") == ["job_queued", "job_claimed"]

        play(self.open, tmp_path, body)

    def test_a_claim_repeated_after_its_lease_was_lost_gets_nothing(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("job-1")
            await world.claim(op_id="op-1")
            await world.lapse()

            again = await world.registry.claim(["default"], owner="worker-7", op_id="op-1")

            assert again == []

        play(self.open, tmp_path, body)

    def test_due_jobs_come_longest_overdue_first(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            for job_id, lease in (("b", 20), ("a", 10), ("c", 30), ("d", 500)):
                await world.enqueue(job_id, lease=timedelta(seconds=lease))
            await world.registry.claim(["default"], owner="w", limit=4)
            world.clock.advance(40)
            seen: list[str] = []

            def look(job, now, resource):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
                seen.append(job.job_id)
                return Change(job, job)

            await world.store.transact([Work(Due(2), look)])
            assert seen == ["a", "b"]
            seen.clear()
            await world.store.transact([Work(Due(10), look)])
            assert seen == ["a", "b", "c"]

        play(self.open, tmp_path, body)

    def test_a_heartbeat_postpones_what_is_due_without_a_new_version(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("job-1")
            grant = await world.claim()
            started = await world.registry.heartbeat(grant)
            world.clock.advance(50)
            beaten = await world.registry.heartbeat(grant)
            world.clock.advance(50)

            assert await world.registry.expire() == 0
            assert beaten.version == started.version == 3
            world.clock.advance(11)
            assert await world.registry.expire() == 1
            assert await world.registry.expire() == 0

        play(self.open, tmp_path, body)

    def test_two_jobs_of_one_lock_are_never_leased_together(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("one", lock="disk")
            await world.enqueue("two", lock="disk")
            await world.enqueue("free")

            grants = await world.registry.claim(["default"], owner="w", limit=10)
            assert [g.job_id for g in grants] == ["one", "free"]
            await world.registry.complete(grants[0], Success())
            second = await world.claim()

            assert second.job_id == "two"
            assert second.fencing_token > grants[0].fencing_token
            resource = await world.store.resource("disk")
            assert (resource.token, resource.holder) == (second.fencing_token, "two")

        play(self.open, tmp_path, body)

    def test_a_lock_is_free_again_when_its_holder_lost_the_lease(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("one", lock="disk", queue="nobody-works-here")
            await world.enqueue("two", lock="disk")
            await world.registry.claim(["nobody-works-here"], owner="w")
            assert await world.registry.claim(["default"], owner="w") == []

            world.clock.advance(61)
            second = await world.claim()

            assert second.job_id == "two"
            assert second.fencing_token == 2

        play(self.open, tmp_path, body)

    def test_pages_show_every_job_once_while_others_arrive(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            for n in range(7):
                await world.enqueue(f"job-{n}")
            seen: list[str] = []
            cursor = None
            for turn in range(10):
                page = await world.store.list_jobs(Filter(), after=cursor, limit=3)
                seen += [job.job_id for job in page.jobs]
                await world.enqueue(f"late-{turn}") if turn < 2 else None
                cursor = page.next
                if cursor is None:
                    break

            assert seen == [*(f"job-{n}" for n in range(7)), "late-0", "late-1"]

        play(self.open, tmp_path, body)

    def test_listing_filters_by_queue_kind_state_owner_and_label(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("a")
            await world.enqueue("b", queue="images", labels={"team": "x"})
            await world.enqueue("c", kind="resize")
            await world.claim(owner="worker-9")

            async def ids(**which: object) -> list[str]:
                page = await world.store.list_jobs(Filter(**which), after=None, limit=10)  # type: ignore[arg-type]
                return [job.job_id for job in page.jobs]

            assert await ids(queue="images") == ["b"]
            assert await ids(kind="resize") == ["c"]
            assert await ids(states=(State.ASSIGNED,)) == ["a"]
            assert await ids(owner="worker-9") == ["a"]
            assert await ids(labels={"team": "x"}) == ["b"]
            assert await world.store.counts() == {State.QUEUED: 2, State.ASSIGNED: 1}
            assert await world.store.counts("images") == {State.QUEUED: 1}

        play(self.open, tmp_path, body)

    def test_a_log_is_read_on_from_its_cursor(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("job-1")
            await world.enqueue("job-2")
            grant = await world.claim()
            await world.registry.publish(grant, [output(n, world=world) for n in (1, 2, 3)])
            first = await world.store.log("job-1", after=None, limit=3)
            await world.registry.complete(grant, Success())

            rest = await world.store.log("job-1", after=first.cursor, limit=100)
            nothing = await world.store.log("job-1", after=rest.cursor, limit=100)

            types = [str(e.event_type) for e in (*first.events, *rest.events)]
            assert types == ["job_queued", "job_claimed", "job_started"] + ["output"] * 3 + [
                "job_succeeded"
            ]
            assert nothing.events == ()
            assert nothing.cursor == rest.cursor

        play(self.open, tmp_path, body)

    def test_the_feed_shows_every_event_once_and_resumes(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            seen: list[str] = []
            cursor = None
            for n in range(5):
                await world.enqueue(f"job-{n}")
                grant = await world.claim()
                await world.registry.publish(grant, [output(1, world=world)])
                await world.registry.complete(grant, Success())
                while (page := await world.store.feed(after=cursor, limit=2)).events:
                    seen += [event.event_id for event in page.events]
                    cursor = page.cursor

            assert len(seen) == len(set(seen)) == 5 * 5
            of_one = [event_id for event_id in seen if event_id.startswith("job-3/")]
            assert of_one == ["job-3/1", "job-3/2", "job-3/3", "job-3/1.1.1", "job-3/4"]

        play(self.open, tmp_path, body)

    def test_recording_an_event_again_adds_nothing(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("job-1")
            note = Event(
                event_type="invoice_sent",
                event_class=EventClass.EXTERNAL,
                occurred_at=world.clock.now(),
                given_id="evt-1",
                attributes={"amount": 12},
            )
            linked = msgspec.structs.replace(note, given_id="evt-2", job_id="job-1")

            assert await world.registry.record([note, linked]) == 2
            assert await world.registry.record([note, linked, note]) == 0
            log = await world.store.log("job-1", after=None, limit=10)
            assert [e.event_id for e in log.events] == ["job-1/1", "evt-2"]
            feed = await world.store.feed(after=None, limit=10)
            assert [e.event_id for e in feed.events] == ["job-1/1", "evt-1", "evt-2"]
            assert feed.events[1].attributes == {"amount": 12}
            assert feed.events[1].job_id is None

        play(self.open, tmp_path, body)

    def test_pruning_removes_whole_ended_jobs_and_nothing_else(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            for job_id in ("old", "young", "live"):
                await world.enqueue(job_id)
            old = await world.claim()
            await world.registry.publish(old, [output(1, world=world)])
            await world.registry.complete(old, Success())
            live = await world.claim()
            await world.registry.publish(live, [output(1, world=world)])
            world.clock.advance(days=10)
            young = await world.registry.acquire("live", owner="w")
            await world.registry.complete(young, Success())
            before = await world.store.feed(after=None, limit=100)

            pruned = await world.registry.prune(
                older_than=timedelta(days=5), output_older_than=timedelta(days=5)
            )

            assert pruned.jobs == 1
            assert [j and j.job_id for j in await world.store.get(["old", "young", "live"])] == [
                None,
                "young",
                "live",
            ]
            log = await world.store.log("young", after=None, limit=10)
            assert all(e.event_class is not EventClass.WORKER for e in log.events)
            await world.check()
            await world.enqueue("new")
            after = await world.store.feed(after=before.cursor, limit=100)
            assert "new/1" in [e.event_id for e in after.events]

        play(self.open, tmp_path, body)

    def test_the_secret_is_made_once(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            secret = await world.store.secret()

            assert len(secret) == 32
            assert await world.store.secret() == secret

        play(self.open, tmp_path, body)

    def test_waiting_ends_with_the_next_commit(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            mark = world.store.mark()
            waiter = asyncio.create_task(world.store.wait(mark, 1e6))
            await world.enqueue("job-1")

            await asyncio.wait_for(waiter, 10)
            await asyncio.wait_for(world.store.wait(mark, 1e6), 10)

        play(self.open, tmp_path, body)

    def test_concurrent_claims_of_one_job_give_one_grant(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("job-1")

            answers = await asyncio.gather(
                *(world.registry.acquire("job-1", owner=f"w-{n}") for n in range(64)),
                return_exceptions=True,
            )

            refused = [a for a in answers if isinstance(a, Conflict)]
            assert len(refused) == 63
            assert all("owned by w-" in a.message and a.version == 2 for a in refused)
            assert world.registry.tally["claim_conflicts"] == 63
            assert await world.types("job-1") == ["job_queued", "job_claimed"]
            assert (await world.registry.get("job-1")).fencing_token == 1

        play(self.open, tmp_path, body)

    def test_stale_writes_are_refused_and_recorded_once_each(self, tmp_path: Path) -> None:
        async def body(world: World) -> None:
            await world.enqueue("job-1")
            zombie = await world.claim("worker-7")
            await world.lapse()
            await world.claim("worker-9")
            for _ in range(3):
                with pytest.raises(Fenced):
                    await world.registry.heartbeat(zombie)
                with pytest.raises(Fenced):
                    await world.registry.complete(zombie, Success())
            log = await world.store.log("job-1", after=None, limit=100)

            stale = [e for e in log.events if e.event_type == EventType.STALE_WRITE_REJECTED]
            assert [e.attributes["verb"] for e in stale] == ["heartbeat", "complete"]
            await world.check()

        play(self.open, tmp_path, body)
