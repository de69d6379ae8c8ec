"""A PostgreSQL store whose responses can be lost on the way, and each verb as a call to be lost."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Decision, Grant, JobRequest, Registry, Work
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry
from holdfast.stores.postgres.commit import Way
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from holdfast.testing.world import PERMANENT
from tests.stores.postgres.running_server import fresh_url
from verify.wire_proxy import WireProxy

ACTOR = "user:ana"
LEASE = timedelta(seconds=30)


class LockedStore(PostgresStore):
    """Makes every commit a transaction, as commits are made after a conflict."""

    async def _attempt(
        self, session: Session, works: Sequence[Work], way: Way, *, waited: bool = False
    ) -> list[list[Decision]]:
        locked = {Way.CACHED: Way.LOCKED, Way.READ: Way.AGAIN}
        return await super()._attempt(session, works, locked.get(way, way), waited=waited)


class LossyConnection:
    """A registry whose responses can be lost, and one beside it with a direct connection."""

    def __init__(self, registry: LocalRegistry, direct: Registry, proxy: WireProxy) -> None:
        self.registry = registry
        self.direct = direct
        self.proxy = proxy

    async def grant(self, job_id: str) -> Grant:
        await self.make(job_id)
        return await self.direct.acquire(job_id, owner="worker-7", lease=LEASE)

    async def make(self, job_id: str) -> Job:
        return await self.direct.enqueue(JobRequest(spec=Spec(), job_id=job_id), actor=ACTOR)


@asynccontextmanager
async def open_lossy(folder: Path, store: type[PostgresStore]) -> AsyncIterator[LossyConnection]:
    url = await fresh_url(folder)
    direct = await open_registry(url)
    with WireProxy(urlsplit(url).port or 0) as proxy:
        ids = SystemIds()
        registry = LocalRegistry(await store.open(proxy.through(url), ids=ids), ids)
        try:
            yield LossyConnection(registry, direct, proxy)
        finally:
            proxy.forget()
            await registry.close()
            await direct.close()


Verb = Callable[[LocalRegistry], Awaitable[object]]


async def enqueue(lossy: LossyConnection, name: str) -> Verb:
    # Another job of the queue: the first one also makes a lane, by a statement of its own.
    await lossy.registry.enqueue(JobRequest(spec=Spec(queue=name)), actor=ACTOR)
    store = lossy.registry._store
    assert isinstance(store, PostgresStore)
    await store._notifier.close()  # what it has yet to tell could need another connection
    request = JobRequest(spec=Spec(queue=name), request_id=f"request-{name}")
    return lambda registry: registry.enqueue(request, actor=ACTOR)


async def claim(lossy: LossyConnection, name: str) -> Verb:
    spec = Spec(queue=name)
    for n in range(3):
        await lossy.direct.enqueue(JobRequest(spec=spec, job_id=f"{name}-{n}"), actor=ACTOR)
    return lambda registry: registry.claim(
        [name], owner="worker-7", limit=2, op_id=f"claim-{name}", lease=LEASE
    )


async def acquire(lossy: LossyConnection, name: str) -> Verb:
    await lossy.make(name)
    return lambda registry: registry.acquire(name, owner="worker-7", op_id=f"acquire-{name}", lease=LEASE)


async def heartbeat(lossy: LossyConnection, name: str) -> Verb:
    grant = await lossy.grant(name)
    return lambda registry: registry.heartbeat(grant)


async def complete(lossy: LossyConnection, name: str) -> Verb:
    grant = await lossy.grant(name)
    outcome = Success(result={"by": 7})
    return lambda registry: registry.complete(grant, outcome, op_id=f"complete-{name}")


async def release(lossy: LossyConnection, name: str) -> Verb:
    grant = await lossy.grant(name)
    return lambda registry: registry.release(grant, op_id=f"release-{name}")


async def cancel(lossy: LossyConnection, name: str) -> Verb:
    await lossy.make(name)
    return lambda registry: registry.cancel(name, actor=ACTOR, op_id=f"cancel-{name}")


async def replay(lossy: LossyConnection, name: str) -> Verb:
    await lossy.direct.complete(await lossy.grant(name), PERMANENT)
    return lambda registry: registry.replay(name, actor=ACTOR, replay_id=f"replay-{name}")


async def publish(lossy: LossyConnection, name: str) -> Verb:
    grant = await lossy.grant(name)
    now = await lossy.direct.now()
    lines = [
        Event(
            event_type=WorkerEventType.OUTPUT,
            event_class=EventClass.WORKER,
            occurred_at=now,
            sequence=n,
            stream="stdout",
            data=b"working\n",
        )
        for n in (1, 2)
    ]
    return lambda registry: registry.publish(grant, lines)


async def record(lossy: LossyConnection, name: str) -> Verb:
    event = Event(
        event_type="invoice_sent",
        event_class=EventClass.EXTERNAL,
        occurred_at=await lossy.direct.now(),
        given_id=f"fact-{name}",
    )
    return lambda registry: registry.record([event])


VERBS = (enqueue, claim, acquire, heartbeat, complete, release, cancel, replay, publish, record)
