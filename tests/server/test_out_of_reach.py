"""What a key does not reach does not exist for it: no page, cursor, mark or refusal counts it."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest
from connectrpc.errors import ConnectError

from holdfast.core.access import Principal, Scope
from holdfast.core.spec import Spec
from holdfast.ports import EventPage, JobFilter, JobPage, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.server import event_streams
from holdfast.server.calls import current_principal
from holdfast.server.context import ServerContext, ServerSettings
from holdfast.server.verbs.queries import QueryVerbs
from holdfast.stores import filters
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import ManualClock
from holdfast.wire import requests
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from tests.server.connect_client import ConnectClient
from tests.server.keyed_server import KeyedServer
from tests.server.raw_http_client import ThreadedServer
from tests.server.rest.rest_client import RestClient

MINE, OTHERS = "a1", "b1"


async def caller(here: KeyedServer, name: str, *scopes: Scope) -> ConnectClient:
    """Somebody whose key reaches the queues a*."""
    _, text = await here.registry.create_key(name=name, actor="user:root", scopes=scopes, queues=("a*",))
    return ConnectClient(here.server.url, text)


async def job(here: KeyedServer, job_id: str, queue: str, submitter: str = "key:ana") -> None:
    asked = JobRequest(spec=Spec(queue=queue), job_id=job_id, submitted_by=submitter)
    await here.registry.enqueue(asked, actor="user:root")


async def two_queues(here: KeyedServer) -> None:
    """Three jobs of ours among twelve."""
    for n in range(12):
        await job(here, f"job-{n}", MINE if n % 4 == 2 else OTHERS)


async def pages(who: ConnectClient, queue: str | None = None) -> list[list[str]]:
    """Every page, by the ids on it."""
    found: list[list[str]] = []
    after = None
    for _ in range(20):
        asked = pb.ListJobsRequest(which=pb.JobFilter(queue=queue), limit=1, after=after)
        answer = await who.registry.list_jobs(asked)
        found.append([one.job_id for one in answer.jobs])
        if not answer.has_field("next"):
            return found
        after = answer.next
    raise AssertionError("the listing does not end")


async def test_a_page_and_its_next_know_of_nothing_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, keyed: KeyedServer
) -> None:
    await two_queues(keyed)
    ana = await caller(keyed, "ana", Scope.OBSERVE)
    bob = await caller(keyed, "bob", Scope.SUBMIT)

    assert await pages(ana, queue=OTHERS) == [[]]
    assert await pages(ana) == [["job-2"], ["job-6"], ["job-10"]]
    assert await pages(bob) == [[]]
    monkeypatch.setattr(filters, "LIST_ROWS_MAX", 1)
    assert await pages(bob) == [[]]
    assert [page for page in await pages(ana) if page] == [["job-2"], ["job-6"], ["job-10"]]


async def test_a_name_and_a_short_id_find_nothing_out_of_reach(keyed: KeyedServer) -> None:
    for queue in (MINE, OTHERS):
        asked = JobRequest(spec=Spec(queue=queue, name="nightly"), job_id=f"nightly-{queue}")
        await keyed.registry.enqueue(asked, actor="user:root")
    ana = await caller(keyed, "ana", Scope.OBSERVE)
    _, text = await keyed.registry.create_key(
        name="ben", actor="user:root", scopes=(Scope.OBSERVE,), queues=("a*",)
    )
    rest = RestClient(ThreadedServer(keyed.server, keyed.registry, asyncio.get_running_loop()), text)

    by_name, by_id = pb.JobFilter(name="nightly"), pb.JobFilter(short_id="nigh")
    for which, words in ((by_name, "name=nightly"), (by_id, "short_id=nigh")):
        told = await ana.registry.list_jobs(pb.ListJobsRequest(which=which))
        read = await asyncio.to_thread(rest.get, f"/v1/jobs?{words}")
        assert [one.job_id for one in told.jobs] == [f"nightly-{MINE}"]
        assert [one["job_id"] for one in json.loads(read.body)["jobs"]] == [f"nightly-{MINE}"]
    short = await asyncio.to_thread(rest.get, "/v1/jobs?short_id=nig")
    assert short.status == 400


class SlowRegistry(LocalRegistry):
    """A registry whose reads of much take a tenth of a second each."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryStore(clock, SystemIds()), SystemIds())
        self.clock = clock
        self.read = 0

    async def list_jobs(self, *which: JobFilter, **more: Any) -> JobPage:  # noqa: ANN401
        self.read += 1
        self.clock.advance(0.1)
        return await super().list_jobs(*which, **more)

    async def events(self, **more: Any) -> EventPage:  # noqa: ANN401
        self.read += 1
        self.clock.advance(0.1)
        return await super().events(**more)


