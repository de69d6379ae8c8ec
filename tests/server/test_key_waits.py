"""A key that is no longer valid gets nothing out of a call that waits: each wait is checked as it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from connectrpc.code import Code

from holdfast.core.access import Principal, Scope
from holdfast.core.job import Job
from holdfast.core.outputs import OutputPromise
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.outputs.directory import DirectoryOutputs
from holdfast.ports import JobRequest, Outputs
from holdfast.registry.local import LocalRegistry
from holdfast.server import keyring
from holdfast.server.calls import Unauthenticated, current_principal
from holdfast.server.context import ServerContext, ServerSettings
from holdfast.server.keyring import FRESH_SECONDS, Keyring
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old
from tests.server.connect_client import ConnectClient, refusal_code
from tests.server.job_v1_client import output
from tests.server.keyed_server import QUEUE, REGION, KeyedServer
from tests.server.raw_http_client import ThreadedServer
from tests.server.rest.rest_client import RestClient
from tests.server.running_server import serving
from tests.server.server_process import until

SECONDS = 25


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that asks for the keys whenever it needs one."""
    monkeypatch.setattr(keyring, "FRESH_SECONDS", 0.0)


class Doomed:
    """A caller whose key is about to end."""

    def __init__(self, here: KeyedServer, key_id: str, text: str) -> None:
        self.here, self.key_id, self.text = here, key_id, text
        self.caller = ConnectClient(here.server.url, text)

    async def end(self, way: str) -> None:
        if way == "revoked":
            await self.here.registry.revoke_key(self.key_id, actor="user:root")
        self.here.clock.advance(86_400 if way == "expired" else 0)


async def doomed(here: KeyedServer) -> Doomed:
    key, text = await here.registry.create_key(
        name="doomed",
        scopes=(Scope.WORK, Scope.ADMIN),
        queues=(QUEUE,),
        life=timedelta(days=1),
        actor="user:root",
    )
    return Doomed(here, key.key_id, text)


async def job(here: KeyedServer, **spec: Any) -> Job:  # noqa: ANN401
    asked = JobRequest(spec=Spec(queue=QUEUE, region=REGION, **spec))
    return await here.registry.enqueue(asked, actor="user:root")


async def claim(mine: Doomed) -> Code:
    asked = pb.ClaimRequest(queues=[QUEUE], owner="w-1", wait_seconds=SECONDS, op_id="mine")
    return await refusal_code(mine.caller.registry.claim(asked))


async def dequeue(mine: Doomed) -> Code:
    asked = old.DequeueJobRequest(queue=QUEUE)

    async def all_of_it() -> None:
        async for _ in mine.caller.jobs.dequeue_job(asked, timeout_ms=SECONDS * 1000):
            pass

    return await refusal_code(all_of_it())


async def rest(mine: Doomed) -> Code:
    asked = {"queues": [QUEUE], "owner": "w-1", "wait_seconds": SECONDS}
    return await posted(mine, "/v1/grants", asked)


async def posted(mine: Doomed, path: str, asked: object) -> Code:
    server = ThreadedServer(mine.here.server, mine.here.registry, asyncio.get_running_loop())
    answer = await asyncio.to_thread(RestClient(server, mine.text).post, path, asked)
    return {401: Code.UNAUTHENTICATED}[answer.status]


Wait = Callable[[Doomed], Coroutine[Any, Any, Code]]


@pytest.mark.parametrize("way", ["revoked", "expired"])
@pytest.mark.parametrize("wait", [claim, dequeue, rest])
async def test_a_claim_that_waits_gets_no_job_when_its_key_has_ended(
    wait: Wait, way: str, keyed: KeyedServer
) -> None:
    mine, lanes = await doomed(keyed), keyed.server.app.context.claim_waiters
    waiting = asyncio.create_task(wait(mine))
    await until(lambda: lanes.waiting() == 1)
    await mine.end(way)
    made = await job(keyed, kind="command" if wait is dequeue else "report")

    assert await waiting is Code.UNAUTHENTICATED
    after = await keyed.registry.status(made.job_id)
    assert (after.state, after.fencing_token) == (State.QUEUED, 0)


async def test_those_who_wait_behind_a_key_that_has_ended_get_their_turn_at_once(
    keyed: KeyedServer,
) -> None:
    """In the row of a lane only the first is woken: whoever cannot ask leaves its turn to the next."""

    mine, lanes = await doomed(keyed), keyed.server.app.context.claim_waiters
    live = keyed.caller("work")
    dead = [asyncio.create_task(claim(mine)) for _ in range(5)]
    await until(lambda: lanes.waiting() == 5)
    asked = pb.ClaimRequest(queues=[QUEUE], owner="w-2", wait_seconds=SECONDS)
    alive = asyncio.create_task(live.registry.claim(asked))
    await until(lambda: lanes.waiting() == 6)
    await mine.end("revoked")
    rounds = lanes._round  # how often the waiters were woken says how long it took
    await job(keyed)

    assert len((await alive).grants) == 1
    assert lanes._round - rounds <= 2
    assert set(await asyncio.gather(*dead)) == {Code.UNAUTHENTICATED}


