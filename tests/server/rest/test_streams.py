"""Logs as server-sent events: whole, in order, and the same however often the connection is cut."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from http.client import HTTPConnection
from typing import Any

import pytest

from holdfast.core.access import Scope
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.server import event_streams
from holdfast.server.context import ServerSettings
from holdfast.server.limits import STREAMS_PER_JOB_MAX
from holdfast.server.rest.streams import RECONNECT_MS
from holdfast.server.verbs import queries
from holdfast.server.verbs.queries import QueryVerbs
from holdfast.wire import requests
from holdfast.wire.responses import BatchResponse
from tests.server.programs import PATIENCE_SECONDS, environment, until
from tests.server.raw_http_client import ThreadedServer, threaded_server
from tests.server.rest.log_stream import (
    claimed,
    complete,
    event_ids,
    feed_ids,
    logged_ids,
    path_of,
    publish_output,
    read_events,
)
from tests.server.rest.rest_client import RestClient, StreamEvent, problem, result_of

DAY = timedelta(days=1)
SAID = 56
"""So much is said about a job that it does not fit into the first slices of its log."""


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with threaded_server() as one:
        yield one


@pytest.fixture(scope="module")
def still() -> Iterator[ThreadedServer]:
    """A server that has the log of one job, which ended, and no other."""
    with threaded_server() as one:
        yield one


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams look again, and say that they are alive, all the time."""
    monkeypatch.setattr(queries, "ALIVE_SECONDS", 0.0)
    monkeypatch.setattr(event_streams, "POLL_SECONDS", 0.02)


@pytest.fixture(scope="module")
def ended(still: ThreadedServer) -> Grant:
    grant = claimed(still)
    for first in range(1, SAID, 8):
        publish_output(still, grant, first, first + 7)
    complete(still, grant)
    return grant


def test_a_stream_is_the_log_to_its_end(still: ThreadedServer, ended: Grant) -> None:
    with RestClient(still).stream(path_of(ended)) as stream:
        first, *told, last = stream
    log = result_of(RestClient(still).get(f"/v1/jobs/{ended.job_id}/logs"))

    assert (stream.status, stream.kind.partition(";")[0]) == (200, "text/event-stream")
    assert first.retry == str(RECONNECT_MS)
    assert (last.name, last.id) == ("stream-end", "")
    assert len(told) > SAID
    assert [one.json() for one in told] == log["events"]
    assert [one.name for one in told] == [one["event_type"] for one in log["events"]]
    assert len({one.id for one in told}) == len(told)


def test_a_line_that_is_cut_anywhere_goes_on_where_it_was(still: ThreadedServer, ended: Grant) -> None:
    """Behind every event, within a slice and between two; and what was all is not told again."""
    rest, everything = RestClient(still), logged_ids(still, ended)
    with rest.stream(path_of(ended)) as stream:
        told = list(stream.events())

    for place, one in enumerate(told[:-1], 1):
        with rest.stream(path_of(ended), last=one.id) as stream:
            assert event_ids(list(stream.events())) == everything[place:], one.id
    assert rest.get(path_of(ended), last_event_id=told[-1].id).status == 204
    assert rest.get(f"{path_of(ended)}?after={told[-1].id}").status == 204


@pytest.mark.parametrize("piece", [1, 3, 17, 40])
@pytest.mark.parametrize("of", ["job", "all"])
def test_a_line_that_is_cut_again_and_again_tells_everything_once(
    still: ThreadedServer, ended: Grant, piece: int, of: str
) -> None:
    rest = RestClient(still)
    path = path_of(ended) if of == "job" else "/v1/events/stream"
    everything = logged_ids(still, ended) if of == "job" else feed_ids(still)
    heard: list[StreamEvent] = []
    while len(heard) < len(everything):
        with rest.stream(path, last=heard[-1].id if heard else None) as stream:
            heard += read_events(stream, min(piece, len(everything) - len(heard)))

    assert event_ids(heard) == everything


def test_the_feed_goes_on_behind_every_event(still: ThreadedServer, ended: Grant) -> None:
    rest, everything = RestClient(still), feed_ids(still)
    with rest.stream("/v1/events/stream") as stream:
        told = read_events(stream, len(everything))

    assert event_ids(told) == everything
    for place, one in enumerate(told[:-1], 1):
        with rest.stream("/v1/events/stream", last=one.id) as stream:
            assert event_ids(read_events(stream, len(everything) - place)) == everything[place:]


