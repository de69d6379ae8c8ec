"""Keys over the wire: making, exchanging, revoking them, their end, and in whose name they act."""

import asyncio
import http.client
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from wire_access_world import ALL, QUEUE, Caller, Stage
from wire_key_world import count, create, key, play, refusal, update
from wire_load_world import sqlite_url

from holdfast.core.access import Scope
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Denied
from holdfast.core.event import Event
from holdfast.core.spec import Spec
from holdfast.ports import Request
from holdfast.sdk.open import open_local
from holdfast.server import calls, keyring
from holdfast.server.context import Settings
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from wire_world import serving


def test_a_key_in_a_url_is_refused() -> None:
    async def body(here: Stage) -> None:
        parts, text = urlsplit(here.served.url), here.keys["observe"] or ""

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

    play(body)


def test_two_keys_of_a_name_share_its_task_tokens_and_a_third_is_refused() -> None:
    async def body(here: Stage) -> None:
        root = await key(here, "root", *ALL)
        before, subject = here.caller("work"), await here.subject("work", "running")
        made = await create(root, name="work", scopes=["work"], queues=["*"])
        after = Caller(here.served.url, made.text)

        await update(before, subject.token)
        await update(after, subject.token)
        with pytest.raises(ConnectError, match="Revoke one of them") as third:
            await create(root, name="work", scopes=["work"], queues=["*"])

        assert made.key is not None
        assert third.value.code is Code.RESOURCE_EXHAUSTED
        listed = await root.registry.list_keys(pb.ListKeysRequest(), headers=root.headers)
        secret = made.text.split("_", 2)[2].encode()
        assert [one.key_id for one in listed.keys if one.name == "work"][1:] == [made.key.key_id]
        assert secret not in listed.to_binary()

    play(body)


def test_a_revoked_key_counts_no_more_after_a_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(here: Stage) -> None:
        root, watcher = await key(here, "root", *ALL), here.caller("observe")
        await count(watcher)
        key_id = (here.keys["observe"] or "").split("_")[1]
        revoke = pb.RevokeKeyRequest(key_id=key_id)
        await root.registry.revoke_key(revoke, headers=root.headers)

        assert keyring.FRESH_SECONDS <= 60
        monkeypatch.setattr(keyring, "FRESH_SECONDS", 0.0)
        assert await refusal(count(watcher)) is Code.UNAUTHENTICATED
        await count(root)

    play(body)


LOUD_EVENTS = 600


async def loud(here: Stage) -> str:
    """A job with more output than fits between a server and a client that does not read."""
    job = await here.registry.enqueue(Request(spec=Spec(queue=QUEUE)), actor="user:zoe")
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


def watch(caller: Caller, job_id: str) -> AsyncGenerator[pb.Slice, None]:
    slices = caller.registry.watch(pb.WatchRequest(job_id=job_id), headers=caller.headers)
    return cast("AsyncGenerator[pb.Slice, None]", slices)


class Listener:
    """Reads a stream to its end, which must be an error."""

    def __init__(self, caller: Caller, job_id: str) -> None:
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
def test_an_open_stream_ends_with_its_key(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent one, and one that always has more to say."""
    monkeypatch.setattr(keyring, "FRESH_SECONDS", 0.0)

    async def body(here: Stage) -> None:
        made, text = await here.registry.create_key(
            name="watcher", scopes=(Scope.ADMIN,), life=timedelta(days=1), actor="user:root"
        )
        watcher = Caller(here.served.url, text)
        idle = Listener(watcher, (await here.subject("zoe", "running")).job_id)
        busy = Listener(watcher, await loud(here))

        async def end() -> None:
            if way == "revoked":
                await here.registry.revoke_key(made.key_id, actor="user:root")
            here.clock.advance(86_400 if way == "expired" else 0)

        waiting = asyncio.create_task(refusal(idle.read()))
        await idle.opened.wait()
        with pytest.raises(ConnectError) as caught:
            await busy.read(end)

        assert caught.value.code is Code.PERMISSION_DENIED
        assert "revoked or has expired" in caught.value.message
        assert 0 < busy.events < LOUD_EVENTS
        assert await waiting is Code.PERMISSION_DENIED
        assert await refusal(count(watcher)) is Code.UNAUTHENTICATED

    play(body)


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
def test_a_key_makes_none_that_may_do_more_than_itself(
    fields: dict[str, Any], allowed: bool
) -> None:
    """The last one would take over the jobs of somebody who may do more."""

    async def body(here: Stage) -> None:
        scopes = (Scope.SUBMIT, Scope.KEYS)
        maker = await key(here, "maker", *scopes, queues=("a-*",), regions=("us",))
        asked = {"name": "a-1:made", **MAKER, **fields}

        if not allowed:
            assert await refusal(create(maker, **asked)) is Code.PERMISSION_DENIED
            return
        made = (await create(maker, **asked)).key
        assert made is not None
        assert made.queues == (asked["queues"] or ["a-*"])
        assert made.regions == ["us"]

    play(body)


def test_a_key_that_asks_too_often_is_told_so_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "RATE_BURST_MAX", 5)
    monkeypatch.setattr(calls, "RATE_PER_SECOND_MAX", 0.001)

    async def body(here: Stage) -> None:
        for _ in range(5):
            await count(here.caller("observe"))

        assert await refusal(count(here.caller("observe"))) is Code.RESOURCE_EXHAUSTED
        await count(here.caller("data"))

    play(body)


def test_keys_and_task_tokens_outlive_the_server(tmp_path: Path) -> None:
    async def body() -> None:
        registry = await open_local(sqlite_url(tmp_path))
        _, text = await registry.create_key(name="ana", scopes=ALL, actor="user:root")
        await registry.enqueue(Request(spec=Spec()), actor="user:ana")
        async with serving(registry, Settings(keys=True)) as served:
            [grant] = await served.remote(text).claim(["default"], owner="w-1")
        await registry.close()

        registry = await open_local(sqlite_url(tmp_path))
        async with serving(registry, Settings(keys=True)) as served:
            await served.remote(text).heartbeat(grant)
            with pytest.raises(Denied, match="HOLDFAST_KEY_FILE"):
                await served.remote().counts()
        await registry.close()

    asyncio.run(body())
