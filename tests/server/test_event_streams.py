"""Event streams, scenarios 22 to 26: monitors that come late, come in tens, and read slowly."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from holdfast.core.job import Failure
from holdfast.core.lifecycle import Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.sdk.open import open_local
from holdfast.wire.generated.job.v1 import job_pb as pb
from tests.server.job_v1_client import JobV1Client, Monitor, alive, batch, output, outputs, pieces
from tests.server.running_server import serving
from tests.server.served_registry import ServedRegistry
from tests.server.server_process import LONG, server_process, sqlite_url, until

SLOW_EVENTS = 50_000 if LONG else 5_000
GROWTH_BYTES = 64 * 1024 * 1024
"""What a server may grow by, however slowly somebody reads and however much there is to read."""


@asynccontextmanager
async def open_clients(folder: Path) -> AsyncIterator[JobV1Client]:
    """A server in this loop, on a file."""
    registry = await open_local(sqlite_url(folder))
    async with serving(registry) as served:
        yield JobV1Client(served.url)
    await registry.close()


async def held(clients: JobV1Client) -> tuple[str, str]:
    """A job and the task token of its owner."""
    job_id = await clients.enqueue()
    return job_id, (await clients.taken()).task_token


async def test_ten_monitors_see_the_same_and_an_eleventh_waits_for_a_place(tmp_path: Path) -> None:
    """Scenario 22."""

    async with open_clients(tmp_path) as clients:
        job_id, token = await held(clients)
        await clients.publish(token, outputs(1, 50))
        monitors = [Monitor(clients, job_id) for _ in range(10)]
        await until(lambda: all(len(one.heard) == 50 for one in monitors))

        late = Monitor(clients, job_id)
        await until(lambda: bool(late.heard or late.error))
        assert late.heard == []
        assert late.error is not None
        assert late.error.code is Code.RESOURCE_EXHAUSTED

        await monitors.pop().leave()
        monitors.append(await seated(clients, job_id))
        await clients.publish(token, outputs(51, 100))
        await clients.complete(token)
        await asyncio.gather(*(one.task for one in monitors))
        assert [one.error for one in monitors] == [None] * 10
        assert [one.sequences for one in monitors] == [list(range(1, 101))] * 10


async def seated(clients: JobV1Client, job_id: str) -> Monitor:
    """A monitor that got a place, once there is one."""
    async with asyncio.timeout(30):
        while True:
            monitor = Monitor(clients, job_id)
            await until(lambda: bool(monitor.heard or monitor.error))  # noqa: B023
            if monitor.error is None:
                return monitor
            assert monitor.error.code is Code.RESOURCE_EXHAUSTED


Wish = tuple[dict[str, Any], Callable[[pb.JobEvent], bool]]


def wishes(chance: Random, last: int) -> list[Wish]:
    """What monitors ask for, and which events that is."""
    sequence = chance.randint(1, last)
    since = chance.randint(1, last)
    return [
        ({}, lambda event: True),
        ({"from_sequence": sequence}, lambda event: pieces(event)[-1] >= sequence),
        ({"from_timestamp": since}, lambda event: event.sequence >= since),
        (
            {"event_filter": [pb.EventType.HEARTBEAT]},
            lambda event: event.event_type == pb.EventType.HEARTBEAT,
        ),
        (
            {"from_sequence": sequence, "event_filter": [pb.EventType.OUTPUT_BATCH]},
            lambda event: event.event_type == pb.EventType.OUTPUT_BATCH and pieces(event)[-1] >= sequence,
        ),
    ]


def five(first: int) -> pb.JobEvent:
    return batch(first, first + 4)


KINDS: list[Callable[[int], pb.JobEvent]] = [output, output, alive, five]


def script(chance: Random, messages: int) -> list[list[pb.JobEvent]]:
    """What a worker says, message by message; each event is as many milliseconds old as its place."""
    told, next_one = [], 1
    for _ in range(messages):
        some = []
        for _ in range(chance.randint(1, 8)):
            event = chance.choice(KINDS)(next_one)
            event.timestamp = output(next_one, at_ms=next_one).timestamp
            some.append(event)
            next_one = pieces(event)[-1] + 1
        told.append(some)
    return told


@pytest.mark.parametrize("seed", range(3))
async def test_a_monitor_that_comes_late_misses_nothing_and_hears_nothing_twice(
    tmp_path: Path, seed: int
) -> None:
    """Scenario 23, with monitors that come at any moment while the job speaks."""
    chance = Random(seed)
    told = script(chance, 60)
    all_of_it = [event for some in told for event in some]
    wanted = [one for _ in range(2) for one in wishes(chance, pieces(all_of_it[-1])[-1])]

    async with open_clients(tmp_path) as clients:
        job_id, token = await held(clients)
        joins = sorted(chance.randint(0, len(told) - 1) for _ in wanted)
        monitors: list[Monitor] = []
        for place, some in enumerate(told):
            while len(monitors) < len(joins) and joins[len(monitors)] == place:
                monitors.append(Monitor(clients, job_id, **wanted[len(monitors)][0]))
                await asyncio.sleep(chance.choice([0, 0.002]))
            await clients.publish(token, some)
        await clients.complete(token)
        await asyncio.gather(*(one.task for one in monitors))

        for monitor, (fields, matches) in zip(monitors, wanted, strict=True):
            assert monitor.error is None
            start: int = fields.get("from_sequence", 0)
            expected = [n for event in all_of_it if matches(event) for n in pieces(event)]
            assert monitor.pieces == [n for n in expected if n >= start], fields


@pytest.mark.long
async def test_a_slow_monitor_gets_everything_and_slows_nobody(tmp_path: Path) -> None:
    """Scenario 24."""

    with server_process(sqlite_url(tmp_path), tmp_path) as server:
        url = server.url
        rss = server.rss
        clients, own = JobV1Client(url), JobV1Client(url)
        job_id, token = await held(clients)
        before = rss()
        fast = [Monitor(clients, job_id) for _ in range(9)]
        slow = Monitor(own, job_id, pause=0.05)
        most = 0
        for first in range(1, SLOW_EVENTS, 50):
            await clients.publish(token, outputs(first, first + 49, b"x" * 500))
            most = max(most, rss())
        published_at = time.monotonic()
        await until(lambda: all(len(one.heard) == SLOW_EVENTS for one in fast), 200)
        lag, behind = time.monotonic() - published_at, SLOW_EVENTS - len(slow.heard)
        await clients.complete(token)
        slow.pause = 0
        await asyncio.gather(slow.task, *(one.task for one in fast))
        most = max(most, rss())

        print(f"{SLOW_EVENTS} events: fast lag {lag:.2f} s, slow behind {behind}")  # noqa: T201
        print(f"RSS {before / 1e6:.0f} MB, at most {most / 1e6:.0f} MB")  # noqa: T201
        assert behind > SLOW_EVENTS / 2
        assert lag < max(30, SLOW_EVENTS / 500)
        assert all(
            (one.error, one.sequences) == (None, list(range(1, SLOW_EVENTS + 1))) for one in (*fast, slow)
        )
        assert most - before < GROWTH_BYTES


async def test_bad_sequences_are_named_and_what_was_taken_is_taken_once(tmp_path: Path) -> None:
    """Scenario 25."""

    async with open_clients(tmp_path) as clients:
        job_id, token = await held(clients)
        for numbers in ([1, 2, 2], [3, 1]):
            with pytest.raises(ConnectError) as refused:
                await clients.publish(token, [output(number) for number in numbers])
            assert refused.value.code is Code.INVALID_ARGUMENT
            assert all(str(number) in refused.value.message for number in numbers[-2:])

        accepted = outputs(1, 10, b"first")
        await clients.publish(token, accepted)
        await clients.publish(token, accepted)
        await unheard(clients, token, outputs(11, 20))
        await clients.publish(token, outputs(11, 20), outputs(21, 30))
        await clients.publish(token, [batch(31, 35)])
        await clients.publish(token, [batch(31, 35)], outputs(36, 40))
        await clients.complete(token)

        monitor = Monitor(clients, job_id)
        await monitor.task
        assert monitor.pieces == list(range(1, 41))


async def unheard(clients: JobV1Client, token: str, events: list[pb.JobEvent]) -> None:
    """Publish, and do not wait for the answer."""
    publishing = asyncio.create_task(clients.publish(token, events))
    await asyncio.sleep(0.005)
    publishing.cancel()
    await asyncio.gather(publishing, return_exceptions=True)


async def test_a_second_attempt_counts_from_one_and_both_are_kept(tmp_path: Path) -> None:
    """Scenario 26."""

    async with open_clients(tmp_path) as clients:
        job_id = await clients.enqueue()
        first = await clients.taken(visibility_timeout_seconds=1)
        await clients.publish(first.task_token, outputs(1, 3, b"one"))
        second = await clients.taken()
        assert (second.job.job_id if second.job else "", second.attempt) == (job_id, 2)
        with pytest.raises(ConnectError) as refused:
            await clients.publish(first.task_token, outputs(4, 4))
        assert refused.value.code is Code.NOT_FOUND
        await clients.publish(second.task_token, outputs(1, 2, b"two"))
        await clients.complete(second.task_token)

        everything, current = (
            Monitor(clients, job_id),
            Monitor(clients, job_id, from_sequence=2),
        )
        await asyncio.gather(everything.task, current.task)
        heard = [(one.attempt, one.sequence) for one in everything.heard]
        assert heard == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]
        assert [(one.attempt, one.sequence) for one in current.heard] == [(2, 2)]


async def test_a_monitor_that_begins_at_a_time_inside_a_batch_gets_the_rest_of_it(
    tmp_path: Path,
) -> None:
    async with open_clients(tmp_path) as clients:
        job_id, token = await held(clients)
        whole = batch(1, 5)
        told = whole.event_data.value if whole.event_data else None
        assert isinstance(told, pb.OutputBatch)
        told.first_timestamp_ms = 10_000
        for n, item in enumerate(told.outputs):
            item.timestamp_delta_ms = 100 * n
        await clients.publish(token, [whole])
        await clients.complete(token)
        starts = {9_000: 1, 10_000: 1, 10_001: 2, 10_250: 4, 10_400: 5}
        for since, first in starts.items():
            monitor = Monitor(clients, job_id, from_timestamp=since)
            await monitor.task
            assert monitor.pieces == list(range(first, 6)), since
        late = Monitor(clients, job_id, from_timestamp=10_401)
        await late.task
        assert late.pieces == []


async def test_a_job_made_again_shows_nothing_of_the_one_before(served: ServedRegistry) -> None:
    async def lives(served: ServedRegistry, *texts: bytes) -> list[bytes | None]:
        await served.enqueue(job_id="nightly")
        [grant] = await served.registry.claim(["q"], owner="w")
        events = [served.output(number, text) for number, text in enumerate(texts, 1)]
        await served.registry.publish(grant, events)
        await served.registry.complete(grant, Success())
        seen = [event async for event in served.remote.watch("nightly")]
        return [event.data for event in seen if event.sequence is not None]

    before = [b"secret %d" % number for number in range(8)]
    assert await lives(served, *before) == before
    served.clock.advance(days=2)
    assert (await served.registry.prune(older_than=timedelta(days=1))).jobs == 1

    assert await lives(served, b"new") == [b"new"]


UUID = "018f3c5e-7c1a-7e6b-9f30-2b5d0f3f8a11"


async def two_attempts(served: ServedRegistry) -> Grant:
    """A job whose first attempt said five things and failed, and whose second is under way."""
    spec = Spec(queue="q", retry=Retry(max_failures=5, backoff=timedelta()))
    asked = JobRequest(spec=spec, job_id=UUID)
    first = await served.registry.acquire(UUID, owner="w", create=asked)
    await served.registry.publish(first, [served.output(n, b"first") for n in range(1, 6)])
    await served.registry.complete(first, Failure(message="x"))
    served.clock.advance(days=1)
    [second] = await served.registry.claim(["q"], owner="w")
    return second


async def test_a_monitor_says_of_which_attempt_it_has_read_how_much(served: ServedRegistry) -> None:
    async def heard(clients: JobV1Client, **fields: Any) -> list[tuple[int, int]]:  # noqa: ANN401
        monitor = Monitor(clients, UUID, **fields)
        await monitor.task
        assert monitor.error is None
        return [(event.attempt, event.sequence) for event in monitor.heard]

    second = await two_attempts(served)
    await served.registry.publish(second, [served.output(n, b"second") for n in range(1, 8)])
    await served.registry.complete(second, Success())
    clients = served.job_v1

    rest = [(second.attempt, n) for n in range(1, 8)]
    assert await heard(clients, from_sequence=6, attempt=1) == rest
    assert await heard(clients, from_sequence=5, attempt=1) == [(1, 5), *rest]
    assert await heard(clients, from_sequence=6) == rest[5:]


async def test_a_server_that_leaves_does_not_mistake_the_attempt(served: ServedRegistry) -> None:
    """What it says is what the monitor asks next: it must pass nothing over."""
    second = await two_attempts(served)
    async with serving(served.registry) as leaving:
        monitor = Monitor(JobV1Client(leaving.url), UUID, from_sequence=6, attempt=1)
        await until(lambda: bool(leaving.server.server_state.tasks))
        leaving.app.context.stop()
        await monitor.task
    assert monitor.error is not None
    assert "from sequence 6 of attempt 1" in monitor.error.message
    await served.registry.complete(second, Success())
