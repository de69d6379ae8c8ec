"""A success and its follow-ups are many documents: whoever dies between them, both are there or neither."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar

import pytest

from holdfast.core.derived_ids import follow_up_id
from holdfast.core.errors import Unavailable
from holdfast.core.lifecycle import CompleteValidation, Success, decide
from holdfast.core.outputs import ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import ById, Grant, JobRequest, Work
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas.documents import DocumentStore
from tests.stores.cas.faulty_objects import (
    Crashed,
    CrashingObjects,
    FailingCreates,
    ForwardingObjects,
    PausedObjects,
)
from tests.stores.cas.shared_objects import (
    SharedObjects,
    at_each_step,
    check,
    claimed,
    enqueue,
    lease,
    listed,
    read_feed,
)

T = TypeVar("T")

TWO = (JobRequest(spec=Spec(kind="mail")), JobRequest(spec=Spec(kind="bill", lock="disk")))


def made_by(grant: Grant) -> list[str]:
    return [follow_up_id(grant.job_id, grant.fencing_token, n) for n in range(len(TWO))]


async def finish(registry: LocalRegistry, grant: Grant) -> None:
    await registry.complete(grant, Success(), op_id="op-done", follow_ups=TWO)


@pytest.mark.parametrize("late", [True, False])
def test_a_crash_between_any_two_objects_leaves_both_or_neither(late: bool) -> None:
    async def main(n: int) -> int:
        shared = SharedObjects()
        registry = shared.registry()
        grant = await lease(registry, "maker")
        crashing = CrashingObjects(shared.objects, n, late=late)
        try:
            await finish(shared.registry(crashing), grant)
        except (Crashed, Unavailable):
            assert crashing.calls >= n
        succeeded = (await registry.status("maker")).state is State.SUCCEEDED

        shared.clock.advance(61)
        await registry.expire()
        if not succeeded:
            assert await listed(registry) == ["maker"]
            [grant] = await registry.claim(["default"], owner="w-2")
            assert grant.job_id == "maker"
            await finish(registry, grant)

        runs = []
        while got := await claimed(registry):
            runs += got
        assert sorted(runs) == sorted(made_by(grant))
        shared.clock.advance(10)
        feed = await check(registry)
        assert sorted(await listed(registry)) == sorted(["maker", *made_by(grant)])
        assert {f"{job_id}/1" for job_id in made_by(grant)} <= set(feed)
        assert await shared.objects.list_keys("pending/") == []
        return crashing.calls

    at_each_step(main, more_than=20)


class UnfinishedFollowUps:
    """A process that reported its success, and died before it made a follow-up."""

    def __init__(self) -> None:
        self.shared = SharedObjects()
        self.registry = self.shared.registry()

    async def die(self, **spec: object) -> Grant:
        grant = await lease(self.registry, "maker", **spec)
        failing = FailingCreates(self.shared.objects, f"jobs/{made_by(grant)[0]}/*")
        with pytest.raises(Unavailable):
            await finish(self.shared.registry(failing), grant)
        return grant


async def test_who_looks_for_work_makes_what_a_dead_owner_was_about_to() -> None:
    unfinished = UnfinishedFollowUps()
    grant = await unfinished.die()
    mail, bill = made_by(grant)
    assert await claimed(unfinished.registry) == [bill]  # the other one was made in time
    unfinished.shared.clock.advance(9)
    assert await claimed(unfinished.registry) == []  # its owner may only be slow

    unfinished.shared.clock.advance(1)

    assert await claimed(unfinished.registry) == [mail]
    assert f"{mail}/1" in await check(unfinished.registry)


async def test_who_reads_the_feed_makes_it() -> None:
    unfinished = UnfinishedFollowUps()
    grant = await unfinished.die()
    unfinished.shared.clock.advance(10)

    await read_feed(unfinished.registry)

    assert set(made_by(grant)) < set(await listed(unfinished.registry))


async def test_who_changes_the_maker_makes_it_first() -> None:
    unfinished = UnfinishedFollowUps()
    grant = await unfinished.die(promised_outputs=1)
    maker = await unfinished.registry.status("maker")
    assert maker.state is State.VALIDATING

    judge = CompleteValidation(op_id="op-judge", actor="validator:v", found=ValidationResult(verified=1))
    store = unfinished.shared.store()
    await store.transact([Work(ById("maker"), partial(decide, judge))])

    assert set(made_by(grant)) < set(await listed(unfinished.registry))
    document = (await DocumentStore(unfinished.shared.objects).load("maker")).document
    assert document is not None
    assert document.made == ()


async def test_who_prunes_the_maker_makes_it_first() -> None:
    unfinished = UnfinishedFollowUps()
    grant = await unfinished.die()
    unfinished.shared.clock.advance(5)

    pruned = await unfinished.registry.prune(older_than=timedelta(seconds=1))

    assert pruned.jobs == 1
    assert sorted(await listed(unfinished.registry)) == sorted(made_by(grant))


async def test_a_follow_up_that_was_pruned_is_owed_no_more(shared: SharedObjects) -> None:
    """Its maker stays, and would make it again whenever it pays what it owes."""
    registry = shared.registry()
    grant = await lease(registry, "maker", promised_outputs=1)
    await finish(registry, grant)
    for made in await registry.claim(["default"], owner="w", limit=2):
        await registry.complete(made, Success())
    shared.clock.advance(5)
    pruned = await registry.prune(older_than=timedelta(seconds=1))
    document = (await DocumentStore(shared.objects).load("maker")).document

    assert pruned.jobs == 2
    assert document is not None
    assert document.made == ()
    assert await listed(registry) == ["maker"]


async def test_a_repair_and_a_slow_owner_make_it_once(shared: SharedObjects) -> None:
    """The owner sleeps before it makes a follow-up, somebody else makes it, and it runs; then it wakes."""
    registry = shared.registry()
    grant = await lease(registry, "maker")
    slow = PausedObjects(shared.objects, verb="create_if_absent")
    finishing = await slow.catch(finish(shared.registry(slow), grant))
    assert (await registry.status("maker")).state is State.SUCCEEDED
    shared.clock.advance(10)
    runs = [one.job_id for one in await registry.claim(["default"], owner="w", limit=9)]

    slow.go.set()
    await finishing

    assert sorted(runs) == sorted(made_by(grant))
    assert await claimed(registry) == []
    await check(registry)


async def test_a_document_that_cannot_be_repaired_stops_no_claim() -> None:
    unfinished = UnfinishedFollowUps()
    await unfinished.die()
    await enqueue(unfinished.registry, "other", priority=0)
    blind = BlindObjects(unfinished.shared.objects)
    registry = unfinished.shared.registry(blind)
    unfinished.shared.clock.advance(10)

    assert await claimed(registry) == ["other"]
    assert blind.calls == 1


class BlindObjects(ForwardingObjects):
    """Cannot say what is pending."""

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str, key: str) -> T:
        if key.startswith("pending/") and verb == "list_keys":
            self.calls += 1
            raise Unavailable("away")
        return await call()
