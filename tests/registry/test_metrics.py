"""The metrics of a registry: their names and labels, and what each is the number of."""

from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.core.errors import Unavailable
from holdfast.core.lifecycle import Success
from holdfast.ports import Census
from holdfast.registry import metrics, prometheus_text
from holdfast.registry.local import LocalRegistry
from holdfast.registry.metrics import metric_families, read_census
from holdfast.stores.memory import MemoryStore
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.testing.world import LEASE, TRANSIENT, open_world
from tests.conftest import memory_store

Samples = dict[tuple[str, ...], float]
"""By name, and the values of its labels in the order of their names."""


async def scrape(registry: LocalRegistry) -> Samples:
    text = "".join(metric_families(registry, await read_census(registry)))
    return {
        (
            sample.name.removeprefix("holdfast_"),
            *(sample.labels[k] for k in sorted(sample.labels)),
        ): (sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_what_was_committed_is_told_by_kind(tmp_path: Path) -> None:
    async with open_world(memory_store, tmp_path) as world:
        await world.enqueue("good", kind="good")
        world.clock.advance(2)
        grant = await world.registry.acquire("good", owner="w")
        world.clock.advance(3)
        await world.registry.heartbeat(grant)
        await world.registry.complete(grant, Success())
        for kind in ("again", "lost"):
            await world.enqueue(kind, kind=kind)
        again = await world.registry.acquire("again", owner="w")
        await world.registry.complete(again, TRANSIENT)
        await world.registry.acquire("lost", owner="w", lease=LEASE)
        await world.lapse()

        found = await scrape(world.local)

        for kind in ("good", "again", "lost"):
            assert found["claims_total", kind] == found["job_seconds_count", kind] == 1
        assert found["lease_renewals_total", "good"] == 1
        assert (found["job_wait_seconds_sum", "good"], found["job_seconds_sum", "good"]) == (2, 3)
        assert found["job_latency_seconds_sum", "good"] == 5
        assert (found["retries_total", "again"], found["retries_total", "lost"]) == (1, 1)
        assert found["lease_expiries_total", "lost"] == found["failures_total", "lost"] == 1
        assert found["events_total", "job_claimed"] == 3
        assert found["job_events_total", "good", "job_succeeded"] == 1
        assert found["store_up",] == 1


async def test_queues_beyond_the_limit_are_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "QUEUES_MAX", 1)
    async with open_world(memory_store, tmp_path) as world:
        for queue in ("busy", "busy", "calm"):
            await world.enqueue(queue=queue)
        await world.enqueue("over", queue="over")
        await world.registry.cancel("over", actor="user:ana")
        await world.enqueue(queue="later", delay=timedelta(hours=1))
        world.clock.advance(7)

        found = await scrape(world.local)

        assert found["queue_jobs", "busy", "queued"] == 2
        assert found["queue_jobs", "other", "queued"] == 2
        assert found["queue_jobs", "other", "cancelled"] == 1
        assert found["queue_oldest_seconds", "busy"] == 7


async def test_a_store_that_is_away_is_told_and_what_was_counted_as_well(tmp_path: Path) -> None:
    class Away(MemoryStore):
        async def census(self, limit: int) -> Census:
            raise Unavailable("The store is away.")

    async def away(_: Path, clock: ManualClock, ids: CountingIds) -> MemoryStore:
        return Away(clock, ids)

    async with open_world(away, tmp_path) as world:  # type: ignore[arg-type]
        await world.enqueue(kind="good")

        found = await scrape(world.local)

        assert found["store_up",] == 0
        assert found["job_events_total", "good", "job_queued"] == 1
        assert not any(name == "queue_jobs" for name, *_ in found)


def test_any_label_is_read_as_it_was_written() -> None:
    value = 'a"b\\c\nd%s'
    text = prometheus_text.gauge("x", "X.", ["of"], [((value,), 1)])

    [family] = text_string_to_metric_families(text)

    assert family.samples[0].labels == {"of": value}


def test_a_process_tells_of_its_memory() -> None:
    assert "process_resident_memory_bytes" in prometheus_text.process_metrics()
