"""Keys at a server: making, exchanging and revoking them, and how soon each takes effect."""

import asyncio
import http.client
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, closing
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.cli.server_log import ServerLog
from holdfast.cli.server_process import run_server
from holdfast.core.access import Key, Scope
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Denied, Invalid
from holdfast.core.event import Event
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.server import calls, keyring
from holdfast.server.context import ServerSettings
from holdfast.server.http_server import ListenAddress
from holdfast.server.keyring import Keyring
from holdfast.stores.memory import MemoryStore
from holdfast.system import SteadyClock, SystemIds
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from tests.server.connect_client import ConnectClient, refusal_code
from tests.server.keyed_server import ALL, QUEUE, KeyedServer, count, create, key, update
from tests.server.running_server import serving
from tests.server.served_registry import ServedRegistry
from tests.server.server_process import sqlite_url


async def test_a_key_in_a_url_is_refused(keyed: KeyedServer) -> None:
    parts, text = urlsplit(keyed.server.url), keyed.keys["observe"] or ""

    def post() -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        path = f"/holdfast.v1.RegistryService/Now?key={text}"
        connection.request("POST", path, b"{}", {"content-type": "application/json"})
        answer = connection.getresponse()
        told = answer.status, answer.read()
        connection.close()
        return told

    status, words = await asyncio.to_thread(post)

    assert status == 400
    assert b"Authorization header" in words
    assert text.encode() not in words


async def test_two_keys_of_a_name_share_its_task_tokens_and_a_third_is_refused(
    keyed: KeyedServer,
) -> None:
    root = await key(keyed, "root", *ALL)
    before, subject = keyed.caller("work"), await keyed.subject("work", "running")
    made = await create(root, name="work", scopes=["work"], queues=["*"])
    after = ConnectClient(keyed.server.url, made.text)

    await update(before, subject.token)
    await update(after, subject.token)
    with pytest.raises(ConnectError, match="Revoke one of them") as third:
        await create(root, name="work", scopes=["work"], queues=["*"])

    assert made.key is not None
    assert third.value.code is Code.RESOURCE_EXHAUSTED
    listed = await root.registry.list_keys(pb.ListKeysRequest())
    secret = made.text.split("_", 2)[2].encode()
    assert [one.key_id for one in listed.keys if one.name == "work"][1:] == [made.key.key_id]
    assert secret not in listed.to_binary()


async def test_a_revoked_key_counts_no_more_after_a_few_seconds(
    monkeypatch: pytest.MonkeyPatch, keyed: KeyedServer
) -> None:
    root, watcher = await key(keyed, "root", *ALL), keyed.caller("observe")
    await count(watcher)
    key_id = (keyed.keys["observe"] or "").split("_")[1]
    revoke = pb.RevokeKeyRequest(key_id=key_id)
    await root.registry.revoke_key(revoke)

    assert keyring.FRESH_SECONDS <= 60
    monkeypatch.setattr(keyring, "FRESH_SECONDS", 0.0)
    assert await refusal_code(count(watcher)) is Code.UNAUTHENTICATED
    await count(root)


LOUD_EVENTS = 600


async def loud(here: KeyedServer) -> str:
    """A job with more output than fits between a server and a client that does not read."""
    job = await here.registry.enqueue(JobRequest(spec=Spec(queue=QUEUE)), actor="user:zoe")
    grant = await here.registry.acquire(job.job_id, owner="w-1")
    for first in range(1, LOUD_EVENTS, 10):
        await here.registry.publish(
            grant,
            [
                Event(
                    WorkerEventType.OUTPUT,
                    EventClass.WORKER,
                    here.clock.now(),
                    sequence=number,
                    stream="stdout",
                    data=b"x" * 60_000,
                )
                for number in range(first, first + 10)
            ],
        )
    return job.job_id


def watch(caller: ConnectClient, job_id: str) -> AsyncGenerator[pb.EventPage, None]:
    slices = caller.registry.watch(pb.WatchRequest(job_id=job_id))
    return cast("AsyncGenerator[pb.EventPage, None]", slices)


class Listener:
    """Reads a stream to its end, which must be an error."""

    def __init__(self, caller: ConnectClient, job_id: str) -> None:
        self.events = 0
        self.opened = asyncio.Event()
        self._slices = watch(caller, job_id)

    async def read(self, then: Callable[[], Awaitable[object]] | None = None) -> None:
        """Do something `then`, once it has begun."""
        async with asyncio.timeout(60), aclosing(self._slices):
            async for one in self._slices:
                if then is not None and not self.opened.is_set():
                    await then()
                self.opened.set()
                self.events += len(one.events)


@pytest.mark.parametrize("way", ["revoked", "expired"])
async def test_an_open_stream_ends_with_its_key(
    way: str, monkeypatch: pytest.MonkeyPatch, keyed: KeyedServer
) -> None:
    """A silent one, and one that always has more to say."""
    monkeypatch.setattr(keyring, "FRESH_SECONDS", 0.0)

    made, text = await keyed.registry.create_key(
        name="watcher", scopes=(Scope.ADMIN,), life=timedelta(days=1), actor="user:root"
    )
    watcher = ConnectClient(keyed.server.url, text)
    idle = Listener(watcher, (await keyed.subject("zoe", "running")).job_id)
    busy = Listener(watcher, await loud(keyed))

    async def end() -> None:
        if way == "revoked":
            await keyed.registry.revoke_key(made.key_id, actor="user:root")
        keyed.clock.advance(86_400 if way == "expired" else 0)

    waiting = asyncio.create_task(refusal_code(idle.read()))
    await idle.opened.wait()
    with pytest.raises(ConnectError) as caught:
        await busy.read(end)

    assert caught.value.code is Code.PERMISSION_DENIED
    assert "revoked or has expired" in caught.value.message
    assert 0 < busy.events < LOUD_EVENTS
    assert await waiting is Code.PERMISSION_DENIED
    assert await refusal_code(count(watcher)) is Code.UNAUTHENTICATED


