"""Planted mistakes in the machinery: stores, line, worker and whoever is downstream."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from holdfast.core.errors import Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change
from holdfast.core.naming import derived_id
from holdfast.ports import Decision, One, Slice, Work
from holdfast.registry import line, linked, replay
from holdfast.registry.line import Line
from holdfast.stores.batch import Batch
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import committing
from holdfast.stores.sqlite.event_rows import event_row
from holdfast.stores.sqlite.statements import statement
from holdfast.testing.simulation.downstream import Downstream
from holdfast.testing.simulation.planting import Swaps, bug
from holdfast.testing.simulation.sql_server import SqlServer
from holdfast.testing.simulation.stores import Connection, Server
from holdfast.worker.claims import Claims
from holdfast.worker.hold import Hold
from holdfast.worker.output import Output


def _jobs(connection: Connection) -> dict[str, Job]:
    assert isinstance(connection._server, Server)  # the one that keeps dictionaries
    return connection._server._jobs


@bug(trap=1, store="sqlite")
def node_clock_decides() -> Swaps:
    """A lease is counted on the caller's clock."""
    real = Connection.transact

    async def transact(self: Connection, works: Sequence[Work]) -> list[list[Decision]]:
        now = self._signal._clock.now()
        return await real(self, [Work(w.selection, _at(w.decide, now)) for w in works])

    def _at(decide: Any, now: Any) -> Any:
        return lambda job, _, *rest: decide(job, now, *rest)

    return ((Connection, "transact", transact),)


@bug(trap=1, store="sqlite", steps=True)
def step_not_noticed() -> Swaps:
    """A step of the clock is not noticed."""
    return ((SqlServer, "notice", lambda self: None),)


@bug(trap=11)
def op_id_ignored() -> Swaps:
    """A retry is sent under a new op_id."""
    return ((Line, "op", lambda self, op_id: self.ids.new()),)


@bug(trap=12)
def repeat_refused() -> Swaps:
    """A repeat of what was applied is refused."""

    async def answer(self: Line, job_id: str, command: Any, decision: Any) -> Job:
        if isinstance(decision, Change):
            return decision.after
        raise decision.error

    return ((Line, "answer", answer),)


@bug(trap=11, store="memory")
def claim_not_deduped() -> Swaps:
    """A repeated claim takes more jobs."""
    return ((MemoryStore, "_claimed_under", lambda self, op_id: []),)


@bug(trap=15, store="sqlite")
def doubt_called_no() -> Swaps:
    """A lost answer is told as a refusal."""
    real = Connection.transact

    async def transact(self: Connection, works: Sequence[Work]) -> list[list[Decision]]:
        try:
            return await real(self, works)
        except Unavailable as error:
            raise Unavailable(error.message, applied="no") from error

    return ((Connection, "transact", transact),)


@bug(trap=13, store="memory")
def two_writes() -> Swaps:
    """The event is written after the state."""
    real = Server._write

    def write(self: Server, batch: Batch) -> None:
        late, batch.events = batch.events, []
        real(self, batch)
        batch.events = late
        self._append(late)

    return ((Server, "_write", write),)


@bug(trap=21, store="memory")
def decides_on_old_news() -> Swaps:
    """A job is read, then written without looking again."""
    real = Connection.transact

    async def transact(self: Connection, works: Sequence[Work]) -> list[list[Decision]]:
        seen = dict(_jobs(self))
        return await real(self, [_on(work, seen) for work in works])

    def _on(work: Work, seen: dict[str, Job]) -> Work:
        if not isinstance(work.selection, One):
            return work
        old = seen.get(work.selection.job_id)
        return Work(work.selection, lambda job, *rest: work.decide(old or job, *rest))

    return ((Connection, "transact", transact),)


@bug(trap=42)
def replays_twice() -> Swaps:
    """A repeated replay makes a second job."""
    real, numbers = derived_id, count()
    return ((replay, "derived_id", lambda *parts: real(*parts, str(next(numbers)))),)


@bug(trap=7)
def nobody_sweeps() -> Swaps:
    """A lapsed lease is noticed by nobody."""
    real = Line.submit

    async def submit(
        self: Line, *works: Work, sweep: bool = False, **more: Any
    ) -> list[list[Decision]]:
        return await real(self, *works, **more)

    async def sweep_nothing(self: Line, limit: int) -> int:
        return 0

    return ((Line, "submit", submit), (Line, "sweep", sweep_nothing))


