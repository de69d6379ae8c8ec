"""The bare script of the SQLite benchmark is a fair limit: it writes the very rows that the verbs do."""

import asyncio
import re
from collections import Counter
from pathlib import Path

import apsw
import msgspec

from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.ports.registry import Completion
from holdfast.sdk.open import open_registry
from sqlite_limit import Bare

TABLES = ("lane", "job", "state", "ready", "claim", "alarm", "segment", "queue_count", "rare", "event")
JOBS, CLAIMED, COMPLETED = 6, 4, 2
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]*")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\b1[78]\d{14}\b")
OPS = re.compile(r'"op_id":\["[^]]*\]|"op_start":"[^"]*"')


def plain(value: object) -> object:
    """A value without what differs between two runs: moments and ids."""
    if isinstance(value, int) and value > 10**15:
        return "moment"
    if isinstance(value, str):
        value = OPS.sub("ops", UUID.sub("uuid", MOMENT.sub("moment", value))).replace("PT60S", "PT3600S")
        if value.startswith('{"n":') and '"job":' in value:
            fields = msgspec.json.decode(
                value.replace(",ops", "").replace("moment", "0"), type=dict[str, object]
            )
            return str(sorted(fields.items(), key=lambda field: field[0]))
    return value


def rows_of(path: Path) -> dict[str, Counter[str]]:
    connection = apsw.Connection(str(path))
    found = {}
    for table in TABLES:
        cursor = connection.execute(f"SELECT * FROM {table} ORDER BY 1")
        found[table] = Counter(str([plain(value) for value in row]) for row in cursor)
    connection.close()
    return found


async def by_the_verbs(path: Path) -> None:
    registry = await open_registry(f"sqlite:///{path}")
    payloads = [msgspec.Raw(b'{"n":%d,"argv":["echo","hello"]}' % n) for n in range(1, JOBS + 1)]
    requests = [JobRequest(spec=Spec(kind="echo", payload=payload)) for payload in payloads]
    await registry.enqueue_many(requests, actor="user:bench")
    grants = await registry.claim(["default"], owner="w1", limit=CLAIMED)
    await registry.complete_many([Completion(grant, Success()) for grant in grants[:COMPLETED]])
    await registry.close()


async def by_the_bare_script(path: Path) -> None:
    bare = Bare(path)
    bare.enqueue(JOBS)
    bare.complete(bare.claim(CLAIMED)[:COMPLETED])
    bare.close()
    registry = await open_registry(f"sqlite:///{path}")
    verification = await registry.verify()
    await registry.close()
    assert verification.equal, verification.mismatches


def test_the_bare_script_writes_the_rows_that_the_verbs_write(tmp_path: Path) -> None:
    asyncio.run(by_the_verbs(tmp_path / "verbs.db"))
    asyncio.run(by_the_bare_script(tmp_path / "bare.db"))

    assert rows_of(tmp_path / "bare.db") == rows_of(tmp_path / "verbs.db")
