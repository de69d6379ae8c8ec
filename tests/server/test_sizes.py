"""Sizes of requests, responses and pages: all that is in a job or an event counts."""

from collections.abc import Sequence
from contextlib import aclosing

import pytest
from connectrpc.code import Code

from holdfast.core.access import Scope
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.server.context import ServerSettings
from holdfast.server.limits import PAGE_BYTES, RESPONSE_BYTES_MAX
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old
from tests.server.connect_client import refusal
from tests.server.served_registry import LARGE, ServedRegistry, open_served


async def test_an_answer_is_never_larger_than_it_may_be(served: ServedRegistry) -> None:
    asked = [JobRequest(spec=Spec(queue="q", payload=LARGE), job_id=f"j{n}") for n in range(50)]
    await served.registry.enqueue_many(asked, actor="user:a")
    ids = [f"j{n}" for n in range(50)]

    for some in (ids, ["j1"] * 400):
        told = await refusal(served.connect.registry.status(pb.StatusRequest(job_ids=some)))
        assert (told.code, bool(told.message)) == (Code.RESOURCE_EXHAUSTED, True)
    page = old.ListJobsRequest(queue="q", page_size=50)
    told = await refusal(served.connect.jobs.list_jobs(page))
    assert told.code in (Code.RESOURCE_EXHAUSTED, Code.INVALID_ARGUMENT)
    assert "fewer" in told.message

    jobs = await served.remote.status_many(ids)
    assert [job.job_id for job in jobs if job] == ids


async def test_a_job_named_often_is_read_once(
    monkeypatch: pytest.MonkeyPatch, served: ServedRegistry
) -> None:
    await served.enqueue(job_id="one")
    real, read = served.registry.status_many, list[str]()

    async def get_many(job_ids: Sequence[str]) -> list[Job | None]:
        read.extend(job_ids)
        return await real(job_ids)

    monkeypatch.setattr(served.registry, "status_many", get_many)
    asked = pb.StatusRequest(job_ids=["one", "none"] * 500)
    answer = await served.connect.registry.status(asked)

    assert [one.answer is not None for one in answer.answers] == [True, False] * 500
    assert sorted(read) == ["none", "one"]


async def test_how_large_a_job_is_says_nothing_to_those_who_may_not_know_of_it() -> None:
    async with open_served(ServerSettings(keys=True)) as served:
        spec = Spec(queue="secret", payload=LARGE)
        await served.registry.enqueue(JobRequest(spec=spec, job_id="large"), actor="user:a")
        eve = await served.key("eve", Scope.SUBMIT)

        asked = pb.StatusRequest(job_ids=["large"] * 400)
        answer = await eve.registry.status(asked)

        assert {one.answer is None for one in answer.answers} == {True}


async def test_what_is_sent_at_once_is_measured_with_all_that_is_in_it(
    served: ServedRegistry,
) -> None:
    labels = {f"k{n}": "v" * 250 for n in range(60)}
    asked = [JobRequest(spec=Spec(queue="q", labels=labels)) for _ in range(100)]
    assert len(await served.remote.enqueue_many(asked, actor="user:a")) == 100

    [grant] = await served.remote.claim(["q"], owner="w")
    said = [
        Event(
            WorkerEventType.CUSTOM,
            EventClass.WORKER,
            served.clock.now(),
            sequence=number,
            attributes={"text": "z" * 20_000},
        )
        for number in range(1, 101)
    ]
    assert (await served.remote.publish(grant, said)).published == 100


def said(served: ServedRegistry, sequence: int) -> Event:
    return Event(
        WorkerEventType.CUSTOM,
        EventClass.WORKER,
        served.clock.now(),
        sequence=sequence,
        attributes={"text": "z" * 50_000},
    )


async def test_what_events_say_of_themselves_counts_as_much_as_output(
    served: ServedRegistry,
) -> None:
    asked = JobRequest(spec=Spec(queue="q"), job_id="wordy")
    grant = await served.registry.acquire("wordy", owner="w", create=asked)
    for first in range(1, 201, 20):
        events = [said(served, n) for n in range(first, first + 20)]
        await served.registry.publish(grant, events)
    await served.registry.complete(grant, Success())

    stream = served.connect.registry.watch(pb.WatchRequest(job_id="wordy"))
    async with aclosing(stream) as slices:  # type: ignore[type-var]
        sizes = [len(one.to_binary()) async for one in slices]
    assert sum(sizes) > 200 * 50_000
    assert max(sizes) < PAGE_BYTES * 1.1

    log = await served.connect.registry.logs(pb.LogsRequest(job_id="wordy", limit=1000))
    assert len(log.to_binary()) <= RESPONSE_BYTES_MAX
