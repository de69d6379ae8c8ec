"""The code that docs/fencing.md shows, run on the real things."""

import asyncio
import re
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from redis.asyncio import Redis

import holdfast
from holdfast.core.errors import Fenced
from holdfast.core.spec import Spec
from holdfast.fencing import Fence, parse, postgres, sqlite
from holdfast.fencing.asgi import SCOPE_KEY, Message, Receive, Scope, Send
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_registry
from holdfast.testing import memory_app
from tests.stores.postgres.running_server import server
from verify.bucket_server import s3_store
from verify.redis_server import redis_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fencing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def shown(function: str, which: int = 0, **names: object) -> Any:  # noqa: ANN401
    """That function, as the page defines it."""
    found = [block for block in BLOCKS if re.search(rf"def {function}\(", block)]
    scope = dict(names)
    exec(found[which], scope)
    return scope[function]


def fence(token: int) -> Fence:
    return Fence(resource="account-17", token=token, job_id="job-1", lock="account-17")


async def bank() -> "asyncpg.Connection[Any]":
    connection = await asyncpg.connect(server().url())
    await connection.execute("DROP SCHEMA IF EXISTS page CASCADE; CREATE SCHEMA page")
    await connection.execute("SET search_path = page")
    await postgres.install(connection)
    await connection.execute("CREATE TABLE account (id int, cents int)")
    await connection.execute("INSERT INTO account VALUES (17, 100)")
    return connection


def test_every_block_of_the_page_is_run_here() -> None:
    functions = [re.findall(r"def (\w+)\(", block) for block in BLOCKS]
    assert functions == [["pay"], ["pay"], ["pay"], ["note"], ["publish"], ["report"], ["fenced"]]


async def test_the_handler_of_the_page_pays_once_and_under_its_lock() -> None:
    connection = await bank()
    await connection.close()
    with psycopg.connect(server().url(), options="-c search_path=page") as blocking:
        app = holdfast.App()
        names = {"app": app, "holdfast": holdfast, "postgres": postgres, "bank": blocking}
        pay = shown("pay", 0, **names)
        assert shown("pay", 1, **names | {"app": holdfast.App()}).call(17, 5).spec.lock == "account-17"
        with memory_app(app) as bench:
            for _ in range(2):
                pay.enqueue(17, 30)
            await asyncio.to_thread(bench.drain)
        [(found,)] = blocking.execute("SELECT cents FROM account").fetchall()
        [(seen,)] = blocking.execute("SELECT token FROM holdfast_mark").fetchall()
        assert seen == 2
    assert int(found) == 40


async def test_a_stale_payment_of_the_page_is_undone() -> None:
    pay = shown("pay", 2)
    connection = await bank()
    await pay(connection, fence(43), 30)
    with pytest.raises(Fenced):
        await pay(connection, fence(42), 30)
    assert await connection.fetchval("SELECT cents FROM account") == 70
    with pytest.raises(asyncpg.PostgresError) as refused:  # as other languages see it
        await connection.execute("SELECT holdfast_admit('account-17', 'lock:account-17', 42)")
    assert refused.value.sqlstate == "HF001"
    old = "DELETE FROM holdfast_mark WHERE seen_at < now() - interval '30 days'"
    assert old in PAGE.read_text(encoding="utf-8")
    assert await connection.execute(old) == "DELETE 0"
    await connection.close()


def test_a_stale_note_of_the_page_is_not_written() -> None:
    books = sqlite3.connect(":memory:")
    sqlite.install(books)
    books.execute("CREATE TABLE note (words TEXT)")
    note = shown("note")
    note(books, fence(43), "new")
    with pytest.raises(Fenced):
        note(books, fence(42), "old")
    assert books.execute("SELECT words FROM note").fetchall() == [("new",)]
    books.close()


async def test_a_stale_price_of_the_page_is_not_published() -> None:
    publish = shown("publish")
    async with Redis(port=redis_port(), decode_responses=True) as client:
        await client.flushdb()
        await publish(client, fence(43), 59)
        with pytest.raises(Fenced):
            await publish(client, fence(42), 60)
        assert await client.get("price") == "59"


async def test_a_stale_report_of_the_page_is_not_put() -> None:
    report, store = shown("report"), s3_store()
    await report(store, fence(43), b"new")
    with pytest.raises(Fenced):
        await report(store, fence(42), b"old")
    found = await (await store.get_async("reports/2026-11.csv")).bytes_async()
    assert bytes(found) == b"new"


async def test_the_service_of_the_page_turns_stale_requests_away() -> None:
    registry = await open_registry("memory://")
    await registry.enqueue(JobRequest(spec=Spec(lock="account-17"), job_id="job-1"), actor="user:ana")
    for _ in range(2):
        [grant] = await registry.claim(["default"], owner="worker-7")
        if grant.fencing_token == 1:
            await registry.release(grant)
    served: list[Fence] = []
    answers: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        served.append(scope[SCOPE_KEY])

    async def send(message: Message) -> None:
        answers.append(message.get("status", 0))

    async def receive() -> Message:
        return {}

    service = shown("fenced")(app, registry)
    for token in (2, 1):
        headers = [(b"holdfast-fence", fence(token).header.encode())]
        await service({"type": "http", "method": "PUT", "headers": headers}, receive, send)
    assert served == [fence(2)]
    assert 409 in answers
    await registry.close()


def test_the_header_of_the_page_is_one() -> None:
    [header] = re.findall(r"^Holdfast-Fence: (.*)$", PAGE.read_text(encoding="utf-8"), re.M)
    assert parse(header) == Fence(resource="account-17", token=43, job_id="7f3c", lock="account-17")