@pytest.mark.parametrize("named", [True, False])
async def test_a_grant_of_a_key_that_has_ended_since_is_given_back_at_no_cost(named: bool) -> None:
    clock, ids = ManualClock(), SystemIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    context = ServerContext(registry, clock, ids, ServerSettings(keys=True))
    key, _ = await registry.create_key(name="k", scopes=(Scope.WORK,), actor="user:root")
    current_principal.set(key.principal)
    made = await registry.enqueue(JobRequest(spec=Spec()), actor="user:root")
    grants = await registry.claim(["default"], owner="w-1", op_id="mine")
    await context.check_key()
    await registry.revoke_key(key.key_id, actor="user:root")
    clock.advance(1)

    with pytest.raises(Unauthenticated):
        await context.grants.hand_over(grants, named=named)
    await context.close()

    after = await registry.status(made.job_id)
    assert (after.state, after.crashes, after.failures) == (State.QUEUED, 0, 0)
    await registry.close()


async def test_an_open_publish_stream_takes_nothing_from_a_key_that_has_ended(
    keyed: KeyedServer,
) -> None:
    mine, subject = await doomed(keyed), await keyed.subject("doomed", "running")
    sequences = (100, 200)

    async def requests() -> AsyncIterator[old.PublishJobEventsRequest]:
        for sequence in sequences:
            event = output(sequence)
            yield old.PublishJobEventsRequest(task_token=subject.token, events=[event])
            if sequence == sequences[0]:
                await until_stored(keyed, subject.job_id, sequence)
                await mine.end("revoked")

    call = mine.caller.events.publish_job_events(requests())
    assert await refusal_code(call) is Code.UNAUTHENTICATED
    log = (await keyed.registry.logs(subject.job_id)).events
    assert [e.sequence for e in log if e.sequence in sequences] == [sequences[0]]


async def until_stored(here: KeyedServer, job_id: str, sequence: int) -> None:
    async with asyncio.timeout(60):
        mark = here.registry.change_mark()
        while all(e.sequence != sequence for e in (await here.registry.logs(job_id)).events):
            await here.registry.changes(since=mark, timeout=60)
            mark = here.registry.change_mark()


async def change_of(mine: Doomed, job_id: str) -> Code:
    now = await mine.here.registry.status(job_id)
    mark = f"{now.version}.{now.published}"
    asked = pb.ChangesRequest(job_id=job_id, mark=mark, seconds=SECONDS)
    return await refusal_code(mine.caller.registry.changes(asked))


async def test_a_wait_for_a_change_tells_nothing_when_its_key_has_ended(keyed: KeyedServer) -> None:
    mine, subject = await doomed(keyed), await keyed.subject("doomed", "running")
    readers = keyed.server.app.context.event_streams
    waiting = asyncio.create_task(change_of(mine, subject.job_id))
    await until(lambda: subject.job_id in readers._wakes)
    await mine.end("revoked")
    await keyed.registry.cancel(subject.job_id, actor="user:root", hard=True)

    assert await waiting is Code.UNAUTHENTICATED


@pytest.mark.parametrize("verb", ["validate", "resume"])
async def test_whoever_waits_for_outputs_to_be_looked_for_is_checked_again(verb: str, tmp_path: Path) -> None:
    clock, ids = ManualClock(), SystemIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    key, text = await registry.create_key(name="k", scopes=(Scope.ADMIN,), actor="user:root")
    opened, opens = asyncio.Event(), asyncio.Event()
    outputs = await DirectoryOutputs.open(tmp_path, create=True)

    async def slowly(_: bool) -> Outputs | None:
        opens.set()
        await opened.wait()
        return outputs

    async with serving(registry, ServerSettings(keys=True), slowly) as served:
        spec = Spec(outputs=OutputPromise(names=("table",), store=outputs.store_id))
        made = await registry.enqueue(JobRequest(spec=spec), actor="user:root")
        await registry.cancel(made.job_id, actor="user:root")
        caller = ConnectClient(served.url, text)
        ask = {"validate": pb.ValidateRequest, "resume": pb.ResumeRequest}[verb]
        call = getattr(caller.registry, verb)
        waiting = asyncio.create_task(refusal_code(call(ask(job_id=made.job_id))))
        await opens.wait()
        await registry.revoke_key(key.key_id, actor="user:root")
        opened.set()

        assert await waiting is Code.UNAUTHENTICATED
    assert len((await registry.list_jobs()).jobs) == 1
    await registry.close()


async def test_a_key_that_another_server_revoked_counts_no_more_after_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What docs/service.md promises as `within seconds`."""
    monkeypatch.setattr(keyring, "FRESH_SECONDS", FRESH_SECONDS)

    clock, ids = ManualClock(), SystemIds()
    registry = LocalRegistry(MemoryStore(clock, ids), ids)
    key, text = await registry.create_key(name="k", scopes=(Scope.WORK,), actor="user:root")
    ring = Keyring(registry, clock, required=True)
    mine = await ring.principal(f"Bearer {text}")
    assert isinstance(mine, Principal)
    await registry.revoke_key(key.key_id, actor="user:root")

    clock.advance(5.01)

    assert FRESH_SECONDS <= 5
    assert not await ring.is_valid(mine)
    assert await ring.principal(f"Bearer {text}") is None
    await registry.close()
