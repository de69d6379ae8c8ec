"""Responses that cannot be read, of a server that is damaged, lies, or is newer than its client: the request
may have been applied, so no client is told that it was refused."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from protobuf.wkt import Timestamp

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Completion, Grant, JobRequest
from holdfast.system import SystemClock, SystemIds
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.remote import RemoteRegistry
from holdfast.wire.server_connection import ServerConnection
from holdfast.wire.values import GRANT, JOB, JobOneof

NOW = datetime(2026, 11, 18, tzinfo=UTC)
WHOLE = Job("job-1", Spec(), State.QUEUED, NOW, NOW, NOW)
HELD = Grant(job=WHOLE, fencing_token=1, attempt=1, lease_seconds=60.0, task_token="t")


def strange() -> pb.Job:
    job = JOB.encode(WHOLE)
    job.state = "archived"
    return job


def answered(*jobs: pb.Job | None) -> list[pb.JobOrError]:
    return [pb.JobOrError(answer=None if job is None else JobOneof("job", job)) for job in jobs]


@asynccontextmanager
async def saying(body: bytes) -> AsyncIterator[RemoteRegistry]:
    """A registry at a server that answers everything with these bytes."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: {len(body)}\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        sizes = [line[15:] for line in asked.lower().split(b"\r\n") if line[:15] == _LENGTH]
        await reader.readexactly(sum(map(int, sizes)))
        writer.write(head.encode() + b"connection: close\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = ServerConnection((f"http://127.0.0.1:{port}",), None)
    remote = RemoteRegistry(link, SystemClock(), SystemIds())
    try:
        yield remote
    finally:
        await remote.close()
        server.close()


_LENGTH = b"content-length:"

Call = Callable[[RemoteRegistry], Awaitable[Any]]
CALLS: dict[str, tuple[Call, bytes]] = {
    "enqueue": (
        lambda remote: remote.enqueue(JobRequest(spec=Spec()), actor="user:ana"),
        pb.EnqueueResponse(jobs=[strange()]).to_binary(),
    ),
    "too few jobs": (
        lambda remote: remote.enqueue(JobRequest(spec=Spec()), actor="user:ana"),
        b"",
    ),
    "claim": (
        lambda remote: remote.claim(["default"], owner="w"),
        pb.ClaimResponse(grants=[GRANT.encode(HELD), pb.Grant(job=strange(), task_token="t")]).to_binary(),
    ),
    "heartbeat": (
        lambda remote: remote.heartbeat(HELD),
        pb.JobResponse(job=strange()).to_binary(),
    ),
    "nothing in it": (lambda remote: remote.heartbeat(HELD), b""),
    "complete": (
        lambda remote: remote.complete(HELD, Success()),
        pb.CompleteResponse(answers=answered(strange())).to_binary(),
    ),
    "no completion": (
        lambda remote: remote.complete(HELD, Success()),
        pb.CompleteResponse(answers=answered(None)).to_binary(),
    ),
    "too few completions": (lambda remote: remote.complete(HELD, Success()), b""),
    "too few found": (lambda remote: remote.status("job-1"), b""),
    "counts": (
        lambda remote: remote.counts(),
        pb.CountsResponse(counts={"archived": 1}).to_binary(),
    ),
    "now": (
        lambda remote: remote.now(),
        pb.NowResponse(now=Timestamp(seconds=2**60)).to_binary(),
    ),
    "list": (
        lambda remote: remote.list_jobs(),
        pb.ListJobsResponse(jobs=[strange()]).to_binary(),
    ),
}


READS = ("too few found", "counts", "now", "list")


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("what", CALLS)
async def test_an_answer_that_cannot_be_read_says_that_nothing_was_done_only_of_reads(
    what: str, damaged: bool
) -> None:
    call, body = CALLS[what]

    async with saying(b"\xff\xfe\x00" if damaged else body) as remote:
        with pytest.raises(Unavailable, match="response cannot be decoded") as caught:
            await call(remote)
        assert caught.value.applied == ("no" if what in READS else "unknown")


async def test_of_many_completions_each_is_read_for_itself() -> None:
    body = pb.CompleteResponse(answers=answered(JOB.encode(WHOLE), strange())).to_binary()

    async with saying(body) as remote:
        done = Completion(HELD, Success())
        [first, second] = await remote.complete_many([done, replace(done)])
        assert isinstance(first, Job)
        assert isinstance(second, Unavailable)


async def test_a_request_that_cannot_be_written_was_never_sent() -> None:
    async with saying(b"") as remote:
        with pytest.raises(Invalid, match="The request cannot be written"):
            await remote.status("\ud800")
