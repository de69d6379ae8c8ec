"""Planted mistakes in stores, commit queue, worker and downstream resource."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from holdfast.core.derived_ids import derived_id
from holdfast.core.errors import Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change
from holdfast.core.segment import JobKey, Segment, encode
from holdfast.ports import ById, Decision, EventPage, Work
from holdfast.registry import commit_queue, job_links, replay
from holdfast.registry.commit_queue import CommitQueue
from holdfast.stores.batch import Batch
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import commit
from holdfast.stores.sqlite.statements import statement
from holdfast.testing.simulation.downstream import Downstream
from holdfast.testing.simulation.planted_bug import Swaps, bug
from holdfast.testing.simulation.sql_server import SqlServer
from holdfast.testing.simulation.stores import MemoryServer, StoreConnection
from holdfast.worker.claims import Claims
from holdfast.worker.held_job import HeldJob
from holdfast.worker.lease_renewer import LeaseRenewer
from holdfast.worker.output import AttemptOutput


def _jobs(connection: StoreConnection) -> dict[str, Job]:
    assert isinstance(connection._server, MemoryServer)  # the one that keeps dictionaries
    return connection._server._jobs


@bug(trap=1, store="sqlite")
def lease_on_node_clock() -> Swaps:
    """A lease is counted on the caller's clock."""
    real = StoreConnection.transact

    async def transact(self: StoreConnection, works: Sequence[Work]) -> list[list[Decision]]:
        now = self._signal._clock.now()
        return await real(self, [Work(w.selection, _at(w.decide, now)) for w in works])

    def _at(decide: Any, now: Any) -> Any:
        return lambda job, _, *rest: decide(job, now, *rest)

    return ((StoreConnection, "transact", transact),)


@bug(trap=1, store="sqlite", steps=True)
def clock_step_ignored() -> Swaps:
    """A step of the clock is not noticed."""
    return ((SqlServer, "follow_clock_step", lambda self: None),)


@bug(trap=11)
def op_id_ignored() -> Swaps:
    """A retry is sent under a new op_id."""
    return ((CommitQueue, "op_id_or_new", lambda self, op_id: self.ids.new()),)


@bug(trap=12)
def repeat_refused() -> Swaps:
    """A repeat of what was applied is refused."""

    async def answer(self: CommitQueue, job_id: str, command: Any, decision: Any) -> Job:
        if isinstance(decision, Change):
            return decision.after
        raise decision.error

    return ((CommitQueue, "resolve_unchanged", answer),)


@bug(trap=11, store="memory")
def claim_not_deduped() -> Swaps:
    """A repeated claim takes more jobs."""
    return ((MemoryStore, "_claimed_under", lambda self, op_id: []),)


@bug(trap=15, store="sqlite")
def unknown_reported_as_refused() -> Swaps:
    """A lost response is reported as a refusal."""
    real = StoreConnection.transact

    async def transact(self: StoreConnection, works: Sequence[Work]) -> list[list[Decision]]:
        try:
            return await real(self, works)
        except Unavailable as error:
            raise Unavailable(error.message, applied="no") from error

    return ((StoreConnection, "transact", transact),)


@bug(trap=13, store="memory")
def two_writes() -> Swaps:
    """The event is written after the state."""
    real = MemoryServer._write

    def write(self: MemoryServer, batch: Batch) -> None:
        late, batch.events = batch.events, []
        real(self, batch)
        batch.events = late
        self._append(late)

    return ((MemoryServer, "_write", write),)


@bug(trap=21, store="memory")
def decides_on_stale_job() -> Swaps:
    """A job is read, then written without another read."""
    real = StoreConnection.transact

    async def transact(self: StoreConnection, works: Sequence[Work]) -> list[list[Decision]]:
        seen = dict(_jobs(self))
        return await real(self, [_on(work, seen) for work in works])

    def _on(work: Work, seen: dict[str, Job]) -> Work:
        if not isinstance(work.selection, ById):
            return work
        old = seen.get(work.selection.job_id)
        return Work(work.selection, lambda job, *rest: work.decide(old or job, *rest))

    return ((StoreConnection, "transact", transact),)


@bug(trap=42)
def replays_twice() -> Swaps:
    """A repeated replay makes a second job."""
    real, numbers = derived_id, count()
    return ((replay, "derived_id", lambda *parts: real(*parts, str(next(numbers)))),)


@bug(trap=7)
def leases_never_expired() -> Swaps:
    """Expired leases are never detected."""
    real = CommitQueue.submit

    async def submit(
        self: CommitQueue, *works: Work, expire_first: bool = False, **more: Any
    ) -> list[list[Decision]]:
        return await real(self, *works, **more)

    async def expire_nothing(self: CommitQueue, limit: int) -> int:
        return 0

    return ((CommitQueue, "submit", submit), (CommitQueue, "expire_due", expire_nothing))