@pytest.mark.parametrize("gone_too", [False, True])
def test_what_is_pruned_while_a_line_is_cut_hides_nothing_that_follows(
    gone_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places are not counted in what is left: they would point too far."""
    monkeypatch.setattr(event_streams, "PAGES_KEPT_SECONDS", 0.0)
    with threaded_server() as server:
        rest, old, new = RestClient(server), claimed(server), claimed(server)
        publish_output(server, old, 1, 4)
        publish_output(server, new, 1, 4)
        last = f"{old.job_id}/1.1.4" if gone_too else f"{new.job_id}/1.1.1"
        with rest.stream("/v1/events/stream") as stream:
            told = read_events(stream, feed_ids(server).index(last) + 1)
        complete(server, old)
        server.do(server.registry.prune(older_than=timedelta(0), output_older_than=DAY))
        left = feed_ids(server)
        with rest.stream("/v1/events/stream", last=told[-1].id) as stream:
            heard = event_ids(read_events(stream, len(left) - (0 if gone_too else left.index(last) + 1)))

        assert event_ids(told)[-1] == last
        assert heard == (left if gone_too else left[left.index(last) + 1 :])


def test_who_sees_some_of_the_feed_is_told_that_once_however_it_is_cut() -> None:
    """What is not for a reader takes no part in the count of what has come."""
    with threaded_server(ServerSettings(keys=True)) as server:
        made = server.registry.create_key(
            name="ana", scopes=(Scope.OBSERVE,), queues=("mine",), actor="user:root"
        )
        rest, mine = RestClient(server, server.do(made)[1]), list[str]()
        for number in range(90):
            spec = Spec(kind="report", queue="mine" if number % 3 else "other")
            job = server.do(server.registry.enqueue(JobRequest(spec=spec), actor="user:ana"))
            mine += [f"{job.job_id}/1"] if number % 3 else []
        with rest.stream("/v1/events/stream") as stream:
            told = read_events(stream, len(mine))

        assert event_ids(told) == mine
        for place, one in enumerate(told[:-1], 1):
            with rest.stream("/v1/events/stream", last=one.id) as stream:
                assert event_ids(read_events(stream, len(mine) - place)) == mine[place:], one.id


def test_history_goes_over_into_what_happens_without_a_seam(server: ThreadedServer) -> None:
    grant = claimed(server)
    publish_output(server, grant, 1, 20)

    def work() -> None:
        for number in range(21, 61):
            publish_output(server, grant, number, number)
        complete(server, grant)

    with ExitStack() as stack:
        early = [stack.enter_context(RestClient(server).stream(path_of(grant))) for _ in range(2)]
        worker = threading.Thread(target=work)
        worker.start()
        heard = read_events(early[0], 30)
        with RestClient(server).stream(path_of(grant), last=heard[-1].id) as late:
            heard += late.events()
        other = list(early[1].events())
        worker.join(PATIENCE_SECONDS)

    assert event_ids(heard) == event_ids(other) == logged_ids(server, grant)


def test_what_comes_while_a_reader_returns_is_told(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that ends just then says so: `nothing more` is the answer only when all was read."""
    grant, look = claimed(server), QueryVerbs.status
    with RestClient(server).stream(path_of(grant)) as stream:
        told = read_events(stream, 2)

    async def ends_first(self: QueryVerbs, ask: requests.Status) -> BatchResponse:
        await server.registry.complete(grant, Success(), op_id="just-then")
        return await look(self, ask)

    monkeypatch.setattr(QueryVerbs, "status", ends_first)
    with RestClient(server).stream(path_of(grant), last=told[-1].id) as stream:
        assert [one.name for one in stream.events()][-1] == "job_succeeded"


def test_a_job_has_ten_streams_and_no_eleventh(server: ThreadedServer) -> None:
    """Scenario 22."""
    rest, grant = RestClient(server), claimed(server)
    with ExitStack() as stack:
        for _ in range(STREAMS_PER_JOB_MAX):
            read_events(stack.enter_context(rest.stream(path_of(grant))), 1)

        refused = rest.get(path_of(grant))
        problem(refused, 429, f"{STREAMS_PER_JOB_MAX} streams")
        assert refused.headers["retry-after"] == "1"

    def free() -> bool | None:
        return rest.ask("HEAD", path_of(grant)).status == 200 or None

    until(free, "a place to be free again")
    complete(server, grant)


def test_a_head_takes_no_place(server: ThreadedServer) -> None:
    grant = claimed(server)
    with ExitStack() as stack:
        for _ in range(STREAMS_PER_JOB_MAX):
            line = HTTPConnection(*server.address, timeout=PATIENCE_SECONDS)
            stack.callback(line.close)
            line.request("HEAD", path_of(grant))
            answer = line.getresponse()
            assert (answer.status, answer.read()) == (200, b"")
            assert answer.getheader("content-type", "").startswith("text/event-stream")
        with RestClient(server).stream(path_of(grant)) as stream:
            assert stream.status == 200


@pytest.mark.usefixtures("impatient")
def test_a_stream_with_nothing_to_say_says_that_it_is_alive(server: ThreadedServer) -> None:
    grant = claimed(server)
    with RestClient(server).stream(path_of(grant)) as stream:
        comments = 0
        for one in stream:
            comments += one.comment == "alive"
            if comments == 3:
                break

    assert comments == 3


@pytest.mark.usefixtures("impatient")
def test_streams_end_with_their_key_and_with_their_server() -> None:
    with threaded_server(ServerSettings(keys=True)) as server:

        def key(name: str, *scopes: Scope) -> tuple[str, RestClient]:
            made = server.registry.create_key(
                name=name, scopes=scopes, life=timedelta(days=1), actor="user:root"
            )
            kept, text = server.do(made)
            return kept.key_id, RestClient(server, text)

        keeper, (revoked, ana), (_, bob) = (
            key("root", *Scope)[1],
            key("ana", *Scope),
            key("bob", *Scope),
        )
        path = path_of(claimed(server))
        with ana.stream(path) as one, ana.stream("/v1/events/stream") as all_of_it:
            read_events(one, 1)
            read_events(all_of_it, 1)
            result_of(keeper.post(f"/v1/keys/{revoked}/revoke"))
            for stream in (one, all_of_it):
                *_, last = stream
                assert last.name == "stream-refused"
                assert last.json()["status"] == 403
                assert "revoked" in last.json()["detail"]
        problem(ana.get(path), 401)
        with bob.stream(path) as one, bob.stream("/v1/events/stream") as all_of_it:
            read_events(one, 1)
            read_events(all_of_it, 1)
            server.loop.call_soon_threadsafe(server.served.app.context.stop)
            for stream in (one, all_of_it):
                assert {told.name for told in stream} & {"stream-end", "stream-refused"} == set()


def test_who_does_not_read_slows_nobody_and_gets_everything(server: ThreadedServer) -> None:
    """Scenario 24."""
    grant, block = claimed(server), b"x" * 50_000
    with (
        RestClient(server).stream(path_of(grant)) as slow,
        RestClient(server).stream(path_of(grant)) as fast,
    ):
        read_events(slow, 1)
        for first in range(1, 200, 4):
            publish_output(server, grant, first, first + 3, block)
        complete(server, grant)
        quick = list(fast.events())
        assert result_of(RestClient(server).get(f"/v1/jobs/{grant.job_id}"))["state"] == "succeeded"
        late = list(slow.events())

    assert len(quick) == 200 + 4
    assert event_ids(quick)[1:] == event_ids(late)


def test_curl_shows_a_stream_as_it_comes(server: ThreadedServer) -> None:
    grant = claimed(server)
    url = f"{server.served.url}{path_of(grant)}"
    words = ["curl", "--silent", "--no-buffer", "--max-time", str(PATIENCE_SECONDS), url]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        lines = iter(curl.stdout)
        heard = [next(line for line in lines if "job_claimed" in line)]
        publish_output(server, grant, 1, 1)
        heard += [next(line for line in lines if line.startswith("event: output"))]
        data = next(line for line in lines if line.startswith("data: "))
        complete(server, grant)
        rest = list(lines)

    told: dict[str, Any] = json.loads(data.removeprefix("data: "))
    assert curl.returncode == 0
    assert told["sequence"] == 1
    assert "event: stream-end\n" in rest


@pytest.mark.parametrize("last", ["nope", "1+x", "+", "9" * 150, "1 1", "é", "1.5+2", "-1"])
def test_an_id_that_no_event_has_is_refused(still: ThreadedServer, ended: Grant, last: str) -> None:
    rest = RestClient(still)
    for path in (path_of(ended), "/v1/events/stream"):
        answer = rest.ask("GET", path, headers={"last-event-id": last.encode().decode("latin-1")})
        problem(answer, 422, "cursor")
