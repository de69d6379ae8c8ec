"""The contract of a store: logs, events, and what may be pruned."""

from contextlib import suppress
from datetime import timedelta

import msgspec
import pytest

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.errors import Conflict, Fenced, Invalid, NotFound
from holdfast.core.event import Event, with_given_id
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Success
from holdfast.ports import JobFilter
from holdfast.registry.local import LocalRegistry
from holdfast.testing.world import Opener, World, in_world, output, patient


class LogContract:
    open: Opener

    @in_world
    async def test_a_log_is_read_on_from_its_cursor(self, world: World) -> None:
        await world.enqueue("job-1")
        await world.enqueue("job-2")
        grant = await world.claim()
        await world.registry.publish(grant, [output(n, world=world) for n in (1, 2, 3)])
        first = await world.store.logs("job-1", after=None, limit=3)
        await world.registry.complete(grant, Success())

        rest = await world.store.logs("job-1", after=first.cursor, limit=100)
        nothing = await world.store.logs("job-1", after=rest.cursor, limit=100)

        types = [str(e.event_type) for e in (*first.events, *rest.events)]
        assert types == ["job_queued", "job_claimed", "job_started"] + ["output"] * 3 + ["job_succeeded"]
        assert nothing.events == ()
        assert nothing.cursor == rest.cursor

    @in_world
    async def test_the_feed_shows_every_event_once_and_resumes(self, world: World) -> None:
        seen: list[str] = []
        cursor = None
        for n in range(5):
            await world.enqueue(f"job-{n}")
            grant = await world.claim()
            await world.registry.publish(grant, [output(1, world=world)])
            await world.registry.complete(grant, Success())
            while (page := await world.store.events(after=cursor, limit=2)).events:
                seen += [event.event_id for event in page.events]
                cursor = page.cursor

        assert len(seen) == len(set(seen)) == 5 * 5
        of_one = [event_id for event_id in seen if event_id.startswith("job-3/")]
        assert of_one == ["job-3/1", "job-3/2", "job-3/3", "job-3/1.1.1", "job-3/4"]

    @in_world
    async def test_from_the_tail_on_the_feed_shows_what_comes_after(self, world: World) -> None:
        empty = await world.store.tail()
        await world.enqueue("job-1")
        middle = await world.store.tail()
        grant = await world.claim()
        await world.registry.complete(grant, Success())
        end = await world.store.tail()

        async def ids(cursor: str) -> list[str]:
            page = await world.store.events(after=cursor, limit=100)
            return [event.event_id for event in page.events]

        chain = [f"job-1/{offset}" for offset in (1, 2, 3, 4)]
        assert await ids(empty) == chain
        assert await ids(middle) == chain[1:]
        assert await ids(end) == []
        await world.enqueue("job-2")
        assert await ids(end) == ["job-2/1"]

    @in_world
    async def test_recording_an_event_again_adds_nothing(self, world: World) -> None:
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
        log = await world.store.logs("job-1", after=None, limit=10)
        assert [e.event_id for e in log.events] == ["job-1/1", "evt-2"]
        feed = await world.store.events(after=None, limit=10)
        assert [e.event_id for e in feed.events] == ["job-1/1", "evt-1", "evt-2"]
        assert feed.events[1].attributes == {"amount": 12}
        assert feed.events[1].job_id is None

    @in_world
    async def test_facts_are_read_of_many_jobs_by_their_type(self, world: World) -> None:
        note = Event("invoice_sent", EventClass.EXTERNAL, world.clock.now(), given_id="a-1", job_id="job-1")
        other = msgspec.structs.replace(note, event_type="invoice_paid", given_id="b-1")
        second = msgspec.structs.replace(note, given_id="a-2")
        third = msgspec.structs.replace(note, given_id="a-3", job_id="job-2")
        for job_id in ("job-1", "job-2", "job-3"):
            await world.enqueue(job_id)
        for one in (note, other, third, second):
            await world.registry.record([one])

        found = await world.store.facts(["job-2", "nobody", "job-1", "job-3"], "invoice_sent")

        assert [[with_given_id(e).given_id for e in of_job] for of_job in found] == [
            *(["a-3"], [], ["a-1", "a-2"], []),
        ]
        assert found[2][0].job_id == "job-1"
        assert await world.store.facts([], "invoice_sent") == []

    @in_world
    async def test_an_event_id_is_unique_within_a_job_or_a_reach(self, world: World) -> None:
        """A caller with access to other queues cannot suppress an event by using its id."""

        note = Event("invoice_sent", EventClass.EXTERNAL, world.clock.now(), given_id="inv-1")
        for job_id in ("job-1", "job-2"):
            await world.enqueue(job_id)
        facts = [msgspec.structs.replace(note, job_id=one) for one in ("job-1", "job-2")]
        registry = LocalRegistry(world.store, world.ids)

        told = [
            await registry.record([note, facts[0]], reach="a"),
            await registry.record([note, *facts], reach="b"),
            await registry.record([note, *facts], reach="b"),
            await registry.record([note], reach=""),
            await registry.record([note]),
        ]

        assert told == [2, 2, 0, 1, 0]
        feed = await world.store.events(after=None, limit=10)
        given = [with_given_id(event) for event in feed.events if event.given_id]
        assert [event.given_id for event in given] == ["inv-1"] * 5
        log = await world.store.logs("job-2", after=None, limit=10)
        assert [with_given_id(e).event_id for e in log.events] == ["job-2/1", "inv-1"]

    @in_world
    async def test_pruning_removes_whole_ended_jobs_and_nothing_else(self, world: World) -> None:
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
        before = await world.store.events(after=None, limit=100)

        found = await world.registry.prune(older_than=timedelta(days=5), dry_run=True)
        pruned = await world.registry.prune(older_than=timedelta(days=5), output_older_than=timedelta(days=5))

        assert pruned.jobs == found.jobs == 1
        assert [j and j.job_id for j in await world.store.get(["old", "young", "live"])] == [
            None,
            "young",
            "live",
        ]
        log = await world.store.logs("young", after=None, limit=10)
        assert all(e.event_class is not EventClass.WORKER for e in log.events)
        await world.check()
        await world.enqueue("new")
        after = await world.store.events(after=before.cursor, limit=100)
        assert "new/1" in [e.event_id for e in after.events]

    @in_world
    async def test_stale_writes_are_refused_and_recorded_once_each(self, world: World) -> None:
        await world.enqueue("job-1")
        zombie = await world.claim("worker-7")
        await world.lapse()
        await world.claim("worker-9")
        for _ in range(3):
            with pytest.raises(Fenced):
                await world.registry.heartbeat(zombie)
            with pytest.raises(Fenced):
                await world.registry.complete(zombie, Success())
        log = await world.store.logs("job-1", after=None, limit=100)

        stale = [e for e in log.events if e.event_type == EventType.STALE_WRITE_REJECTED]
        assert [e.attributes["verb"] for e in stale] == ["heartbeat", "complete"]
        await world.check()

    @in_world
    async def test_a_log_can_be_read_without_what_the_worker_wrote(self, world: World) -> None:
        await world.enqueue("job-1")
        grant = await world.claim()
        for n in range(1, 8):
            await world.registry.publish(grant, [output(n, world=world)])
        await world.registry.complete(grant, Success())

        page = await world.store.logs("job-1", after=None, limit=4, output=False)

        types = [str(event.event_type) for event in page.events]
        assert types == ["job_queued", "job_claimed", "job_started", "job_succeeded"]

    @in_world
    async def test_what_workers_published_is_read_from_the_newest_back(self, world: World) -> None:
        await world.enqueue("job-1", retry=patient())
        for _ in range(2):
            grant = await world.claim()
            for n in (1, 3, 5):
                await world.registry.publish(grant, [output(n, world=world), output(n + 1, world=world)])
            await world.registry.complete(grant, Failure(message="no"))
            world.clock.advance(60)

        read = world.store.published_before
        everything = await read("job-1", (9, 0), limit=100)
        some = await read("job-1", (9, 0), limit=2)
        rest = await read("job-1", (2, 3), limit=100)

        places = [(2, n) for n in range(6, 0, -1)] + [(1, n) for n in range(6, 0, -1)]
        assert [(e.fencing_token, e.sequence) for e in everything] == places
        assert [(e.fencing_token, e.sequence) for e in some] == places[: len(some)]
        assert some
        assert [(e.fencing_token, e.sequence) for e in rest] == places[4:]
        assert await read("job-1", (1, 1), limit=100) == []
        assert await read("nobody", (9, 9), limit=100) == []
        for one in everything:
            page = await world.store.logs("job-1", after=world.store.log_cursor(one.log_id or 0), limit=1)
            assert page.events[0].log_id == one.log_id

    @in_world
    async def test_a_log_begins_at_the_last_lines_or_since_an_instant(self, world: World) -> None:
        await world.enqueue("job-1", retry=patient())
        for attempt in (1, 2):
            grant = await world.claim()
            for n in range(1, 5):
                await world.registry.publish(grant, [output(n, f"{attempt}.{n}\n", world=world)])
                world.clock.advance(1)
            await world.registry.complete(grant, Failure(message="no"))
            world.clock.advance(60)

        async def text(**part: object) -> str:
            """All pages with this part, a small one at a time."""
            page = await world.registry.logs("job-1", limit=2, **part)  # type: ignore[arg-type]
            events = list(page.events)
            rest = {name: part[name] for name in part if name in ("attempt", "stream")}
            while page.events:
                page = await world.registry.logs("job-1", after=page.cursor, limit=2, **rest)  # type: ignore[arg-type]
                events += page.events
            return b"".join(event.data or b"" for event in events).decode()

        assert await text(tail=2) == "2.3\n2.4\n"
        assert await text(tail=5) == "1.4\n2.1\n2.2\n2.3\n2.4\n"
        assert await text(tail=0) == ""
        assert (
            await text(tail=99) == await text() == "".join(f"{a}.{n}\n" for a in (1, 2) for n in range(1, 5))
        )
        assert await text(attempt=1, tail=1) == "1.4\n"
        assert await text(attempt=1, tail=9) == await text(attempt=1) == "1.1\n1.2\n1.3\n1.4\n"
        assert await text(attempt=2) == "2.1\n2.2\n2.3\n2.4\n"
        assert await text(attempt=7) == await text(stream="stderr") == ""
        assert await text(attempt=2, stream="stdout", tail=1) == "2.4\n"
        since = world.clock.now() - timedelta(seconds=62)
        assert await text(since=since) == "2.3\n2.4\n"
        assert await text(since=since, tail=1) == "2.4\n"
        with pytest.raises(Invalid, match="cursor"):
            await world.registry.logs("job-1", after=world.store.log_cursor(1), tail=1)
        with pytest.raises(NotFound):
            await world.registry.logs("nobody", tail=1, attempt=1)
        with pytest.raises(NotFound):
            await world.registry.logs("nobody", tail=1)

    @in_world
    async def test_a_fact_recorded_before_its_job_is_in_the_jobs_log(self, world: World) -> None:
        note = Event(
            event_type="invoice_sent",
            event_class=EventClass.EXTERNAL,
            occurred_at=world.clock.now(),
            given_id="evt-1",
            job_id="job-1",
        )
        await world.registry.record([note])
        await world.enqueue("job-1")

        log = await world.store.logs("job-1", after=None, limit=10)

        assert {event.event_id for event in log.events} == {"evt-1", "job-1/1"}

    @in_world
    async def test_what_is_no_cursor_is_invalid(self, world: World) -> None:
        """A plain number may be a cursor of one store and not of another: it is accepted or refused."""

        await world.enqueue("job-1")
        for cursor in (
            "x",
            "-1",
            "1.x",
            ".",
            "1..2",
            "1 ",
            "\u0663",
            "9" * 40,
            "1.2.3.4.5.6",
            "\0",
        ):
            with pytest.raises(Invalid):
                await world.store.logs("job-1", after=cursor, limit=10)
            with pytest.raises(Invalid):
                await world.store.events(after=cursor, limit=10)
            with suppress(Invalid):
                await world.store.list_jobs(JobFilter(), after=cursor, limit=10)
        for cursor in ("0", "1", "0.0", "1.1", "0.0.0", "1.0.0.0"):
            with suppress(Invalid, Conflict):
                await world.store.logs("job-1", after=cursor, limit=10)
            with suppress(Invalid, Conflict):
                await world.store.events(after=cursor, limit=10)
            with suppress(Invalid):
                await world.store.list_jobs(JobFilter(), after=cursor, limit=10)
