"""What a writer owes to another job when it dies is told by whoever comes next, and told once."""

from contextlib import nullcontext
from random import Random

import pytest

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Unavailable
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas import outbox
from holdfast.testing.simulation.bugs import BUGS
from holdfast.testing.simulation.final_checks import check_final_state
from holdfast.testing.simulation.invariant_checker import InvariantChecker
from holdfast.testing.simulation.object_bugs import HASTE
from holdfast.testing.simulation.plan import plan_of
from holdfast.testing.simulation.run import simulate
from holdfast.testing.simulation.stores import Bucket
from tests.stores.cas.faulty_objects import FailingCreates
from tests.stores.cas.shared_objects import (
    ACTOR,
    SharedObjects,
    claim,
    enqueue,
    read_feed,
    read_log,
)


class UnfinishedReplay:
    """A process made a replay of job-1, and died before it told the original."""

    def __init__(self) -> None:
        self.shared = SharedObjects()
        self.checker = InvariantChecker(Random(0), lambda: 0.0)
        self.shared.objects = Bucket(self.checker)

    async def replay(self) -> LocalRegistry:
        registry = self.shared.registry()
        await enqueue(registry, "job-1")
        await registry.cancel("job-1", actor=ACTOR)
        dying = self.shared.registry(FailingCreates(self.shared.objects, "events/*"))
        with pytest.raises(Unavailable):
            await dying.replay("job-1", actor=ACTOR, replay_id="again")
        assert await links(registry) == []
        return registry


async def links(registry: LocalRegistry) -> list[object]:
    log = await read_log(registry, "job-1")
    return [e.attributes["replayed_as"] for e in log if e.event_type == EventType.REPLAYED]


async def test_who_reads_the_feed_tells_an_original_of_its_replay() -> None:
    unfinished = UnfinishedReplay()
    registry = await unfinished.replay()
    unfinished.shared.clock.advance(9)
    await read_feed(registry)
    assert await links(registry) == []  # its maker may only be slow

    unfinished.shared.clock.advance(1)
    feed = await read_feed(registry)
    await read_feed(registry)

    [replayed] = await links(registry)
    assert f"job-1/replayed/{replayed}" in feed


async def test_who_changes_a_replay_tells_its_original_first() -> None:
    unfinished = UnfinishedReplay()
    registry = await unfinished.replay()

    grant = await claim(registry)

    assert await links(registry) == [grant.job_id]


async def test_who_asks_for_a_replay_again_tells_its_original() -> None:
    unfinished = UnfinishedReplay()
    registry = await unfinished.replay()

    again = await registry.replay("job-1", actor=ACTOR, replay_id="again")

    assert await links(registry) == [again.job_id]


@pytest.mark.parametrize(("bug", "found"), [(None, None), ("pending_facts_dropped", "I28")])
async def test_the_simulation_asks_for_a_link_when_somebody_has_come_by(
    bug: str | None, found: str | None
) -> None:
    """At the end nobody is left who would change a replay that nobody may claim."""
    unfinished = UnfinishedReplay()

    with BUGS[bug].plant() if bug else nullcontext():
        registry = await unfinished.replay()
        unfinished.shared.clock.advance(40)
        await check_final_state(registry, unfinished.checker, [])

    violation = unfinished.checker.violation
    assert (violation.invariant if violation else None) == found


def test_a_hasty_repair_does_no_harm_since_it_bars_the_slow_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "REPAIR_AFTER", HASTE)
    barred = 0
    for seed in range(10):
        result = simulate(plan_of(seed, "objects"))
        assert result.violation is None
        barred += result.failpoints.get("cas.repair_closed", 0)
    assert barred
