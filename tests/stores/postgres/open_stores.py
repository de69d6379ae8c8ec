"""Stores in schemas of their own on the test process's PostgreSQL, and the work that tests give them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any

import asyncpg
import pytest

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Claim, Success, decide
from holdfast.core.spec import Spec
from holdfast.ports import ById, Decision, JobRequest, Ready, Work
from holdfast.registry.job_requests import enqueue_command
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from tests.stores.postgres.running_server import MAJOR, server
from verify.postgres_server import PostgresServer

ACTOR = "user:ana"
_numbers = count(1)


def fresh_schema() -> str:
    return f"case_{next(_numbers)}"


def fresh_store_url() -> str:
    """A URL whose schema nobody has made yet."""
    return server(MAJOR).url(schema=fresh_schema())


def schema_of(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0] or "holdfast"


class OwnSchema:
    """A schema of the test's own: registries on it, and connections beside them; `ends` closes them."""

    ends: AsyncExitStack

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.schema = fresh_schema()
        self.url = server.url(schema=self.schema)

    async def connect(self) -> "asyncpg.Connection[Any]":
        """Return a connection that is not the store's."""
        connection = await asyncpg.connect(self.server.url())
        self.ends.push_async_callback(connection.close, timeout=1)
        return connection

    async def open(self, url: str | None = None) -> LocalRegistry:
        registry = await open_local(url or self.url)
        self.ends.push_async_callback(registry.close)
        return registry

    async def worker_url(self, person: "asyncpg.Connection[Any]") -> str:
        """Return the URL of a user who may write to the tables, and owns none."""
        name = f"worker_{self.schema}"
        await person.execute(
            f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {self.schema} TO {name};"
            f"GRANT ALL ON ALL TABLES IN SCHEMA {self.schema} TO {name};"
            f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {self.schema} TO {name}"
        )
        return self.server.url(user=name, schema=self.schema)

    async def skip_to(self, person: "asyncpg.Connection[Any]", seq: int) -> None:
        """Number the next job as if this many had been made."""
        await person.execute(f"SELECT setval('{self.schema}.job_seq', {seq})")


def store_of(registry: LocalRegistry) -> PostgresStore:
    assert isinstance(registry._store, PostgresStore)
    return registry._store


def job_request(job_id: str, lock: str | None = None) -> JobRequest:
    return JobRequest(spec=Spec(lock=lock), job_id=job_id)


async def finish_job(registry: LocalRegistry, job_id: str) -> int:
    """Make a job, run it, and return the token it was run under."""
    await registry.enqueue(job_request(job_id), actor=ACTOR)
    grant = await registry.acquire(job_id, owner="worker-7")
    await registry.complete(grant, Success())
    return grant.fencing_token


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(url, ids=SystemIds())
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def connected(url: str = "") -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection of a person's own."""
    connection = await asyncpg.connect(url or server(MAJOR).url())
    try:
        yield connection
    finally:
        connection.terminate()


def wanted(job_id: str | None = None, spec: Spec = Spec(), *, correlation_id: str | None = None) -> Work:
    """An enqueue, as the registry's verb hands it to the store."""
    request = JobRequest(spec=spec, job_id=job_id, correlation_id=correlation_id)
    command = enqueue_command(request, SystemIds(), actor=ACTOR)
    return Work(ById(command.job_id, spec.lock, job_id is None), partial(decide, command))


def claimed(op_id: str, *queues: str, limit: int = 1) -> Work:
    command = Claim(op_id=op_id, owner="w", actor="worker:w")
    return Work(Ready(op_id=op_id, queues=queues or ("default",), limit=limit), partial(decide, command))


def seized(job_id: str, op_id: str) -> Work:
    command = Claim(op_id=op_id, owner="w", actor="worker:w")
    return Work(ById(job_id), partial(decide, command))


def fact(event_id: str, about: str | None) -> Event:
    now = datetime.now(UTC)
    return Event(
        event_type="noted",
        event_class=EventClass.EXTERNAL,
        occurred_at=now,
        received_at=now,
        given_id=event_id,
        job_id=about,
    )


def said(sequence: int, at: Event) -> Event:
    """A line of output, as its worker would send it."""
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=at.occurred_at,
        sequence=sequence,
        stream="stdout",
        data=b"hello\n",
    )


def jobs_of(answers: list[list[Decision]]) -> list[Job]:
    return [d.after for [d] in answers if isinstance(d, Change)]


async def waiting_for_a_lock(person: "asyncpg.Connection[Any]", count: int = 1) -> None:
    """Until so many of the store's sessions wait for a lock."""
    sql = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND application_name = 'holdfast'"
    )
    for _ in range(1000):
        # In a transaction, the list of sessions stays as it was first seen.
        await person.execute("SELECT pg_stat_clear_snapshot()")
        if await person.fetchval(sql) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits for a lock")


def deadlocks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every deadlock that a store of this process is told of from now on."""
    found: list[str] = []
    fetch = Session.fetch

    async def watched(self: Session, sql: str, *parameters: object) -> object:
        try:
            return await fetch(self, sql, *parameters)
        except asyncpg.DeadlockDetectedError as error:
            found.append(str(error))
            raise

    monkeypatch.setattr(Session, "fetch", watched)
    return found
