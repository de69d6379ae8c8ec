"""A success and its follow-ups are many documents: whoever dies between them, both are there or neither."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar

import pytest
from cas_faults import Barren, Crashed, Mortal, Paused, Through
from cas_worlds import (
    Site,
    at_each_step,
    check,
    claimed,
    enqueue,
    in_event_loop,
    lease,
    listed,
    read_feed,
)

from holdfast.core.errors import Unavailable
from holdfast.core.lifecycle import Judge, Success, decide
from holdfast.core.naming import follow_up_id
from holdfast.core.outputs import Found
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, One, Request, Work
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas.documents import Shelf

T = TypeVar("T")

TWO = (Request(spec=Spec(kind="mail")), Request(spec=Spec(kind="bill", lock="disk")))


def made_by(grant: Grant) -> list[str]:
    return [follow_up_id(grant.job_id, grant.fencing_token, n) for n in range(len(TWO))]


async def finish(registry: LocalRegistry, grant: Grant) -> None:
    await registry.complete(grant, Success(), op_id="op-done", follow_ups=TWO)


@pytest.mark.parametrize("late", [True, False])
def test_a_crash_between_any_two_objects_leaves_both_or_neither(late: bool) -> None:
    async def main(n: int) -> int:
        site = Site()
        registry = site.registry()
        grant = await lease(registry, "maker")
        mortal = Mortal(site.objects, n, late=late)
        try:
            await finish(site.registry(mortal), grant)
        except (Crashed, Unavailable):
            assert mortal.calls >= n
        succeeded = (await registry.get("maker")).state is State.SUCCEEDED

        site.clock.advance(61)
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
        site.clock.advance(10)
        feed = await check(registry)
        assert sorted(await listed(registry)) == sorted(["maker", *made_by(grant)])
        assert {f"{job_id}/1" for job_id in made_by(grant)} <= set(feed)
        assert await site.objects.list_keys("pending/") == []
        return mortal.calls

    at_each_step(main, more_than=20)


class Stranded:
    """A process that reported its success, and died before it made a follow-up."""

    def __init__(self) -> None:
        self.site = Site()
        self.registry = self.site.registry()

    async def die(self, **spec: object) -> Grant:
        grant = await lease(self.registry, "maker", **spec)
        barren = Barren(self.site.objects, f"jobs/{made_by(grant)[0]}/*")
        with pytest.raises(Unavailable):
            await finish(self.site.registry(barren), grant)
        return grant


@in_event_loop
async def test_who_looks_for_work_makes_what_a_dead_owner_was_about_to() -> None:
    stranded = Stranded()
    grant = await stranded.die()
    mail, bill = made_by(grant)
    assert await claimed(stranded.registry) == [bill]  # the other one was made in time
    stranded.site.clock.advance(9)
    assert await claimed(stranded.registry) == []  # its owner may only be slow

    stranded.site.clock.advance(1)

    assert await claimed(stranded.registry) == [mail]
    assert f"{mail}/1" in await check(stranded.registry)


@in_event_loop
async def test_who_reads_the_feed_makes_it() -> None:
    stranded = Stranded()
    grant = await stranded.die()
    stranded.site.clock.advance(10)

    await read_feed(stranded.registry)

    assert set(made_by(grant)) < set(await listed(stranded.registry))


@in_event_loop
async def test_who_changes_the_maker_makes_it_first() -> None:
    stranded = Stranded()
    grant = await stranded.die(promised_outputs=1)
    maker = await stranded.registry.get("maker")
    assert maker.state is State.VALIDATING

    judge = Judge(op_id="op-judge", actor="validator:v", found=Found(verified=1))
    store = stranded.site.store()
    await store.transact([Work(One("maker"), partial(decide, judge))])

    assert set(made_by(grant)) < set(await listed(stranded.registry))
    document = (await Shelf(stranded.site.objects).load("maker")).document
    assert document is not None
    assert document.made == ()


@in_event_loop
async def test_who_prunes_the_maker_makes_it_first() -> None:
    stranded = Stranded()
    grant = await stranded.die()
    stranded.site.clock.advance(5)

    pruned = await stranded.registry.prune(older_than=timedelta(seconds=1))

    assert pruned.jobs == 1
    assert sorted(await listed(stranded.registry)) == sorted(made_by(grant))


@in_event_loop
async def test_a_follow_up_that_was_pruned_is_owed_no_more() -> None:
    """Its maker stays, and would make it again whenever it pays what it owes."""
    site = Site()
    registry = site.registry()
    grant = await lease(registry, "maker", promised_outputs=1)
    await finish(registry, grant)
    for made in await registry.claim(["default"], owner="w", limit=2):
        await registry.complete(made, Success())
    site.clock.advance(5)
    pruned = await registry.prune(older_than=timedelta(seconds=1))
    document = (await Shelf(site.objects).load("maker")).document

    assert pruned.jobs == 2
    assert document is not None
    assert document.made == ()
    assert await listed(registry) == ["maker"]


@in_event_loop
async def test_a_repair_and_a_slow_owner_make_it_once() -> None:
    """The owner sleeps before it makes a follow-up, somebody else makes it, and it runs; then it wakes."""
    site = Site()
    registry = site.registry()
    grant = await lease(registry, "maker")
    slow = Paused(site.objects, verb="create_if_absent")
    finishing = await slow.catch(finish(site.registry(slow), grant))
    assert (await registry.get("maker")).state is State.SUCCEEDED
    site.clock.advance(10)
    runs = [one.job_id for one in await registry.claim(["default"], owner="w", limit=9)]

    slow.go.set()
    await finishing

    assert sorted(runs) == sorted(made_by(grant))
    assert await claimed(registry) == []
    await check(registry)


@in_event_loop
async def test_a_document_that_cannot_be_repaired_stops_no_claim() -> None:
    stranded = Stranded()
    await stranded.die()
    await enqueue(stranded.registry, "other", priority=0)
    blind = Blind(stranded.site.objects)
    registry = stranded.site.registry(blind)
    stranded.site.clock.advance(10)

    assert await claimed(registry) == ["other"]
    assert blind.calls == 1


class Blind(Through):
    """Cannot say what is pending."""

    async def around(self, call: Callable[[], Awaitable[T]], *, verb: str, key: str) -> T:
        if key.startswith("pending/") and verb == "list_keys":
            self.calls += 1
            raise Unavailable("away")
        return await call()
