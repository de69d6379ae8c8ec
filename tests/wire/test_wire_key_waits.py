"""A key that counts no more gets nothing out of a call that waits: each wait is checked as it is answered."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from connectrpc.code import Code
from rest_client import Rest
from wire_access_world import QUEUE, REGION, Caller, Stage
from wire_bad_client import Peer
from wire_key_world import play, refusal
from wire_load_clients import output
from wire_load_world import until

from holdfast.core.access import Principal, Scope
from holdfast.core.job import Job
from holdfast.core.outputs import Promise
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.ports import Outputs, Request
from holdfast.registry.local import LocalRegistry
from holdfast.server import keyring
from holdfast.server.calls import Unknown, who
from holdfast.server.context import Context, Settings
from holdfast.server.keyring import FRESH_SECONDS, Keyring
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old
from wire_world import serving

SECONDS = 25


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that asks for the keys whenever it needs one."""
    monkeypatch.setattr(keyring, "FRESH_SECONDS", 0.0)


class Doomed:
    """A caller whose key is about to end."""

    def __init__(self, here: Stage, key_id: str, text: str) -> None:
        self.here, self.key_id, self.text = here, key_id, text
        self.caller = Caller(here.served.url, text)

    async def end(self, way: str) -> None:
        if way == "revoked":
            await self.here.registry.revoke_key(self.key_id, actor="user:root")
        self.here.clock.advance(86_400 if way == "expired" else 0)


async def doomed(here: Stage) -> Doomed:
    key, text = await here.registry.create_key(
        name="doomed",
        scopes=(Scope.WORK, Scope.ADMIN),
        queues=(QUEUE,),
        life=timedelta(days=1),
        actor="user:root",
    )
    return Doomed(here, key.key_id, text)


async def job(here: Stage, **spec: Any) -> Job:  # noqa: ANN401
    asked = Request(spec=Spec(queue=QUEUE, region=REGION, **spec))
    return await here.registry.enqueue(asked, actor="user:root")


async def claim(mine: Doomed) -> Code:
    asked = pb.ClaimRequest(queues=[QUEUE], owner="w-1", wait_seconds=SECONDS, op_id="mine")
    return await refusal(mine.caller.registry.claim(asked, headers=mine.caller.headers))


async def dequeue(mine: Doomed) -> Code:
    asked = old.DequeueJobRequest(queue=QUEUE)
    headers = mine.caller.headers

    async def all_of_it() -> None:
        async for _ in mine.caller.jobs.dequeue_job(
            asked, headers=headers, timeout_ms=SECONDS * 1000
        ):
            pass

    return await refusal(all_of_it())


async def rest(mine: Doomed) -> Code:
    asked = {"queues": [QUEUE], "owner": "w-1", "wait_seconds": SECONDS}
    return await posted(mine, "/v1/grants", asked)


async def posted(mine: Doomed, path: str, asked: object) -> Code:
    server = Peer(mine.here.served, mine.here.registry, asyncio.get_running_loop())
    answer = await asyncio.to_thread(Rest(server, mine.text).post, path, asked)
    return {401: Code.UNAUTHENTICATED}[answer.status]


Wait = Callable[[Doomed], Coroutine[Any, Any, Code]]


@pytest.mark.parametrize("way", ["revoked", "expired"])
@pytest.mark.parametrize("wait", [claim, dequeue, rest])
def test_a_claim_that_waits_gets_no_job_when_its_key_has_ended(wait: Wait, way: str) -> None:
    async def body(here: Stage) -> None:
        mine, lanes = await doomed(here), here.served.app.context.lanes
        waiting = asyncio.create_task(wait(mine))
        await until(lambda: lanes.waiting() == 1)
        await mine.end(way)
        made = await job(here, kind="command" if wait is dequeue else "report")

        assert await waiting is Code.UNAUTHENTICATED
        after = await here.registry.get(made.job_id)
        assert (after.state, after.fencing_token) == (State.QUEUED, 0)

    play(body)


def test_those_who_wait_behind_a_key_that_has_ended_get_their_turn_at_once() -> None:
    """In the row of a lane only the first is woken: whoever cannot ask leaves its turn to the next."""

    async def body(here: Stage) -> None:
        mine, lanes = await doomed(here), here.served.app.context.lanes
        live = here.caller("work")
        dead = [asyncio.create_task(claim(mine)) for _ in range(5)]
        await until(lambda: lanes.waiting() == 5)
        asked = pb.ClaimRequest(queues=[QUEUE], owner="w-2", wait_seconds=SECONDS)
        alive = asyncio.create_task(live.registry.claim(asked, headers=live.headers))
        await until(lambda: lanes.waiting() == 6)
        await mine.end("revoked")
        rung = lanes._rung  # how often the lanes were woken says how long it took
        await job(here)

        assert len((await alive).grants) == 1
        assert lanes._rung - rung <= 2
        assert set(await asyncio.gather(*dead)) == {Code.UNAUTHENTICATED}

    play(body)