@bug(trap=1, store="sqlite")
def counts_from_the_answer() -> Swaps:
    """A worker counts its lease from when the answer came."""
    real = Claims.ask

    async def ask(self: Claims, *words: Any) -> list[Hold]:
        holds = await real(self, *words)
        now = self._clock.monotonic()
        return [Hold(hold.grant, now + hold.grant.lease_seconds) for hold in holds]

    return ((Claims, "ask", ask),)


@bug(trap=44)
def ends_before_its_output() -> Swaps:
    """A job ends while its output is still in memory."""

    async def flush(self: Output) -> None:
        self.finish()

    return ((Output, "flush", flush),)


@bug(trap=44, store="sqlite")
def more_than_asked() -> Swaps:
    """A claim takes one job more than it asked for."""
    real = Batch.decide_ready

    def decide_ready(self: Batch, lane: Any, job_ids: Any) -> None:
        real(self, [(n, replace(ready, limit=ready.limit + 1)) for n, ready in lane], job_ids)

    return ((Batch, "decide_ready", decide_ready),)


@bug(trap=24, store="memory")
def reads_a_replica() -> Swaps:
    """A read is answered from a copy that lags."""
    replicas: dict[int, dict[str, Job]] = {}

    async def get(self: Connection, job_ids: Sequence[str]) -> list[Job | None]:
        replica, jobs = replicas.get(id(self._server), {}), _jobs(self)
        replicas.clear()
        replicas[id(self._server)] = dict(jobs)
        return [replica.get(job_id, jobs.get(job_id)) for job_id in job_ids]

    return ((Connection, "get", get),)


@bug(trap=20, store="memory")
def feed_skips() -> Swaps:
    """The cursor of the feed passes an event over."""
    real = Server.feed

    async def feed(self: Server, *, after: str | None, limit: int) -> Slice:
        page = await real(self, after=after, limit=limit)
        return Slice(page.events, str(int(page.cursor) + 1)) if page.events else page

    return ((Server, "feed", feed),)


@bug(trap=18)
def answers_the_past() -> Swaps:
    """An answer shows the job as it was before."""
    real = Line.settle

    async def settle(self: Line, job_id: str, command: Any, **more: Any) -> Job:
        [before] = await self.store.get([job_id])
        after = await real(self, job_id, command, **more)
        return before or after

    return ((Line, "settle", settle),)


@bug(trap=10)
def resource_trusts() -> Swaps:
    """A resource lets in whoever comes."""
    return ((Downstream, "allows", lambda self, key, token: True),)


@bug(trap=11, store="memory")
def grant_asked_for_twice() -> Swaps:
    """A claim repeated after its lease was lost is granted again."""

    def claimed_under(self: MemoryStore, op_id: str) -> list[str]:
        return [j.job_id for j in self._jobs.values() if j.lease and j.claim_op_id == op_id]

    return ((MemoryStore, "_claimed_under", claimed_under),)


@bug(trap=11)
def repeat_shows_the_present() -> Swaps:
    """A repeat is answered with the job as it is now, not as that op left it."""
    return ((line, "as_of", lambda job, history, op_id: job),)


@bug(trap=42)
def link_forgotten() -> Swaps:
    """A replay is made, and the original is not told."""
    real = linked.link

    def link(*args: Any) -> Event:
        return replace(real(*args), given_id="somebody-else-s")

    return ((linked, "link", link), (replay, "link", link))


@bug(trap=11, store="sqlite")
def claim_forgotten() -> Swaps:
    """The query for what a claim has got before finds nothing."""

    def forgetful(name: str) -> str:
        sql = statement(name)
        return sql.replace("WHERE", "WHERE 0 AND") if name == "select_claimed" else sql

    return ((committing, "statement", forgetful),)


@bug(trap=50, store="sqlite")
def counters_drift() -> Swaps:
    """A job that moves is not counted where it goes."""
    return ((Batch, "moves", lambda self: []),)


@bug(trap=13, store="sqlite")
def event_without_its_body() -> Swaps:
    """An event is stored without what only it says."""

    def bare_row(log_id: int, seq: int, event: Event) -> Any:
        return event_row(log_id, seq, replace(event, attributes={}))

    return ((committing, "event_row", bare_row),)
