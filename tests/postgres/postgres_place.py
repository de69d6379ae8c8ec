"""Stores in schemas of their own on the test process's PostgreSQL, and what they are fed with."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any

import asyncpg
import pytest

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change, Claim, decide
from holdfast.core.spec import Spec
from holdfast.ports import Decision, One, Ready, Request, Work
from holdfast.registry.requests import command_of
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from postgres_world import MAJOR, server

ACTOR = "user:ana"
_numbers = count(1)


def fresh_schema() -> str:
    return f"case_{next(_numbers)}"


def fresh_store_url() -> str:
    """A URL whose schema nobody has made yet."""
    return server(MAJOR).url(schema=fresh_schema())


def schema_of(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0] or "holdfast"


def run(body: Coroutine[Any, Any, None], seconds: float = 60) -> None:
    """Run a test's body, but not for ever."""
    asyncio.run(asyncio.wait_for(body, seconds))


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


def wanted(
    job_id: str | None = None, spec: Spec = Spec(), *, correlation_id: str | None = None
) -> Work:
    """An enqueue, as the registry's verb hands it to the store."""
    request = Request(spec=spec, job_id=job_id, correlation_id=correlation_id)
    command = command_of(request, SystemIds(), actor=ACTOR)
    return Work(One(command.job_id, spec.lock, job_id is None), partial(decide, command))


def claimed(op_id: str, *queues: str, limit: int = 1) -> Work:
    command = Claim(op_id=op_id, owner="w", actor="worker:w")
    return Work(
        Ready(op_id=op_id, queues=queues or ("default",), limit=limit), partial(decide, command)
    )


def seized(job_id: str, op_id: str) -> Work:
    command = Claim(op_id=op_id, owner="w", actor="worker:w")
    return Work(One(job_id), partial(decide, command))


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