@pytest.mark.parametrize("named", [True, False])
def test_a_grant_of_a_key_that_has_ended_since_is_given_back_at_no_cost(named: bool) -> None:
    async def body() -> None:
        clock, ids = ManualClock(), SystemIds()
        registry = LocalRegistry(MemoryStore(clock, ids), ids)
        context = Context(registry, clock, ids, Settings(keys=True))
        key, _ = await registry.create_key(name="k", scopes=(Scope.WORK,), actor="user:root")
        who.set(key.principal)
        made = await registry.enqueue(Request(spec=Spec()), actor="user:root")
        grants = await registry.claim(["default"], owner="w-1", op_id="mine")
        await context.check_key()
        await registry.revoke_key(key.key_id, actor="user:root")
        clock.advance(1)

        with pytest.raises(Unknown):
            await context.grants.hand_over(grants, named=named)
        await context.close()

        after = await registry.get(made.job_id)
        assert (after.state, after.crashes, after.failures) == (State.QUEUED, 0, 0)
        await registry.close()

    asyncio.run(body())


def test_an_open_publish_stream_takes_nothing_from_a_key_that_has_ended() -> None:
    async def body(here: Stage) -> None:
        mine, subject = await doomed(here), await here.subject("doomed", "running")
        sequences = (100, 200)

        async def requests() -> AsyncIterator[old.PublishJobEventsRequest]:
            for sequence in sequences:
                event = output(sequence)
                yield old.PublishJobEventsRequest(task_token=subject.token, events=[event])
                if sequence == sequences[0]:
                    await until_stored(here, subject.job_id, sequence)
                    await mine.end("revoked")

        call = mine.caller.events.publish_job_events(requests(), headers=mine.caller.headers)
        assert await refusal(call) is Code.UNAUTHENTICATED
        log = (await here.registry.log(subject.job_id)).events
        assert [e.sequence for e in log if e.sequence in sequences] == [sequences[0]]

    play(body)


async def until_stored(here: Stage, job_id: str, sequence: int) -> None:
    async with asyncio.timeout(60):
        mark = here.registry.mark()
        while all(e.sequence != sequence for e in (await here.registry.log(job_id)).events):
            await here.registry.changed(since=mark, timeout=60)
            mark = here.registry.mark()


async def change_of(mine: Doomed, job_id: str) -> Code:
    now = await mine.here.registry.get(job_id)
    mark = f"{now.version}.{now.published}"
    asked = pb.AwaitChangeRequest(job_id=job_id, mark=mark, seconds=SECONDS)
    return await refusal(mine.caller.registry.await_change(asked, headers=mine.caller.headers))


def test_a_wait_for_a_change_tells_nothing_when_its_key_has_ended() -> None:
    async def body(here: Stage) -> None:
        mine, subject = await doomed(here), await here.subject("doomed", "running")
        readers = here.served.app.context.readers
        waiting = asyncio.create_task(change_of(mine, subject.job_id))
        await until(lambda: subject.job_id in readers._seats)
        await mine.end("revoked")
        await here.registry.cancel(subject.job_id, actor="user:root", hard=True)

        assert await waiting is Code.UNAUTHENTICATED

    play(body)


@pytest.mark.parametrize("verb", ["validate", "resume"])
def test_whoever_waits_for_outputs_to_be_looked_for_is_checked_again(
    verb: str, tmp_path: Path
) -> None:
    async def body() -> None:
        clock, ids = ManualClock(), SystemIds()
        registry = LocalRegistry(MemoryStore(clock, ids), ids)
        key, text = await registry.create_key(name="k", scopes=(Scope.ADMIN,), actor="user:root")
        opened, opens = asyncio.Event(), asyncio.Event()
        outputs = await DirectoryOutputs.open(tmp_path, create=True)

        async def slowly(_: bool) -> Outputs | None:
            opens.set()
            await opened.wait()
            return outputs

        async with serving(registry, Settings(keys=True), slowly) as served:
            spec = Spec(outputs=Promise(names=("table",), store=outputs.store_id))
            made = await registry.enqueue(Request(spec=spec), actor="user:root")
            await registry.cancel(made.job_id, actor="user:root")
            caller = Caller(served.url, text)
            ask = {"validate": pb.ValidateRequest, "resume": pb.ResumeRequest}[verb]
            call = getattr(caller.registry, verb)
            waiting = asyncio.create_task(
                refusal(call(ask(job_id=made.job_id), headers=caller.headers))
            )
            await opens.wait()
            await registry.revoke_key(key.key_id, actor="user:root")
            opened.set()

            assert await waiting is Code.UNAUTHENTICATED
        assert len((await registry.list_jobs()).jobs) == 1
        await registry.close()

    asyncio.run(body())


def test_a_key_that_another_server_revoked_counts_no_more_after_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What docs/service.md promises as `within seconds`."""
    monkeypatch.setattr(keyring, "FRESH_SECONDS", FRESH_SECONDS)

    async def body() -> None:
        clock, ids = ManualClock(), SystemIds()
        registry = LocalRegistry(MemoryStore(clock, ids), ids)
        key, text = await registry.create_key(name="k", scopes=(Scope.WORK,), actor="user:root")
        ring = Keyring(registry, clock, required=True)
        mine = await ring.principal(f"Bearer {text}")
        assert isinstance(mine, Principal)
        await registry.revoke_key(key.key_id, actor="user:root")

        clock.advance(5.01)

        assert FRESH_SECONDS <= 5
        assert not await ring.still(mine)
        assert await ring.principal(f"Bearer {text}") is None
        await registry.close()

    asyncio.run(body())
