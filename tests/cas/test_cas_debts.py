"""What a writer owes to another job when it dies is told by whoever comes next, and told once."""

from contextlib import nullcontext
from random import Random

import pytest
from cas_faults import Barren
from cas_worlds import ACTOR, Site, claim, enqueue, in_event_loop, read_feed, read_log

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Unavailable
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas import dispatch
from holdfast.testing.simulation.bugs import BUGS
from holdfast.testing.simulation.object_bugs import HASTE
from holdfast.testing.simulation.plan import plan_of
from holdfast.testing.simulation.reckoning import reckon
from holdfast.testing.simulation.run import simulate
from holdfast.testing.simulation.stores import Bucket
from holdfast.testing.simulation.witness import Witness


class Debtor:
    """A process made a replay of job-1, and died before it told the original."""

    def __init__(self) -> None:
        self.site = Site()
        self.witness = Witness(Random(0), lambda: 0.0)
        self.site.objects = Bucket(self.witness)

    async def replay(self) -> LocalRegistry:
        registry = self.site.registry()
        await enqueue(registry, "job-1")
        await registry.cancel("job-1", actor=ACTOR)
        dying = self.site.registry(Barren(self.site.objects, "events/*"))
        with pytest.raises(Unavailable):
            await dying.replay("job-1", actor=ACTOR, replay_id="again")
        assert await links(registry) == []
        return registry


async def links(registry: LocalRegistry) -> list[object]:
    log = await read_log(registry, "job-1")
    return [e.attributes["replayed_as"] for e in log if e.event_type == EventType.REPLAYED]


@in_event_loop
async def test_who_reads_the_feed_tells_an_original_of_its_replay() -> None:
    debtor = Debtor()
    registry = await debtor.replay()
    debtor.site.clock.advance(9)
    await read_feed(registry)
    assert await links(registry) == []  # its maker may only be slow

    debtor.site.clock.advance(1)
    feed = await read_feed(registry)
    await read_feed(registry)

    [replayed] = await links(registry)
    assert f"job-1/replayed/{replayed}" in feed


@in_event_loop
async def test_who_changes_a_replay_tells_its_original_first() -> None:
    debtor = Debtor()
    registry = await debtor.replay()

    grant = await claim(registry)

    assert await links(registry) == [grant.job_id]


@in_event_loop
async def test_who_asks_for_a_replay_again_tells_its_original() -> None:
    debtor = Debtor()
    registry = await debtor.replay()

    again = await registry.replay("job-1", actor=ACTOR, replay_id="again")

    assert await links(registry) == [again.job_id]


@pytest.mark.parametrize(("bug", "found"), [(None, None), ("debt_forgotten", "I28")])
def test_the_simulation_asks_for_a_link_when_somebody_has_come_by(
    bug: str | None, found: str | None
) -> None:
    """At the end nobody is left who would change a replay that nobody may claim."""
    debtor = Debtor()

    @in_event_loop
    async def main() -> None:
        registry = await debtor.replay()
        debtor.site.clock.advance(40)
        await reckon(registry, debtor.witness, [])

    with BUGS[bug].plant() if bug else nullcontext():
        main()

    violation = debtor.witness.violation
    assert (violation.invariant if violation else None) == found


def test_a_hasty_repair_does_no_harm_since_it_bars_the_slow_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "REPAIR_AFTER", HASTE)
    barred = 0
    for seed in range(10):
        result = simulate(plan_of(seed, "objects"))
        assert result.violation is None
        barred += result.failpoints.get("cas.repair_barred", 0)
    assert barred
