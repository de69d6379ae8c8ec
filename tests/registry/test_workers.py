"""workers: who announced itself, who has its name already, and which queues they serve."""

from datetime import timedelta

import pytest

from holdfast.core.errors import Invalid
from holdfast.core.job import Failure
from holdfast.core.retry import Retry
from holdfast.core.state import State
from holdfast.core.workers import QueueInfo, WorkerInfo
from holdfast.ports import Announced
from holdfast.registry import workers
from holdfast.testing.world import World


async def announce(world: World, name: str = "w1", instance: str = "a", **more: object) -> Announced:
    asked = {"queues": ["mail", "default"], **more}
    return await world.registry.announce(name, instance=instance, **asked)  # type: ignore[arg-type]


async def test_a_worker_is_listed_as_it_announced_itself_last(world: World) -> None:
    began = world.clock.now()
    first = await announce(world, kinds=["send:2"], slots=4, host="h", pid=7, app="shop:app", version="1")
    world.clock.advance(15)
    again = await announce(
        world, kinds=["send:2"], slots=4, busy=2, started_at=first.worker.started_at, leaving=True
    )

    assert first == Announced(
        worker=WorkerInfo(
            name="w1",
            instance="a",
            queues=("mail", "default"),
            kinds=("send:2",),
            slots=4,
            host="h",
            pid=7,
            app="shop:app",
            version="1",
            started_at=began,
            seen_at=began,
        )
    )
    assert (again.worker.started_at, again.worker.seen_at) == (began, began + timedelta(seconds=15))
    assert await world.registry.workers() == [again.worker]
    assert await world.registry.workers("mail") == [again.worker]
    assert await world.registry.workers("other") == []


async def test_an_announcement_is_no_event(world: World) -> None:
    await announce(world)

    assert (await world.registry.events()).events == ()


async def test_the_first_announcement_names_who_has_the_name_already(world: World) -> None:
    first = await announce(world)
    second = await announce(world, instance="b")
    again = await announce(world, instance="b", started_at=second.worker.started_at)
    third = await announce(world, name="w2")

    assert second.namesakes == (first.worker,)
    assert (first.namesakes, again.namesakes, third.namesakes) == ((), (), ())


async def test_a_worker_that_was_not_seen_for_a_day_is_forgotten(world: World) -> None:
    await announce(world)
    world.clock.advance(days=1, seconds=1)
    second = await announce(world, instance="b")

    assert await world.registry.workers() == [second.worker]


async def test_of_more_workers_than_a_store_keeps_the_last_seen_stay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "WORKERS_MAX", 3)
    for n in range(5):
        await announce(world, instance=str(n))
        world.clock.advance(1)

    assert [one.instance for one in await world.registry.workers()] == ["4", "3", "2"]


async def test_a_worker_cannot_have_started_after_now(world: World) -> None:
    later = world.clock.now() + timedelta(days=1)

    assert (await announce(world, started_at=later)).worker.started_at == world.clock.now()


async def test_what_cannot_be_a_worker_or_a_queue_is_refused(world: World) -> None:
    with pytest.raises(Invalid, match="at least one queue"):
        await announce(world, queues=[])
    with pytest.raises(Invalid, match=r"time zone|naive"):
        await announce(world, started_at=world.clock.now().replace(tzinfo=None))
    with pytest.raises(Invalid, match="A filter"):
        await world.registry.workers("q" * 300)


async def test_queues_have_their_jobs_and_who_serves_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "DELAYED_MAX", 2)
    began = world.clock.now()
    await world.enqueue("dead", retry=Retry(max_failures=1))
    await world.registry.complete(await world.claim(), Failure(message="no"))
    for n in range(2):
        await world.enqueue(f"ready-{n}")
    await world.enqueue("held", priority=0)
    await world.claim()
    for n in range(3):
        await world.enqueue(f"delayed-{n}", delay=timedelta(hours=1), queue="later")
    await announce(world, slots=4, busy=1)
    await announce(world, instance="b", slots=2, queues=["mail"])
    await announce(world, "w0", instance="c", queues=["gone", "mail"], stopped=True)
    world.clock.advance(20)

    assert await world.registry.queues() == [
        QueueInfo(
            queue="default",
            queued=2,
            running=1,
            dead_letters=1,
            oldest_ready_at=began,
            workers=("w1",),
            slots=4,
            busy=1,
            asked_at=began,
        ),
        QueueInfo(queue="gone", asked_at=began),
        QueueInfo(queue="later", queued=3, delayed=2, many_delayed=True),
        QueueInfo(queue="mail", workers=("w1",), slots=6, busy=1, asked_at=began),
    ]
    assert (await world.registry.status("dead")).state is State.DEAD_LETTERED
