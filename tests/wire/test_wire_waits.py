"""Calls that wait: one key has a part of their places, and its other calls are answered meanwhile."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from connectrpc.code import Code
from wire_access_world import Caller, Stage
from wire_key_world import count, key, play, refusal
from wire_load_world import until

from holdfast.core.access import Scope
from holdfast.core.errors import Unavailable
from holdfast.core.spec import Spec
from holdfast.ports import Request
from holdfast.system import SystemClock, SystemIds
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.link import Link
from holdfast.wire.remote import RemoteRegistry

SECONDS = 20
PLACES = 2


@pytest.fixture(autouse=True)
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.waits.connections_max", lambda: 4 * PLACES)


async def claim(caller: Caller) -> object:
    asked = pb.ClaimRequest(queues=["default"], owner="w", wait_seconds=SECONDS)
    return await caller.registry.claim(asked, headers=caller.headers)


async def change(caller: Caller) -> object:
    """Wait until anything has happened."""
    marked = await caller.registry.await_change(pb.AwaitChangeRequest(), headers=caller.headers)
    asked = pb.AwaitChangeRequest(seconds=SECONDS, mark=marked.mark)
    return await caller.registry.await_change(asked, headers=caller.headers)


async def end(caller: Caller) -> object:
    """Wait until something has happened to a job."""
    asked = pb.AwaitChangeRequest(job_id="job")
    marked = await caller.registry.await_change(asked, headers=caller.headers)
    asked = pb.AwaitChangeRequest(job_id="job", seconds=SECONDS, mark=marked.mark)
    return await caller.registry.await_change(asked, headers=caller.headers)


Wait = Callable[[Caller], Coroutine[Any, Any, object]]


@pytest.mark.parametrize("wait", [claim, change, end])
def test_one_key_has_a_part_of_the_places_of_those_who_wait(wait: Wait) -> None:
    async def body(here: Stage) -> None:
        away = Request(spec=Spec(queue="elsewhere"), job_id="job")
        await here.registry.enqueue(away, actor="user:root")
        ana, bob = [await key(here, name, *Scope) for name in ("ana", "bob")]
        waits = here.served.app.context.waits
        first = [asyncio.create_task(wait(ana)) for _ in range(PLACES)]
        await until(lambda: waits.count() == PLACES)

        assert await refusal(wait(ana)) is Code.RESOURCE_EXHAUSTED
        await count(ana)
        others = [asyncio.create_task(wait(bob)) for _ in range(PLACES)]
        await until(lambda: waits.count() == 2 * PLACES)
        for one in first:
            one.cancel()
        await until(lambda: waits.count() == PLACES)
        again = asyncio.create_task(wait(ana))
        await until(lambda: waits.count() == PLACES + 1)
        assert not again.done()
        for one in (again, *others):
            one.cancel()

    play(body)


def test_a_client_for_whom_there_is_no_place_to_wait_asks_again() -> None:
    async def body(here: Stage) -> None:
        await here.registry.enqueue(Request(spec=Spec(), job_id="job"), actor="user:root")
        _, text = await here.registry.create_key(name="ana", scopes=tuple(Scope), actor="user:root")
        ana = Caller(here.served.url, text)
        waits = here.served.app.context.waits
        first = [asyncio.create_task(change(ana)) for _ in range(PLACES)]
        await until(lambda: waits.count() == PLACES)
        remote = RemoteRegistry(Link((here.served.url,), text), SystemClock(), SystemIds())

        with pytest.raises(Unavailable, match="still queued"):
            await remote.wait("job", timeout=0.2)

        await remote.close()
        for one in first:
            one.cancel()

    play(body)
