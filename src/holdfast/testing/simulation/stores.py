"""Simulated stores of both families: one that commits many rows at once, one of single objects."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from holdfast.core.event import Event
from holdfast.objects.memory import MemoryObjects
from holdfast.ports import Clock, Decide, Decision, Finding, Ids, Store, VersionToken, Work
from holdfast.stores.batch import Batch
from holdfast.stores.cas.documents import Document
from holdfast.stores.commit_signal import CommitSignal
from holdfast.stores.memory import MemoryStore
from holdfast.testing.port_methods import derive
from holdfast.testing.simulation.commit import Commit
from holdfast.testing.simulation.invariant_checker import InvariantChecker
from holdfast.testing.simulation.network import FaultInjector, NetworkLink
from holdfast.testing.simulation.sql_server import SqlServer


class MemoryServer(MemoryStore):
    """The server side of the transactional store. Every commit is shown to the checker."""

    def __init__(self, clock: Clock, ids: Ids, checker: InvariantChecker) -> None:
        super().__init__(clock, ids)
        self._checker = checker
        self.listeners: list[Callable[[], None]] = []

    def _write(self, batch: Batch) -> None:
        """Commit, and show it as one commit per job, as callers are promised."""
        # In the order of single commits: a lock is released before it is taken again.
        written = {**batch.updated, **batch.created, **batch.touched}
        before = {job_id: self._jobs.get(job_id) for job_id in written}
        events = [*batch.events, *(e for some in batch.published for e in some), *batch.facts]
        super()._write(batch)
        for job_id, job in written.items():
            mine = [event for event in events if event.job_id == job_id]
            self._checker.committed(Commit(before[job_id], job, mine, batch.now))
        others = [event for event in events if event.job_id not in written]
        if others:
            self._checker.recorded(others)
        if written or others:
            for listener in self.listeners:
                listener()

    async def record(self, events: Sequence[Event]) -> int:
        fresh = [event for event in events if event.event_id not in self._known]
        count = await super().record(events)
        self._checker.recorded(fresh)
        return count


class StoreConnection:
    """The connection of a node to the transactional store: a store whose calls go over a link."""

    def __init__(
        self,
        server: MemoryServer | SqlServer,
        link: NetworkLink,
        injector: FaultInjector,
        clock: Clock,
    ) -> None:
        self._server = server
        self._link = link
        self._injector = injector
        self._signal = CommitSignal(clock)

    async def transact(self, works: Sequence[Work]) -> list[list[Decision]]:
        if self._injector.happens("conflict"):
            works = [Work(work.selection, _decided_twice(work.decide)) for work in works]
        return await self._link.call(lambda: self._server.transact(works), writes=True)

    def notify(self) -> None:
        """Receive the server's message that something was committed."""
        self._signal.set()

    def change_mark(self, *, ready: bool = False) -> int:
        return self._signal.change_mark(ready=ready)

    async def wait(self, mark: int, timeout: float, *, ready: bool = False) -> None:  # noqa: ASYNC109
        await self._signal.wait(mark, timeout, ready=ready)

    def describe(self) -> str:
        return "simulated: survives everything but its seed"

    async def doctor(self) -> list[Finding]:
        return [Finding("store", "note", self.describe())]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _sent(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def call(self: StoreConnection, *args: Any, **kwargs: Any) -> Any:
        serve = getattr(self._server, name)
        return await self._link.call(lambda: serve(*args, **kwargs), writes=name in _WRITES)

    return call


_WRITES = frozenset(write.__name__ for write in (Store.record, Store.put_key, Store.put_worker, Store.prune))
derive(StoreConnection, Store, _sent)


def _decided_twice(decide: Decide) -> Decide:
    """Return a decision that is made twice, as after a conflict; only the last result counts."""

    def again(*args: Any) -> Decision:
        decide(*args)
        return decide(*args)

    return again


class Bucket(MemoryObjects):
    """The server side of the object store. Every write of a job's document is shown to the checker."""

    def __init__(self, checker: InvariantChecker) -> None:
        super().__init__()
        self._checker = checker

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
            self._checker.recorded(fresh)
        else:
            record = old.record if old else None
            self._checker.committed(Commit(record, new.record, fresh, None))


class ObjectsConnection:
    """The connection of a node to the bucket: the object port over a link."""

    def __init__(self, bucket: Bucket, link: NetworkLink) -> None:
        self._bucket = bucket
        self._link = link

    async def get(self, key: str) -> tuple[bytes, VersionToken] | None:
        return await self._link.call(lambda: self._bucket.get(key))

    async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
        return await self._link.call(lambda: self._bucket.put(key, value, version), writes=True, denial=False)

    async def create_if_absent(self, key: str, value: bytes) -> bool:
        return await self._link.call(
            lambda: self._bucket.create_if_absent(key, value), writes=True, denial=False
        )

    async def list_keys(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        return await self._link.call(lambda: self._bucket.list_keys(prefix, after=after, limit=limit))

    async def delete(self, key: str, version: VersionToken) -> bool:
        return await self._link.call(lambda: self._bucket.delete(key, version), writes=True)
