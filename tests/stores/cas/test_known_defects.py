"""What the document store does not keep yet. Each test is a promise that it breaks; the day it keeps
the promise, the test fails until its mark is taken away."""

from datetime import timedelta

import pytest

from holdfast.core.errors import Fenced
from holdfast.core.lifecycle import Success
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas.store import CasStore
from holdfast.testing.fakes import ManualClock
from tests.stores.cas.shared_objects import ACTOR, SharedObjects, claim, enqueue, lease, request

LEASE = timedelta(seconds=60)
"""How long a job's lease lasts unless its spec says otherwise."""


async def read_on(registry: LocalRegistry, cursor: str | None) -> tuple[list[str], str | None]:
    """The events of the feed after a cursor, and the cursor after them."""
    seen: list[str] = []
    while (page := await registry.events(after=cursor, limit=500)).events:
        seen += [event.event_id for event in page.events]
        cursor = page.cursor
    return seen, cursor


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="A process that slept through a prune writes its next event where a pruned one was; a"
    " reader of the feed that is already past that place never sees it. `history` and `log` do.",
)
async def test_an_event_of_a_process_that_slept_through_a_prune_is_in_the_feed(
    shared: SharedObjects,
) -> None:
    sleeper, busy = shared.registry(), shared.registry()
    await enqueue(sleeper, "job-0")
    for n in range(1, 6):
        await enqueue(busy, f"job-{n}")
    for grant in await busy.claim(["default"], owner="w", limit=6):
        await busy.complete(grant, Success())
    await enqueue(busy, "kept")
    _, cursor = await read_on(busy, None)
    shared.clock.advance(10)
    assert (await busy.prune(older_than=timedelta(0))).jobs == 6

    await enqueue(sleeper, "late")

    assert (await busy.status("late")).state == "queued"
    seen, _ = await read_on(busy, cursor)
    assert seen == ["late/1"]


def host(shared: SharedObjects, behind: timedelta) -> LocalRegistry:
    """A process on a host whose clock is so far behind."""
    clock = ManualClock(shared.clock.now() - behind)
    return LocalRegistry(CasStore(shared.objects, clock, shared.ids), shared.ids)


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="Each process judges leases by the clock of its own host: one that is behind by more than a"
    " lease loses its job to the next claim at once. Keep the clocks of all hosts together.",
)
async def test_a_lease_that_a_slow_host_has_just_taken_is_not_taken_away(
    shared: SharedObjects,
) -> None:
    slow, right = host(shared, behind=1.5 * LEASE), host(shared, behind=timedelta(0))
    grant = await lease(slow, "job-1")

    stolen = await right.claim(["default"], owner="right")

    assert stolen == []
    assert (await slow.complete(grant, Success())).state == "succeeded"


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="A job is ready by the clock of the host that made it: a host that is behind does not see"
    " it until its own clock has come that far. Keep the clocks of all hosts together.",
)
async def test_a_slow_host_can_claim_a_job_that_was_just_made(shared: SharedObjects) -> None:
    slow, right = host(shared, behind=1.5 * LEASE), host(shared, behind=timedelta(0))
    await enqueue(right, "job-1")

    grants = await slow.claim(["default"], owner="slow")

    assert [grant.job_id for grant in grants] == ["job-1"]


@pytest.mark.xfail(
    strict=True,
    raises=pytest.fail.Exception,
    reason="Tokens of a job whose id was pruned start again at 1, so that an owner of the forgotten job"
    " may complete the new one (decision 10). Do not reuse the id of a pruned job.",
)
async def test_an_owner_of_a_forgotten_job_cannot_complete_its_namesake(
    shared: SharedObjects,
) -> None:
    registry = shared.registry()
    zombie = await lease(registry, "job-1")
    await registry.complete(zombie, Success())
    shared.clock.advance(10)
    assert (await registry.prune(older_than=timedelta(0))).jobs == 1
    await registry.enqueue(request("job-1"), actor=ACTOR)
    owner = await claim(registry)

    with pytest.raises(Fenced):
        await registry.complete(zombie, Success())

    assert owner.fencing_token > zombie.fencing_token