MAKER = {"scopes": ["submit", "admin:keys"], "queues": ["a-*"], "regions": ["us"]}


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({}, True),
        ({"scopes": ["submit"], "queues": ["a-b*"]}, True),
        ({"queues": [], "regions": []}, True),
        ({"scopes": ["work"]}, False),
        ({"scopes": ["submit", "admin"]}, False),
        ({"scopes": ["submit", "observe:data"]}, False),
        ({"queues": ["*"]}, False),
        ({"queues": ["a-1", "b"]}, False),
        ({"queues": ["a*"]}, False),
        ({"regions": ["eu"]}, False),
        ({"regions": ["us", "eu"]}, False),
        ({"name": "submit"}, False),
    ],
)
async def test_a_key_makes_none_that_may_do_more_than_itself(
    fields: dict[str, Any], allowed: bool, keyed: KeyedServer
) -> None:
    """The last one would take over the jobs of somebody who may do more."""

    scopes = (Scope.SUBMIT, Scope.KEYS)
    maker = await key(keyed, "maker", *scopes, queues=("a-*",), regions=("us",))
    asked = {"name": "a-1:made", **MAKER, **fields}

    if not allowed:
        assert await refusal_code(create(maker, **asked)) is Code.PERMISSION_DENIED
        return
    made = (await create(maker, **asked)).key
    assert made is not None
    assert made.queues == (asked["queues"] or ["a-*"])
    assert made.regions == ["us"]


async def test_a_key_that_asks_too_often_is_told_so_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch, keyed: KeyedServer
) -> None:
    monkeypatch.setattr(calls, "RATE_BURST_MAX", 5)
    monkeypatch.setattr(calls, "RATE_PER_SECOND_MAX", 0.001)

    for _ in range(5):
        await count(keyed.caller("observe"))

    assert await refusal_code(count(keyed.caller("observe"))) is Code.RESOURCE_EXHAUSTED
    await count(keyed.caller("data"))


async def test_keys_and_task_tokens_outlive_the_server(tmp_path: Path) -> None:
    registry = await open_local(sqlite_url(tmp_path))
    _, text = await registry.create_key(name="ana", scopes=ALL, actor="user:root")
    await registry.enqueue(JobRequest(spec=Spec()), actor="user:ana")
    async with serving(registry, ServerSettings(keys=True)) as served:
        [grant] = await served.remote(text).claim(["default"], owner="w-1")
    await registry.close()

    registry = await open_local(sqlite_url(tmp_path))
    async with serving(registry, ServerSettings(keys=True)) as served:
        await served.remote(text).heartbeat(grant)
        with pytest.raises(Denied, match="HOLDFAST_KEY_FILE"):
            await served.remote().counts()
    await registry.close()


async def test_a_key_made_while_keys_are_read_is_known_at_once(
    monkeypatch: pytest.MonkeyPatch, served: ServedRegistry
) -> None:
    keyring = Keyring(served.registry, served.clock, required=True)
    scopes, life = [Scope.OBSERVE], timedelta(days=2)
    served.clock.advance(days=100)

    async def make(name: str) -> str:
        made = await served.registry.create_key(name=name, scopes=scopes, life=life, actor="user:root")
        return f"Bearer {made[1]}"

    one, real, reading, go = (
        await make("one"),
        served.registry.list_keys,
        asyncio.Event(),
        asyncio.Event(),
    )

    async def slowly() -> list[Key]:
        keys = await real()
        reading.set()
        await go.wait()
        return keys

    monkeypatch.setattr(served.registry, "list_keys", slowly)
    waits = asyncio.create_task(keyring.principal(one))
    await reading.wait()
    monkeypatch.setattr(served.registry, "list_keys", real)
    two = await make("two")
    keyring.invalidate()
    go.set()

    first, second = await waits, await keyring.principal(two)
    assert (first and first.name, second and second.name) == ("one", "two")


async def test_a_server_with_keys_does_not_start_when_none_of_them_counts(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    registry = await open_local(url)
    key, _ = await registry.create_key(name="a", scopes=[Scope.ADMIN], actor="user:root")
    await registry.revoke_key(key.key_id, actor="user:root")
    await registry.close()
    with closing(ServerLog("text")) as log, pytest.raises(Invalid, match="keys create"):
        async with asyncio.timeout(20):
            await run_server(url, ListenAddress(port=0), ServerSettings(keys=True), log)


async def test_a_key_counts_at_once_at_the_server_that_made_it_and_no_more_when_it_revoked_it() -> None:
    ids = SystemIds()
    registry = LocalRegistry(MemoryStore(SteadyClock(), ids), ids)
    made = await registry.create_key(name="root", scopes=ALL, actor="user:root")
    from holdfast.server.context import ServerSettings

    async with serving(registry, ServerSettings(keys=True)) as served:
        root = ConnectClient(served.url, made[1])
        await root.registry.now(pb.NowRequest())
        fresh = await create(root, name="fresh", scopes=["observe"])
        caller = ConnectClient(served.url, fresh.text)
        await caller.registry.now(pb.NowRequest())
        assert fresh.key is not None
        revoke = pb.RevokeKeyRequest(key_id=fresh.key.key_id)
        await root.registry.revoke_key(revoke)
        call = caller.registry.now(pb.NowRequest())
        assert await refusal_code(call) is Code.UNAUTHENTICATED
    await registry.close()
