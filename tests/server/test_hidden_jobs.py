"""Jobs out of a key's reach are not named, also where jobs of several queues share a lock."""

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.core.access import Scope
from holdfast.core.job import ResourceLock
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from tests.server.connect_client import refusal_code
from tests.server.keyed_server import KeyedServer, key

EVERYTHING = tuple(Scope)


async def test_who_holds_a_lock_is_told_to_nobody_who_may_not_know_of_the_job(
    keyed: KeyedServer,
) -> None:
    for queue in ("near", "far"):
        spec = Spec(queue=queue, lock="account-7")
        await keyed.registry.enqueue(JobRequest(spec=spec, job_id=f"{queue}-1"), actor="user:root")
    await keyed.registry.acquire("far-1", owner="distant-worker")
    limited = await key(keyed, "limited", *EVERYTHING, queues=("near",))
    free = await key(keyed, "free", *EVERYTHING)

    said: dict[str, list[str]] = {}
    for name, caller in (("limited", limited), ("free", free)):
        why = await caller.registry.why(pb.WhyRequest(job_id="near-1"))
        asked = pb.AcquireRequest(job_id="near-1", owner="w-1")
        with pytest.raises(ConnectError) as refused:
            await caller.registry.acquire(asked)
        key_asked = pb.LocksRequest(key="account-7")
        lock = await caller.registry.locks(key_asked)
        said[name] = [why.text, refused.value.message, lock.holder]

    assert not [text for text in said["limited"] if "far" in text or "distant" in text]
    assert all("account-7" in text for text in said["limited"][:2])
    assert all("far-1" in text for text in said["free"])


@pytest.mark.parametrize("then", [None, "near-2"])
@pytest.mark.parametrize("way", ["why", "acquire"])
async def test_a_holder_that_lets_go_meanwhile_is_told_no_more_than_before(
    way: str, then: str | None, monkeypatch: pytest.MonkeyPatch, keyed: KeyedServer
) -> None:
    """Between the sentence and the look at who is named in it, the lock may change hands."""

    for job_id in ("near-1", "near-2", "far-1"):
        spec = Spec(queue=job_id[:-2], lock="account-7")
        await keyed.registry.enqueue(JobRequest(spec=spec, job_id=job_id), actor="user:root")
    grant = await keyed.registry.acquire("far-1", owner="distant-worker")
    limited = await key(keyed, "limited", *EVERYTHING, queues=("near",))
    look = keyed.registry.locks

    async def later(lock: str) -> ResourceLock:
        monkeypatch.setattr(keyed.registry, "locks", look)
        await keyed.registry.release(grant)
        if then is not None:
            await keyed.registry.acquire(then, owner="w-2")
        return await look(lock)

    monkeypatch.setattr(keyed.registry, "locks", later)
    if way == "why":
        asked = pb.WhyRequest(job_id="near-1")
        text = (await limited.registry.why(asked)).text
    else:
        take = pb.AcquireRequest(job_id="near-1", owner="w-1")
        with pytest.raises(ConnectError) as refused:
            await limited.registry.acquire(take)
        text = refused.value.message

    assert text.startswith("Lock account-7 is held by a job out of your reach")


async def test_a_submitter_cannot_claim_that_its_job_repeats_another(keyed: KeyedServer) -> None:
    submitter = await key(keyed, "submitter", Scope.SUBMIT)
    for spec in (pb.Spec(replayed_from="other"), pb.Spec(resumed_from="other")):
        asked = pb.EnqueueRequest(requests=[pb.JobRequest(spec=spec)])
        call = submitter.registry.enqueue(asked)
        assert await refusal_code(call) is Code.PERMISSION_DENIED