@pytest.mark.parametrize("feed", [False, True])
async def test_what_is_out_of_reach_is_looked_through_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, feed: bool
) -> None:
    """One call does not keep the store for as long as there are pages: it ends with a cursor."""
    monkeypatch.setattr(filters, "LIST_ROWS_MAX", 1)

    registry = SlowRegistry(ManualClock())
    context = ServerContext(registry, registry.clock, SystemIds(), ServerSettings(keys=True))
    looking = QueryVerbs(context)
    for n in range(41):
        spec = Spec(queue=MINE if n == 40 else OTHERS)
        await registry.enqueue(JobRequest(spec=spec, job_id=f"job-{n}"), actor="user:root")
    current_principal.set(Principal("ana", frozenset({Scope.OBSERVE}), ("a*",), key_id="k-1"))

    async def page(after: str | None) -> tuple[list[str | None], str | None]:
        if feed:
            said = await looking.events(requests.Events(after=after, limit=1))
            return [event.job_id for event in said.events], said.cursor
        found = await looking.list_jobs(requests.ListJobs(after=after, limit=1))
        return [job.job_id for job in found.jobs], found.next

    ids, after = await page(None)
    assert (ids, registry.read) == ([], 3)
    while not ids:
        ids, after = await page(after)
    assert ids == ["job-40"]
    await context.close()


async def test_a_cursor_tells_nothing_and_is_good_for_its_key_and_its_use_alone(
    keyed: KeyedServer,
) -> None:
    await two_queues(keyed)
    ana = await caller(keyed, "ana", Scope.OBSERVE)
    eve = await caller(keyed, "eve", Scope.OBSERVE)
    first = await ana.registry.list_jobs(pb.ListJobsRequest(limit=1))
    again = await ana.registry.list_jobs(pb.ListJobsRequest(limit=1))
    tail = await ana.registry.tail(pb.TailRequest())
    asked = pb.LogsRequest(job_id="job-2")
    log = await ana.registry.logs(asked)

    cursors = [first.next, tail.cursor, log.cursor]
    assert all(len(one) > 40 for one in cursors)
    assert first.next != again.next
    for wrong in ("3", tail.cursor, log.cursor):
        assert await listed_after(ana, wrong) == "Invalid"
    assert await listed_after(eve, first.next) == "Invalid"
    assert await listed_after(ana, first.next) == "job-6"


async def listed_after(who: ConnectClient, cursor: str) -> str:
    asked = pb.ListJobsRequest(limit=1, after=cursor)
    try:
        answer = await who.registry.list_jobs(asked)
    except ConnectError as error:
        detail = error.details[0].value(pb.ErrorDetail)
        return str(detail and detail.kind)
    return str(answer.jobs[0].job_id)


async def test_the_feed_is_as_long_as_what_is_in_reach_of_it(keyed: KeyedServer) -> None:
    await two_queues(keyed)
    ana = await caller(keyed, "ana", Scope.OBSERVE)
    heard: list[list[str]] = []
    after = None
    for _ in range(4):
        asked = pb.EventsRequest(after=after, limit=1)
        answer = await ana.registry.events(asked)
        heard.append([one.job_id for one in answer.events])
        assert not any(one.has_field("log_id") for one in answer.events)
        after = answer.cursor

    assert heard == [["job-2"], ["job-6"], ["job-10"], []]


async def test_a_stream_is_silent_about_what_is_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, keyed: KeyedServer
) -> None:
    monkeypatch.setattr(event_streams, "FIRST_EVENTS", 1)  # and twice as many with every page

    for n in range(30):
        await job(keyed, f"job-{n}", OTHERS)
    await job(keyed, "mine", MINE)
    ana = await caller(keyed, "ana", Scope.OBSERVE)
    slices: Any = ana.registry.watch(pb.WatchRequest())
    async with aclosing(slices):
        first = await anext(slices)
        second = await anext(slices)

    assert list(first.events) == []
    assert [event.job_id for event in second.events] == ["mine"]


