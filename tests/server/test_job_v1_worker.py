"""A worker of job.v1 that others wrote, at a real server: its events are kept, and lost ones are reported."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.output_chunks import chunks_of
from holdfast.core.state import State
from holdfast.server.context import ServerSettings
from holdfast.server.fair_limiter import Bounds
from holdfast.server.limits import PUBLISH_BYTES_MAX, REQUEST_BYTES_MAX
from holdfast.testing.world import fill
from tests.server.job_v1_worker import JobV1Worker, PublishStream, Run, chunks, framed, lines
from tests.server.raw_http_client import ThreadedServer, threaded_server

QUEUES = count()


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with threaded_server(ServerSettings(poll_seconds=0.05)) as one:
        yield one


@pytest.fixture
def worker(server: ThreadedServer) -> JobV1Worker:
    return JobV1Worker(server.served.url, queue=f"q-{next(QUEUES)}")


def log(server: ThreadedServer, run: Run) -> list[Event]:
    events: list[Event] = []
    cursor: str | None = None
    while True:
        page = server.do(server.registry.logs(run.job_id, after=cursor))
        events += page.events
        cursor = page.cursor
        if not page.events:
            return events


def written(server: ThreadedServer, run: Run) -> bytes:
    return b"".join(piece.data for event in log(server, run) for piece in chunks_of(event))


def job(server: ThreadedServer, run: Run) -> Job:
    found: Job = server.do(server.registry.status(run.job_id))
    return found


def why(server: ThreadedServer, run: Run) -> str:
    return str(server.do(server.registry.why(run.job_id)))


def test_batches_that_grew_beyond_what_was_advertised_are_kept(
    server: ThreadedServer, worker: JobV1Worker
) -> None:
    text = lines(50_000)
    with worker.run() as run:
        for chunk in chunks(text, 195_000):
            run.write(chunk)
        run.ended(0)
    run.complete()

    assert written(server, run) == text
    assert run.refusals == []
    assert job(server, run).state is State.SUCCEEDED


def test_batches_of_a_client_that_was_told_more_are_kept(server: ThreadedServer, worker: JobV1Worker) -> None:
    text = lines(50_000)
    with worker.run() as run:
        run.batching.max_batch_bytes = 256 * 1024
        for chunk in chunks(text, 199_000):
            run.write(chunk)
        run.ended(0)

    assert written(server, run) == text
    assert run.refusals == []


def test_a_backlog_in_one_message_is_kept(server: ThreadedServer, worker: JobV1Worker) -> None:
    text = lines(80_000)
    with worker.run() as run:
        run.away = True
        for chunk in chunks(text, 64_000):
            run.write(chunk)
        run.away = False
        run.ended(0)
    run.complete()

    assert written(server, run) == text
    assert run.refusals == []


def test_the_last_events_may_follow_the_completion(server: ThreadedServer, worker: JobV1Worker) -> None:
    with worker.run() as run:
        run.write(b"one\n")
        run.flush()
        run.close()
        run.complete()
        run.write(b"two\n")
        run.ended(0)

    assert run.refusals == []
    assert written(server, run) == b"one\ntwo\n"
    assert job(server, run).state is State.SUCCEEDED
    assert [e.event_type for e in log(server, run)][-3:] == [
        "job_succeeded",
        "output_batch",
        "process_end",
    ]


def test_an_exit_code_that_contradicts_a_success_is_told(server: ThreadedServer, worker: JobV1Worker) -> None:
    with worker.run() as run:
        run.complete()
        run.ended(3)

    assert job(server, run).state is State.SUCCEEDED
    assert "but its process ended with 3" in why(server, run)


def test_events_that_never_arrived_are_told(server: ThreadedServer, worker: JobV1Worker) -> None:
    with worker.run() as run:
        run.write(b"one\n")
        run.flush()
        run.lose(12)
        run.write(b"two\n")
        run.ended(0)
    run.complete()

    assert "12" in why(server, run)


def test_a_publish_that_was_refused_is_told(server: ThreadedServer, worker: JobV1Worker) -> None:
    with worker.run() as run:
        run.batching.max_batch_bytes = 2**62
        for chunk in chunks(bytes(700_000), 200_000):
            run.write(chunk)
        run.flush()
    run.complete()

    assert [error["code"] for error in run.refusals] == ["invalid_argument"]
    assert job(server, run).state is State.SUCCEEDED
    assert "refused" in why(server, run)


def test_a_message_beyond_the_limit_is_refused_with_words_and_told(
    server: ThreadedServer, worker: JobV1Worker
) -> None:
    with worker.run() as run:
        run.away = True
        for _ in range(PUBLISH_BYTES_MAX // 190_000 + 1):
            run.write(bytes(190_000))
        run.away = False
        run.flush()
        run.close()
        run.write(b"later\n")
        run.ended(0)
    run.complete()

    [error] = run.refusals
    assert error["code"] == "resource_exhausted"
    assert "32 MiB" in error["message"]
    assert "larger than 32 MiB" in why(server, run)
    assert "never arrived" in why(server, run)
    assert written(server, run) == b"later\n"


def test_a_backlog_that_is_sent_again_is_kept_once(server: ThreadedServer, worker: JobV1Worker) -> None:
    text = lines(40_000)
    with worker.run() as run:
        run.away = True
        for chunk in chunks(text, 1_000):
            run.write(chunk)
        run.away = False
        sent = list(run.backlog)
        run.flush()
        run.close()
        run.send(sent)
        run.ended(0)

    assert run.refusals == []
    assert written(server, run) == text


def test_of_a_backlog_the_part_before_the_fault_is_kept_and_told(
    server: ThreadedServer, worker: JobV1Worker
) -> None:
    with worker.run() as run:
        run.away = True
        for chunk in chunks(bytes(3_000_000), 150_000):
            run.write(chunk)
        run.flush()
        sent = list(run.backlog)
        cancel = {"jobId": run.job_id, "hard": True}
        assert server.call("/job.v1.JobService/CancelJob", cancel).code == "ok"
        run.send(sent)

    [error] = run.refusals
    assert error["code"] == "not_found"
    assert written(server, run) == b""


def test_a_message_of_very_many_parts_is_refused_before_it_is_decoded(
    server: ThreadedServer, worker: JobV1Worker
) -> None:
    with worker.run() as run:
        run.close()
        stream = PublishStream(worker.address)
        token = run.token.encode()
        head = b"\n" + bytes([len(token) & 127 | 128, len(token) >> 7]) + token
        many = head + b"\x12\x02\x08\x01" * (REQUEST_BYTES_MAX // 4 + 1)
        stream.send_bytes(framed(many))
        error = stream.close()

    assert error["code"] == "resource_exhausted"
    assert "fields" in error["message"]
    assert "fields" in why(server, run)


def test_large_messages_wait_for_room_and_give_it_back(
    server: ThreadedServer, worker: JobV1Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = server.served.app.context.publish_memory
    monkeypatch.setattr(room, "bounds", Bounds(bytes=5_000_000))
    texts = [bytes([65 + n]) * 4_000_000 for n in range(4)]

    def play(text: bytes) -> Run:
        worker = JobV1Worker(server.served.url, queue=f"room-{text[:1].decode()}")
        with worker.run() as run:
            run.away = True
            for chunk in chunks(text, 200_000):
                run.write(chunk)
            run.away = False
            run.ended(0)
        return run

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(play, texts))

    assert [written(server, run) for run in runs] == texts
    assert room.bytes_in_use() == 0


def test_a_publish_stream_that_is_quiet_for_too_long_is_ended(
    server: ThreadedServer, worker: JobV1Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.publish_streams.PUBLISH_IDLE_SECONDS_MAX", 0.2)
    stream = PublishStream(worker.address)

    assert stream.ending()["code"] == "deadline_exceeded"


def test_there_are_not_more_publish_streams_than_may_be(
    server: ThreadedServer, worker: JobV1Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.publish_streams.PUBLISH_STREAMS_MAX", 0)
    stream = PublishStream(worker.address)

    error = stream.close()

    assert (error["code"], error["message"]) == (
        "resource_exhausted",
        "0 publish streams are open here already.",
    )


def test_a_worker_without_a_name_is_called_by_its_program_and_address(
    server: ThreadedServer, worker: JobV1Worker
) -> None:
    worker.submit()
    run = worker.dequeue()

    owner = job(server, run).owner or ""

    assert re.fullmatch(r"connect-go:127\.0\.0\.1:[0-9]+", owner), owner


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("evil;rm -rf/1", "evil:"),
        ("", "anonymous:"),
        ("(weird)", "anonymous:"),
        ("x" * 300, "x" * 40 + ":"),
    ],
)
def test_an_owners_name_is_a_safe_one_whatever_the_client_says(
    server: ThreadedServer, worker: JobV1Worker, agent: str, name: str
) -> None:
    job_id = worker.submit()
    asked = [{"queue": worker.queue}]

    server.stream("/job.v1.JobService/DequeueJob", asked, {"user-agent": agent})

    assert (server.do(server.registry.status(job_id)).owner or "").startswith(name)


def test_a_worker_that_says_more_than_is_kept_is_told_and_its_end_still_counts(
    server: ThreadedServer, worker: JobV1Worker
) -> None:
    """What comes behind the output, in the same stream, is taken; a new stream is told again."""
    with worker.run() as run:
        server.do(fill(server.registry._store, run.job_id, 5_000))
        run.write(b"x" * 2_000)
        run.flush()
        run.write(b"y" * 9_000)
        run.ended(3)
    run.complete()

    found = job(server, run)
    assert written(server, run) == b"x" * 2_000
    assert [refusal["code"] for refusal in run.refusals] == ["resource_exhausted"]
    assert found.state is State.SUCCEEDED
    assert found.flaws is not None
    assert (found.flaws.dropped_bytes, found.flaws.exit_code) == (9_000, 3)
    assert "9,000 bytes were not kept" in why(server, run)
    assert any(event.event_type == WorkerEventType.PROCESS_END for event in log(server, run))
