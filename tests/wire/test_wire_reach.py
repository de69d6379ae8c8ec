"""What a key does not reach stays unsaid, also where jobs of several queues meet; and waits are short."""

import asyncio
import time

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from wire_access_world import Caller, Stage
from wire_key_world import create, key, play, refusal

from holdfast.core.access import Scope
from holdfast.core.job import Resource
from holdfast.core.spec import Spec
from holdfast.ports import Request
from holdfast.registry.local import LocalRegistry
from holdfast.stores.memory import MemoryStore
from holdfast.system import SteadyClock, SystemIds
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from wire_world import serving

EVERYTHING = tuple(Scope)


def test_who_holds_a_lock_is_told_to_nobody_who_may_not_know_of_the_job() -> None:
    async def body(here: Stage) -> None:
        for queue in ("near", "far"):
            spec = Spec(queue=queue, lock="account-7")
            await here.registry.enqueue(Request(spec=spec, job_id=f"{queue}-1"), actor="user:root")
        await here.registry.acquire("far-1", owner="distant-worker")
        limited = await key(here, "limited", *EVERYTHING, queues=("near",))
        free = await key(here, "free", *EVERYTHING)

        said: dict[str, list[str]] = {}
        for name, caller in (("limited", limited), ("free", free)):
            why = await caller.registry.why(pb.WhyRequest(job_id="near-1"), headers=caller.headers)
            asked = pb.AcquireRequest(job_id="near-1", owner="w-1")
            with pytest.raises(ConnectError) as refused:
                await caller.registry.acquire(asked, headers=caller.headers)
            key_asked = pb.GetResourceRequest(key="account-7")
            lock = await caller.registry.get_resource(key_asked, headers=caller.headers)
            said[name] = [why.text, refused.value.message, lock.holder]

        assert not [text for text in said["limited"] if "far" in text or "distant" in text]
        assert all("account-7" in text for text in said["limited"][:2])
        assert all("far-1" in text for text in said["free"])

    play(body)


@pytest.mark.parametrize("then", [None, "near-2"])
@pytest.mark.parametrize("way", ["why", "acquire"])
def test_a_holder_that_lets_go_meanwhile_is_told_no_more_than_before(
    way: str, then: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the sentence and the look at who is named in it, the lock may change hands."""

    async def body(here: Stage) -> None:
        for job_id in ("near-1", "near-2", "far-1"):
            spec = Spec(queue=job_id[:-2], lock="account-7")
            await here.registry.enqueue(Request(spec=spec, job_id=job_id), actor="user:root")
        grant = await here.registry.acquire("far-1", owner="distant-worker")
        limited = await key(here, "limited", *EVERYTHING, queues=("near",))
        look = here.registry.resource

        async def later(lock: str) -> Resource:
            monkeypatch.setattr(here.registry, "resource", look)
            await here.registry.release(grant)
            if then is not None:
                await here.registry.acquire(then, owner="w-2")
            return await look(lock)

        monkeypatch.setattr(here.registry, "resource", later)
        if way == "why":
            asked = pb.WhyRequest(job_id="near-1")
            text = (await limited.registry.why(asked, headers=limited.headers)).text
        else:
            take = pb.AcquireRequest(job_id="near-1", owner="w-1")
            with pytest.raises(ConnectError) as refused:
                await limited.registry.acquire(take, headers=limited.headers)
            text = refused.value.message

        assert text.startswith("Lock account-7 is held by a job out of your reach")

    play(body)


def test_a_submitter_cannot_claim_that_its_job_repeats_another() -> None:
    async def body(here: Stage) -> None:
        submitter = await key(here, "submitter", Scope.SUBMIT)
        for spec in (pb.Spec(replayed_from="other"), pb.Spec(resumed_from="other")):
            asked = pb.EnqueueRequest(requests=[pb.Request(spec=spec)])
            call = submitter.registry.enqueue(asked, headers=submitter.headers)
            assert await refusal(call) is Code.PERMISSION_DENIED

    play(body)


def test_a_request_id_of_somebody_else_is_no_way_to_their_job() -> None:
    async def body(here: Stage) -> None:
        asked = pb.EnqueueRequest(requests=[pb.Request(spec=pb.Spec(), request_id="nightly")])
        for name, expected in (("ana", None), ("bob", Code.FAILED_PRECONDITION)):
            caller = await key(here, name, Scope.SUBMIT)
            for _ in range(2):  # what is one's own may be asked for again
                call = caller.registry.enqueue(asked, headers=caller.headers)
                if expected is None:
                    assert len((await call).jobs) == 1
                else:
                    assert await refusal(call) is expected

    play(body)


def test_a_key_counts_at_once_at_the_server_that_made_it_and_no_more_when_it_revoked_it() -> None:
    async def main() -> None:
        ids = SystemIds()
        registry = LocalRegistry(MemoryStore(SteadyClock(), ids), ids)
        made = await registry.create_key(name="root", scopes=EVERYTHING, actor="user:root")
        from holdfast.server.context import Settings

        async with serving(registry, Settings(keys=True)) as served:
            root = Caller(served.url, made[1])
            await root.registry.now(pb.NowRequest(), headers=root.headers)
            fresh = await create(root, name="fresh", scopes=["observe"])
            caller = Caller(served.url, fresh.text)
            await caller.registry.now(pb.NowRequest(), headers=caller.headers)
            assert fresh.key is not None
            revoke = pb.RevokeKeyRequest(key_id=fresh.key.key_id)
            await root.registry.revoke_key(revoke, headers=root.headers)
            call = caller.registry.now(pb.NowRequest(), headers=caller.headers)
            assert await refusal(call) is Code.UNAUTHENTICATED
        await registry.close()

    asyncio.run(main())


def test_an_answer_is_sent_at_once_and_does_not_wait_for_the_network_to_be_filled() -> None:
    """40 calls one after the other: with Nagle's algorithm on, most of them waited 40 ms."""

    async def main() -> float:
        ids = SystemIds()
        registry = LocalRegistry(MemoryStore(SteadyClock(), ids), ids)
        async with serving(registry) as served:
            remote = served.remote()
            await remote.now()
            begun = time.perf_counter()
            for _ in range(40):
                await remote.now()
            took = time.perf_counter() - begun
            await remote.close()
        await registry.close()
        return took

    assert min(asyncio.run(main()) for _ in range(3)) < 0.9