async def test_over_rest_a_reader_goes_on_from_a_sealed_place(keyed: KeyedServer) -> None:
    await two_queues(keyed)
    _, text = await keyed.registry.create_key(
        name="ana", actor="user:root", scopes=(Scope.OBSERVE,), queues=("a*",)
    )
    rest = RestClient(ThreadedServer(keyed.server, keyed.registry, asyncio.get_running_loop()), text)

    async def get(path: str) -> Any:  # noqa: ANN401
        return json.loads((await asyncio.to_thread(rest.get, path)).body)

    tail = (await get("/v1/events/tail"))["cursor"]
    await job(keyed, "job-20", MINE)
    heard = await get(f"/v1/events?after={tail}")
    made_up = {"last-event-id": "0"}
    refused = await asyncio.to_thread(rest.ask, "GET", "/v1/events/stream", headers=made_up)
    first = await get("/v1/jobs?limit=3")
    second = await get(f"/v1/jobs?limit=3&after={first['next']}")

    assert [one["job_id"] for one in heard["events"]] == ["job-20"]
    assert refused.status == 422
    assert [one["job_id"] for one in second["jobs"]] == ["job-20"]


async def test_a_history_is_read_on_from_a_sealed_place_of_that_history_alone(
    keyed: KeyedServer,
) -> None:
    await two_queues(keyed)
    for _ in range(3):
        grant = await keyed.registry.acquire("job-2", owner="worker-1")
        await keyed.registry.release(grant)
    ana = await caller(keyed, "ana", Scope.OBSERVE)
    rest = RestClient(
        ThreadedServer(keyed.server, keyed.registry, asyncio.get_running_loop()),
        ana.headers["authorization"][7:],
    )

    async def page(job_id: str, after: str | None) -> pb.HistoryResponse:
        asked = pb.HistoryRequest(job_id=job_id, limit=2, after=after)
        return await ana.registry.history(asked)

    first = await page("job-2", None)
    second = await page("job-2", first.next)
    path = f"/v1/jobs/job-2/history?limit=1000&after={second.next}"
    rest_page = json.loads((await asyncio.to_thread(rest.get, path)).body)
    raw = await asyncio.to_thread(rest.get, "/v1/jobs/job-2/history?after=2")

    offsets = [event.offset for event in (*first.events, *second.events)]
    offsets += [event["offset"] for event in rest_page["events"]]
    assert offsets == [1, 2, 3, 4, 5, 6, 7]
    assert not rest_page.get("next")
    assert len(first.next) > 40
    assert not any(event.has_field("log_id") for event in first.events)
    assert raw.status == 422
    for job_id, wrong in (("job-6", first.next), ("job-2", "2")):
        with pytest.raises(ConnectError):
            await page(job_id, wrong)


async def test_a_mark_counts_no_commits(keyed: KeyedServer) -> None:
    ana = await caller(keyed, "ana", Scope.OBSERVE)

    async def mark() -> str:
        asked = pb.ChangesRequest()
        return (await ana.registry.changes(asked)).mark

    before = await mark()
    assert await mark() == before
    await job(keyed, "job-1", OTHERS)
    after = await mark()

    assert after != before
    assert ":" not in before + after


async def test_an_id_that_is_taken_out_of_reach_is_refused_without_a_word_about_its_job(
    keyed: KeyedServer,
) -> None:
    await job(keyed, "a1:job-1", OTHERS, "key:bob")
    await keyed.registry.cancel("a1:job-1", actor="user:root")
    ana = await caller(keyed, "ana", Scope.SUBMIT)

    spec = pb.Spec(kind="command", queue=MINE, payload="{}")
    asked = pb.EnqueueRequest(requests=[pb.JobRequest(spec=spec, job_id="a1:job-1")])
    with pytest.raises(ConnectError) as caught:
        await ana.registry.enqueue(asked)

    detail = caught.value.details[0].value(pb.ErrorDetail)
    assert detail is not None
    assert detail.kind == "Conflict"
    assert not detail.has_field("version")
    assert "cancelled" not in detail.message


async def test_why_counts_the_others_for_those_alone_who_may_count_them(keyed: KeyedServer) -> None:
    await job(keyed, "mine", MINE, "key:bob")
    for n in range(4):
        await job(keyed, f"job-{n}", MINE, "key:eve")
    ana = await caller(keyed, "ana", Scope.OBSERVE)
    bob = await caller(keyed, "bob", Scope.SUBMIT)

    async def why(who: ConnectClient) -> str:
        asked = pb.WhyRequest(job_id="mine")
        return str((await who.registry.why(asked)).text)

    assert "beside 4 other jobs" in await why(ana)
    assert "beside" not in await why(bob)
