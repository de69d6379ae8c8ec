"""Simulated stores of both families: one that commits many rows at once, one of single objects."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.core.access import Key
from holdfast.core.event import Event
from holdfast.core.job import Job, Resource
from holdfast.core.state import State
from holdfast.objects.memory import MemoryObjects
from holdfast.ports import (
    Census,
    Clock,
    Decide,
    Decision,
    Filter,
    Finding,
    HistoryPage,
    Ids,
    Page,
    Pruned,
    Slice,
    VersionToken,
    Work,
)
from holdfast.stores.batch import Batch
from holdfast.stores.cas.documents import Document
from holdfast.stores.memory import MemoryStore
from holdfast.stores.signal import Signal
from holdfast.testing.simulation.commit import Commit
from holdfast.testing.simulation.link import Link, Weather
from holdfast.testing.simulation.sql_server import SqlServer
from holdfast.testing.simulation.witness import Witness

T = TypeVar("T")


class Server(MemoryStore):
    """The transactional store's own side. Whatever it commits, the witness sees."""

    def __init__(self, clock: Clock, ids: Ids, witness: Witness) -> None:
        super().__init__(clock, ids)
        self._witness = witness
        self.listeners: list[Callable[[], None]] = []

    def _write(self, batch: Batch) -> None:
        """Commit, and show it: as one commit per job, which is what callers are promised."""
        # As one after the other would have done it: a lock is let go before it is taken again.
        written = {**batch.updated, **batch.created, **batch.touched}
        before = {job_id: self._jobs.get(job_id) for job_id in written}
        events = [*batch.events, *(e for some in batch.published for e in some), *batch.facts]
        super()._write(batch)
        for job_id, job in written.items():
            mine = [event for event in events if event.job_id == job_id]
            self._witness.committed(Commit(before[job_id], job, mine, batch.now))
        others = [event for event in events if event.job_id not in written]
        if others:
            self._witness.recorded(others)
        if written or others:
            for listener in self.listeners:
                listener()

    async def record(self, events: Sequence[Event]) -> int:
        fresh = [event for event in events if event.event_id not in self._known]
        count = await super().record(events)
        self._witness.recorded(fresh)
        return count


class Connection:
    """One node's side of the transactional store: the store port over a link."""

    def __init__(
        self, server: Server | SqlServer, link: Link, weather: Weather, clock: Clock
    ) -> None:
        self._server = server
        self._link = link
        self._weather = weather
        self._signal = Signal(clock)

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        if self._weather.strikes("conflict"):
            works = [Work(work.selection, _decided_twice(work.decide)) for work in works]
        return await self._link.call(lambda: self._server.transact(works), writes=True)

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        return await self._read(lambda: self._server.get(job_ids))

    async def list_jobs(
        self, which: Filter, *, after: str | None, limit: int, newest: bool = False
    ) -> Page:
        return await self._read(
            lambda: self._server.list_jobs(which, after=after, limit=limit, newest=newest)
        )

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        return await self._read(lambda: self._server.counts(queue))

    async def census(self, limit: int) -> Census:
        return await self._read(lambda: self._server.census(limit))

    async def histories(self, job_ids: Sequence[str]) -> list[list[Event]]:
        return await self._read(lambda: self._server.histories(job_ids))

    async def history(self, job_id: str, *, after: str | None, limit: int) -> HistoryPage:
        return await self._read(lambda: self._server.history(job_id, after=after, limit=limit))

    async def published(self, job_id: str, token: int, *, first: int) -> list[int]:
        return await self._read(lambda: self._server.published(job_id, token, first=first))

    async def log(
        self, job_id: str, *, after: str | None, limit: int, output: bool = True
    ) -> Slice:
        return await self._read(
            lambda: self._server.log(job_id, after=after, limit=limit, output=output)
        )

    async def feed(self, *, after: str | None, limit: int) -> Slice:
        return await self._read(lambda: self._server.feed(after=after, limit=limit))

    async def tail(self) -> str:
        return await self._read(self._server.tail)

    async def record(self, events: Sequence[Event]) -> int:
        return await self._link.call(lambda: self._server.record(events), writes=True)

    async def resource(self, key: str) -> Resource:
        return await self._read(lambda: self._server.resource(key))

    async def keys(self) -> list[Key]:
        return await self._read(self._server.keys)

    async def put_key(self, key: Key) -> None:
        await self._link.call(lambda: self._server.put_key(key), writes=True)

    async def prune(self, *, ended_before: datetime, output_before: datetime, limit: int) -> Pruned:
        return await self._link.call(
            lambda: self._server.prune(
                ended_before=ended_before, output_before=output_before, limit=limit
            ),
            writes=True,
        )

    async def now(self) -> datetime:
        return await self._read(self._server.now)

    async def secret(self) -> bytes:
        return await self._read(self._server.secret)

    async def _read(self, serve: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await self._link.call(serve)

    def hear(self) -> None:
        """The server says that something was committed."""
        self._signal.set()

    def mark(self, *, ready: bool = False) -> int:
        return self._signal.mark(ready=ready)

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        await self._signal.wait(mark, timeout, ready=ready)

    def describe(self) -> str:
        return "simulated: survives everything but its seed"

    async def examine(self) -> list[Finding]:
        return [Finding("store", "note", self.describe())]

    async def close(self) -> None:
        """There is nothing to close."""


def _decided_twice(decide: Decide) -> Decide:
    """After a conflict a store decides again; only the last answer counts."""

    def again(*args: Any) -> Decision:
        decide(*args)
        return decide(*args)

    return again


class Bucket(MemoryObjects):
    """The object store's own side. Whatever lands on a job's document, the witness sees."""

    def __init__(self, witness: Witness) -> None:
        super().__init__()
        self._witness = witness

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        before = self._objects.get(key)
        landed = await super().put(key, value, version)
        if landed:
            self._show(key, before[0] if before else None, value)
        return landed

    async def create_if_absent(self, key: str, value: bytes) -> bool:
        created = await super().create_if_absent(key, value)
        if created:
            self._show(key, None, value)
        return created

    def _show(self, key: str, before: bytes | None, after: bytes) -> None:
        if not key.endswith("/state.json"):
            return
        old = msgspec.json.decode(before, type=Document) if before else None
        new = msgspec.json.decode(after, type=Document)
        logged = old.logged if old else 0
        fresh = [entry.event for entry in new.outbox if (entry.event.log_id or 0) > logged]
        if new.record is None:
            self._witness.recorded(fresh)
        else:
            record = old.record if old else None
            self._witness.committed(Commit(record, new.record, fresh, None))


class Objects:
    """One node's side of the bucket: the object port over a link."""

    def __init__(self, bucket: Bucket, link: Link) -> None:
        self._bucket = bucket
        self._link = link

    async def get(self, key: str) -> tuple[bytes, VersionToken] | None:
        return await self._link.call(lambda: self._bucket.get(key))

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        return await self._link.call(
            lambda: self._bucket.put(key, value, version), writes=True, denial=False
        )

    async def create_if_absent(self, key: str, value: bytes) -> bool:
        return await self._link.call(
            lambda: self._bucket.create_if_absent(key, value), writes=True, denial=False
        )

    async def list_keys(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[str]:
        return await self._link.call(
            lambda: self._bucket.list_keys(prefix, after=after, limit=limit)
        )

    async def delete(self, key: str, version: VersionToken) -> bool:
        return await self._link.call(lambda: self._bucket.delete(key, version), writes=True)
