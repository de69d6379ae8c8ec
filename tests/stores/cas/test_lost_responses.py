"""A write whose answer is lost is done once, is known to be done, or says that nobody knows."""

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import pytest

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.state import State
from holdfast.ports import VersionedStore, VersionToken
from holdfast.registry.local import LocalRegistry
from tests.stores.cas.faulty_objects import (
    FailingCreates,
    ForwardingObjects,
    LostResponses,
    OvertakenWrites,
)
from tests.stores.cas.shared_objects import (
    ACTOR,
    SharedObjects,
    at_each_step,
    check,
    enqueue,
    external_event,
    lease,
    output,
    read_log,
    request,
    types,
)

T = TypeVar("T")

LIFE = ["job_queued", "job_claimed", "job_started", "job_succeeded"]


async def live(registry: LocalRegistry, shared: SharedObjects, job_id: str) -> None:
    """One job from enqueue to success, every verb sent until it is answered."""
    asked = request(job_id, lock="disk")
    await until_heard(lambda: registry.enqueue(asked, actor=ACTOR))
    [grant] = await until_heard(lambda: registry.claim(["default"], owner="w", op_id=f"claim-{job_id}"))
    assert grant.job_id == job_id
    await until_heard(lambda: registry.publish(grant, [output(shared, 1), output(shared, 2)]))
    await until_heard(lambda: registry.record([external_event(shared, f"n-{job_id}", job_id)]))
    await until_heard(lambda: registry.record([external_event(shared, f"m-{job_id}")]))
    done = await until_heard(lambda: registry.complete(grant, Success(), op_id=f"end-{job_id}"))
    assert done.state is State.SUCCEEDED


async def until_heard(verb: Callable[[], Awaitable[T]]) -> T:
    """Send the same request again for as long as no answer comes."""
    for _ in range(5):
        try:
            return await verb()
        except Unavailable:
            continue
    raise AssertionError("no answer")


async def rewrite(objects: VersionedStore, key: str) -> None:
    """Write over a document, as somebody does who renews a lease."""
    found = await objects.get(key)
    assert found is not None
    document = json.loads(found[0])
    document.update(serial=document["serial"] + 1, nonce="somebody-else")
    assert await objects.put(key, json.dumps(document).encode(), found[1])


@pytest.mark.parametrize("lie", [True, False])
def test_a_lost_answer_never_doubles_or_loses_anything(lie: bool) -> None:
    async def main(n: int) -> int:
        shared = SharedObjects()
        forgetful = LostResponses(shared.objects, n, lie=lie)
        registry = shared.registry(forgetful)

        await live(registry, shared, "job-1")
        await live(registry, shared, "job-2")
        shared.clock.advance(60)

        for reader in (registry, shared.registry()):
            feed = await check(reader)
            for job_id in ("job-1", "job-2"):
                assert await types(reader, job_id) == LIFE
                log = await read_log(reader, job_id)
                assert sum(event.event_class is EventClass.WORKER for event in log) == 2
                assert f"n-{job_id}" in [event.event_id for event in log]
                assert f"m-{job_id}" in feed
        if lie:
            assert len(feed) == len(set(feed))
        return forgetful.calls

    at_each_step(main, more_than=20)


async def test_a_write_that_landed_and_was_overwritten_before_its_answer_is_known(
    shared: SharedObjects,
) -> None:
    """The answer is lost, and when we look, somebody else has already written over it."""
    await enqueue(shared.registry(), "job-1")
    overtaken = OvertakenWrites(shared.objects, lambda: rewrite(shared.objects, "jobs/job-1/state.json"))

    grant = await shared.registry(overtaken).acquire("job-1", owner="w-1")

    assert overtaken.lost == 1
    assert grant.fencing_token == 1
    assert await types(shared.registry(), "job-1") == ["job_queued", "job_claimed"]
    assert await check(shared.registry()) == ["job-1/1", "job-1/2"]


async def test_a_moved_marker_whose_answer_was_lost_still_brings_the_job_back(
    shared: SharedObjects,
) -> None:
    registry = shared.registry()
    grant = await lease(registry, "job-1")
    await registry.heartbeat(grant)
    shared.clock.advance(50)
    await registry.heartbeat(grant)
    shared.clock.advance(20)

    async def meanwhile() -> None:
        await registry.heartbeat(grant)
        shared.clock.advance(61)

    overtaken = OvertakenWrites(shared.objects, meanwhile)

    assert await shared.registry(overtaken).expire() == 0

    assert overtaken.lost == 1
    assert await registry.expire() == 1


async def test_an_error_after_a_commit_says_that_it_may_have_been_applied(
    shared: SharedObjects,
) -> None:
    down = FailingCreates(shared.objects, "feed/*", lambda: Unavailable("The bucket is down.", applied="no"))

    with pytest.raises(Unavailable) as caught:
        await enqueue(shared.registry(down), "job-1")

    assert caught.value.applied == "unknown"


async def test_too_many_conflicts_are_unavailable_and_not_applied() -> None:
    class Contended(ForwardingObjects):
        async def put(self, key: str, value: bytes, version: VersionToken) -> bool:
            return False

    shared = SharedObjects()
    await enqueue(shared.registry(), "job-1")
    before = shared.clock.now()

    with pytest.raises(Unavailable) as caught:
        await shared.registry(Contended(shared.objects)).acquire("job-1", owner="w-1")

    assert caught.value.applied == "no"
    assert timedelta(seconds=25.5) <= shared.clock.now() - before <= timedelta(seconds=51)
    assert (await shared.registry().status("job-1")).state is State.QUEUED
