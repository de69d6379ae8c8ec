"""The bare script of the PostgreSQL benchmark is a fair limit: it writes the very rows that the verbs do."""

import asyncio
import json
import re
from collections import Counter
from datetime import datetime

import asyncpg
import msgspec

from holdfast.core import segment
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from holdfast.ports.registry import Completion
from holdfast.sdk.open import open_registry
from postgres_limit import Bare
from tests.stores.postgres.running_server import server

TABLES = ("job", "state", "ready", "lane", "segment", "alarm", "claim", "queue_count")
JOBS, CLAIMED, COMPLETED = 6, 4, 2
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def plain(value: object) -> object:
    """A value without what differs between two runs: moments, ids, and the numbers of transactions."""
    if isinstance(value, datetime):
        return "moment"
    if isinstance(value, str):
        return UUID.sub("uuid", MOMENT.sub("moment", value))
    return value


def events_of(text: str) -> str:
    """The events of a segment, one by one: what they share may be written once or many times."""
    events = segment.decode(text, {key: str(key) for key in segment.keys(text)})
    return msgspec.json.encode(list(events)).decode()


async def rows_of(url: str, schema: str) -> dict[str, Counter[str]]:
    connection = await asyncpg.connect(url.partition("?")[0])
    found = {}
    for table in TABLES:
        rows = await connection.fetch(f"SELECT * FROM {schema}.{table}")
        lean = [{k: plain(events_of(v) if k == "events" else v) for k, v in row.items()} for row in rows]
        found[table] = Counter(json.dumps(row, sort_keys=True) for row in lean)
    await connection.close()
    return found


async def by_the_verbs(registry: Registry) -> None:
    payloads = [msgspec.Raw(b'{"n":%d,"argv":["echo","hello"]}' % n) for n in range(JOBS)]
    requests = [JobRequest(spec=Spec(kind="echo", payload=payload)) for payload in payloads]
    await registry.enqueue_many(requests, actor="user:bench")
    grants = await registry.claim(["default"], owner="w1", limit=CLAIMED)
    await registry.complete_many([Completion(grant, Success()) for grant in grants[:COMPLETED]])


async def by_the_bare_script(url: str) -> None:
    bare = await Bare.open(url)
    await bare.enqueue(JOBS)
    await bare.complete((await bare.claim(CLAIMED))[:COMPLETED])
    await bare.close()


async def written(name: str) -> dict[str, Counter[str]]:
    url = server().url(schema=name)
    registry = await open_registry(url)
    await (by_the_verbs(registry) if name == "verbs" else by_the_bare_script(url))
    verification = await registry.verify()
    await registry.close()
    assert verification.equal, verification.mismatches
    return await rows_of(url, name)


def test_the_bare_script_writes_the_rows_that_the_verbs_write() -> None:
    assert asyncio.run(written("bare")) == asyncio.run(written("verbs"))