@bug(trap=1, store="sqlite")
def lease_counted_from_response() -> Swaps:
    """A worker counts its lease from the time of the response."""
    real = Claims.claim

    async def claim(self: Claims, *words: Any, **more: Any) -> list[HeldJob]:
        holds = await real(self, *words, **more)
        now = self._clock.monotonic()
        return [HeldJob(hold.grant, now + hold.grant.lease_seconds) for hold in holds]

    return ((Claims, "claim", claim),)


@bug(trap=1, store="sqlite")
def woken_without_renewal() -> Swaps:
    """A worker that was frozen goes on as if its leases had not ended."""
    real = LeaseRenewer.notice_sleep

    def notice_sleep(self: LeaseRenewer) -> bool:
        woke = real(self)
        for held in self.held_jobs.values() if woke else ():
            held.slept, held.deadline = 0.0, self._clock.monotonic() + held.grant.lease_seconds
        return woke

    return ((LeaseRenewer, "notice_sleep", notice_sleep),)


@bug(trap=44)
def ended_before_output_stored() -> Swaps:
    """A job ends while its output is still in memory."""

    async def flush(self: AttemptOutput) -> None:
        self.finish()

    return ((AttemptOutput, "flush", flush),)


@bug(trap=44, store="sqlite")
def claim_exceeds_limit() -> Swaps:
    """A claim takes one job more than it asked for."""
    real = Batch.decide_ready

    def decide_ready(self: Batch, lane: Any, job_ids: Any) -> None:
        real(self, [(n, replace(ready, limit=ready.limit + 1)) for n, ready in lane], job_ids)

    return ((Batch, "decide_ready", decide_ready),)


@bug(trap=24, store="memory")
def reads_a_replica() -> Swaps:
    """A read returns an old copy."""
    replicas: dict[int, dict[str, Job]] = {}

    async def get(self: StoreConnection, job_ids: Sequence[str]) -> list[Job | None]:
        replica, jobs = replicas.get(id(self._server), {}), _jobs(self)
        replicas.clear()
        replicas[id(self._server)] = dict(jobs)
        return [replica.get(job_id, jobs.get(job_id)) for job_id in job_ids]

    return ((StoreConnection, "get", get),)


@bug(trap=20, store="memory")
def events_cursor_skips() -> Swaps:
    """The cursor of the events skips one."""
    real = MemoryServer.events

    async def feed(self: MemoryServer, *, after: str | None, limit: int) -> EventPage:
        page = await real(self, after=after, limit=limit)
        return EventPage(page.events, str(int(page.cursor) + 1)) if page.events else page

    return ((MemoryServer, "events", feed),)


@bug(trap=18)
def response_shows_old_state() -> Swaps:
    """A response shows the job as it was before."""
    real = CommitQueue.execute

    async def settle(self: CommitQueue, job_id: str, command: Any, **more: Any) -> Job:
        [before] = await self.store.get([job_id])
        after = await real(self, job_id, command, **more)
        return before or after

    return ((CommitQueue, "execute", settle),)


@bug(trap=10)
def resource_accepts_any_token() -> Swaps:
    """A resource accepts every token."""
    return ((Downstream, "allows", lambda self, key, token: True),)


@bug(trap=11, store="memory")
def lost_claim_granted_again() -> Swaps:
    """A claim repeated after its lease was lost is granted again."""

    def claimed_under(self: MemoryStore, op_id: str) -> list[str]:
        return [j.job_id for j in self._jobs.values() if j.lease and j.claim_op_id == op_id]

    return ((MemoryStore, "_claimed_under", claimed_under),)


@bug(trap=11)
def repeat_shows_current_job() -> Swaps:
    """A repeat returns the job as it is now, not as that operation left it."""
    return ((commit_queue, "job_after", lambda job, history, op_id: job),)


@bug(trap=42)
def replay_not_linked() -> Swaps:
    """A replay is created, and the original has no link to it."""
    real = job_links.link_fact

    def link(*args: Any) -> Event:
        return replace(real(*args), given_id="another-fact")

    return ((job_links, "link_fact", link), (replay, "link_fact", link))


@bug(trap=11, store="sqlite")
def earlier_claim_not_found() -> Swaps:
    """The query for the jobs of an earlier claim finds nothing."""

    def forgetful(name: str) -> str:
        sql = statement(name)
        return sql.replace("WHERE", "WHERE 0 AND") if name == "select_claimed" else sql

    return ((commit, "statement", forgetful),)


@bug(trap=50, store="sqlite")
def counters_drift() -> Swaps:
    """A job that moves is not counted where it goes."""
    return ((Batch, "count_changes", lambda self: []),)


@bug(trap=13, store="sqlite")
def event_without_attributes() -> Swaps:
    """An event is stored without its attributes."""

    def bare_segments(events: Sequence[Event], key: Callable[[str | None], JobKey]) -> list[Segment]:
        return encode([replace(event, attributes={}) for event in events], key)

    return ((commit, "encode", bare_segments),)
