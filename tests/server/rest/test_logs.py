"""Logs as text: what `curl -H 'Accept: text/plain'` gets, and which part of the output."""

from collections.abc import Iterator

import pytest

from holdfast.core.access import Scope
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.server.context import ServerSettings
from holdfast.server.rest.logs import LogText, prefers_text
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemIds
from holdfast.testing.fakes import EPOCH, ManualClock
from tests.server.raw_http_client import ThreadedServer, threaded_server
from tests.server.rest.rest_client import RestClient, problem, result_of

TEXT = "text/plain"
CLOCK = ManualClock()


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    """A server with one job, tried twice: its first attempt wrote two lines and a half, its second two."""
    with threaded_server(ServerSettings(poll_seconds=0.0), store=MemoryStore(CLOCK, SystemIds())) as server:
        server.do(_fill(server))
        yield server


async def _fill(server: ThreadedServer) -> None:
    registry = server.registry
    spec = Spec(retry=Retry(max_failures=2))
    await registry.enqueue(JobRequest(spec=spec, job_id="job-1"), actor="user:ana")
    for lines in ([b"one\ntwo\n", b"th"], [b"four\n", b"five \xc3\xa9\n"]):
        grant = await registry.acquire("job-1", owner="w2")
        for n, data in enumerate(lines, 1):
            await registry.publish(grant, [_output(n, data)])
            CLOCK.advance(1)
        await registry.complete(grant, Failure(message="no") if n == 2 and data == b"th" else Success())
        CLOCK.advance(60)


def _output(sequence: int, data: bytes, stream: str = "stdout") -> Event:
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=CLOCK.now(),
        sequence=sequence,
        stream=stream,
        data=data,
    )


def text(server: ThreadedServer, query: str = "") -> str:
    response = RestClient(server).get(f"/v1/jobs/job-1/logs{query}", accept=TEXT)
    assert response.status == 200, response.body
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.headers["x-content-type-options"] == "nosniff"
    return response.body.decode()


def test_the_whole_log_is_text_with_a_seam_between_attempts(server: ThreadedServer) -> None:
    seam = "── attempt 2 of 2, worker w2, 00:01:02 UTC ──\n"

    assert text(server) == f"one\ntwo\nth\n{seam}four\nfive é\n"
    assert text(server, "?limit=1") == text(server)


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("?tail=1", "five é\n"),
        ("?attempt=1", "one\ntwo\nth"),
        ("?attempt=2", "four\nfive é\n"),
        ("?attempt=1&tail=2", "two\nth"),
        ("?attempt=3", ""),
        ("?attempt=2&since=61s", "five é\n"),
        ("?attempt=2&since=1970-01-01T00:00:00Z", "four\nfive é\n"),
        ("?stream=stderr", ""),
    ],
)
def test_a_part_is_asked_for_in_the_query(server: ThreadedServer, query: str, left: str) -> None:
    assert text(server, query).removeprefix("── attempt 2 of 2, worker w2, 00:01:03 UTC ──\n") == left


def test_events_as_json_have_the_same_parts(server: ThreadedServer) -> None:
    client = RestClient(server)
    for accept in ("application/json", "*/*", "text/html,*/*;q=0.8", "application/json, text/plain"):
        page = result_of(client.get("/v1/jobs/job-1/logs?tail=1&attempt=1", accept=accept))
        assert [event["data"] for event in page["events"] if event["sequence"]] == ["dGg="]


def test_what_is_no_instant_is_refused_with_examples(server: ThreadedServer) -> None:
    client = RestClient(server)
    for since in ("yesterday", "2026-11-19T16:00:00", "99999999d"):
        told = problem(client.get(f"/v1/jobs/job-1/logs?since={since}", accept=TEXT), 422)
        assert "since" in told["detail"]
    problem(client.get("/v1/jobs/nobody/logs", accept=TEXT), 404)
    problem(client.get("/v1/jobs/job-1/logs?tail=1&after=3", accept=TEXT), 422)
    assert client.ask("HEAD", "/v1/jobs/job-1/logs", headers={"accept": TEXT}).body == b""


def test_a_key_that_may_not_read_the_data_is_told_so() -> None:
    with threaded_server(ServerSettings(poll_seconds=0.0, keys=True)) as server:
        made = server.registry.create_key(name="bob", scopes=(Scope.OBSERVE,), actor="user:root")
        _, key = server.do(made)
        server.do(server.registry.enqueue(JobRequest(spec=Spec(), job_id="job-1"), actor="user:ana"))

        told = problem(RestClient(server, key).get("/v1/jobs/job-1/logs", accept=TEXT), 403)

    assert "data" in told["detail"]


async def test_connect_and_the_client_read_the_same_parts(server: ThreadedServer) -> None:
    remote = server.served.remote()
    page = await remote.logs("job-1", attempt=2, tail=1)
    since = await remote.logs("job-1", attempt=2, since=EPOCH, stream="stdout")
    await remote.close()

    assert [event.data for event in page.events if event.data] == ["five é\n".encode()]
    assert [event.data for event in since.events if event.data] == [b"four\n", "five é\n".encode()]


def test_missing_output_is_told_in_the_text() -> None:
    log = LogText(1, seams=True)

    assert log.of(_output(1, b"a")) == b"a"
    assert log.of(_output(4, b"b")).decode() == "\n── Events 2 to 3 of attempt None never arrived. ──\nb"


@pytest.mark.parametrize(
    ("accept", "preferred"),
    [
        ("text/plain", True),
        ("text/plain;q=0.9, */*", True),
        ("", False),
        ("*/*", False),
        ("application/json, text/plain", False),
    ],
)
def test_text_is_for_clients_that_name_it_first(accept: str, preferred: bool) -> None:
    assert prefers_text(accept) is preferred
