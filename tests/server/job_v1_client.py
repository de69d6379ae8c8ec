"""Clients of job.v1 as others write them: the queue, publishers, monitors, and raw sockets that misbehave."""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

from connectrpc.errors import ConnectError
from protobuf import Message, Oneof
from protobuf.wkt import Timestamp
from pyqwest import Client, HTTPTransport

from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.generated.job.v1.job_connect import JobEventsServiceClient, JobServiceClient

DEQUEUE = "/job.v1.JobService/DequeueJob"
STREAM = "/job.v1.JobEventsService/StreamJobEvents"
CLAIM = "/holdfast.v1.RegistryService/Claim"
ECHO = pb.JobParams(command="echo", args=["hello"])


class JobV1Client:
    """Both services of job.v1 at one address, or each at its own."""

    def __init__(self, url: str, events_url: str | None = None) -> None:
        http = Client(HTTPTransport(enable_otel=False))
        self.url = url
        self.jobs = JobServiceClient(url, http_client=http)
        self.events = JobEventsServiceClient(events_url or url, http_client=http)

    async def enqueue(self, queue: str = "") -> str:
        asked = pb.EnqueueJobRequest(queue=queue, job_params=ECHO)
        return (await self.jobs.enqueue_job(asked)).job_id

    async def dequeue(self, **fields: Any) -> list[pb.DequeueJobResponse]:  # noqa: ANN401
        return [one async for one in self.jobs.dequeue_job(pb.DequeueJobRequest(**fields))]

    async def taken(self, **fields: Any) -> pb.DequeueJobResponse:  # noqa: ANN401
        """Claim a job; there must be exactly one."""
        [one] = await self.dequeue(**fields)
        return one

    async def publish(self, token: str, *batches: Iterable[pb.JobEvent]) -> None:
        await self.events.publish_job_events(_requests(token, batches))

    async def complete(self, token: str) -> None:
        done = pb.JobResult(success=True)
        await self.jobs.complete_job(pb.CompleteJobRequest(task_token=token, job_result=done))

    async def get(self, job_id: str) -> pb.Job:
        job = (await self.jobs.get_job(pb.GetJobRequest(job_id=job_id))).job
        assert job is not None
        return job


def ids(taken: Iterable[pb.DequeueJobResponse]) -> list[str]:
    return [one.job.job_id for one in taken if one.job is not None]


async def _requests(
    token: str, batches: Iterable[Iterable[pb.JobEvent]]
) -> AsyncIterator[pb.PublishJobEventsRequest]:
    for events in batches:
        yield pb.PublishJobEventsRequest(task_token=token, events=list(events))


class Monitor:
    """Reads one stream to its end, and keeps the events and the error."""

    def __init__(
        self,
        clients: JobV1Client,
        job_id: str,
        pause: float = 0.0,
        **fields: Any,  # noqa: ANN401
    ) -> None:
        self.heard: list[pb.JobEvent] = []
        self.error: ConnectError | None = None
        self.ended_at = 0.0
        self.pause = pause
        self._asked = pb.StreamJobEventsRequest(job_id=job_id, **fields)
        self._clients = clients
        self.task = asyncio.create_task(self._read())

    @property
    def sequences(self) -> list[int]:
        return [event.sequence for event in self.heard]

    @property
    def pieces(self) -> list[int]:
        """The sequence of every piece of output, also of those inside batches."""
        return [number for event in self.heard for number in pieces(event)]

    async def _read(self) -> None:
        try:
            async with aclosing(self._clients.events.stream_job_events(self._asked)) as stream:  # type: ignore[type-var]
                async for one in stream:
                    assert one.event is not None
                    self.heard.append(one.event)
                    if self.pause:
                        await asyncio.sleep(self.pause)
        except ConnectError as error:
            self.error = error
        self.ended_at = time.monotonic()

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def pieces(event: pb.JobEvent) -> list[int]:
    told = event.event_data.value if event.event_data else None
    if isinstance(told, pb.OutputBatch):
        assert told.end_sequence - told.start_sequence + 1 == len(told.outputs)
        return list(range(told.start_sequence, told.end_sequence + 1))
    return [event.sequence]


def output(sequence: int, data: bytes = b"x", at_ms: int | None = None) -> pb.JobEvent:
    return pb.JobEvent(
        sequence=sequence,
        timestamp=_stamp(at_ms),
        event_type=pb.EventType.OUTPUT,
        event_data=Oneof("output", pb.Output(output=data)),  # type: ignore[arg-type]
    )


def outputs(first: int, last: int, data: bytes = b"x") -> list[pb.JobEvent]:
    return [output(number, data) for number in range(first, last + 1)]


def batch(first: int, last: int) -> pb.JobEvent:
    items = [pb.OutputItem(output=b"%d" % number) for number in range(first, last + 1)]
    told = pb.OutputBatch(outputs=items, start_sequence=first, end_sequence=last)
    return pb.JobEvent(
        sequence=first,
        event_type=pb.EventType.OUTPUT_BATCH,
        event_data=Oneof("output_batch", told),  # type: ignore[arg-type]
    )


def alive(sequence: int) -> pb.JobEvent:
    return pb.JobEvent(
        sequence=sequence,
        event_type=pb.EventType.HEARTBEAT,
        event_data=Oneof("heartbeat", pb.Heartbeat(process_alive=True)),  # type: ignore[arg-type]
    )


def _stamp(at_ms: int | None) -> Timestamp | None:
    if at_ms is None:
        return None
    return Timestamp(seconds=at_ms // 1000, nanos=at_ms % 1000 * 1_000_000)


def raw_call(url: str, path: str, request: Message, received_bytes: int = 0) -> socket.socket:
    """A socket on which a call was sent, and from which nothing was read."""
    connection = _connected(url, received_bytes)
    connection.sendall(_framed(url, path, request))
    return connection


def ask_and_leave(url: str, path: str, request: Message) -> None:
    """Send a call and close the connection, in one packet."""
    connection = _connected(url)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    connection.sendall(_framed(url, path, request))
    connection.close()


def cut(connection: socket.socket, *, reset: bool) -> None:
    """Close the connection: properly, or with a reset, as after a machine was switched off and on."""
    if reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def leave_and_listen(connection: socket.socket, after: float) -> bytes:
    """Close our side after some seconds, and return all that the server sent."""
    heard = b""
    with connection:
        time.sleep(after)
        connection.shutdown(socket.SHUT_WR)
        while some := connection.recv(65536):
            heard += some
    return heard


def _connected(url: str, received_bytes: int = 0) -> socket.socket:
    parts = urlsplit(url)
    connection = socket.socket()
    if received_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
    connection.settimeout(30)
    connection.connect((parts.hostname, parts.port))
    return connection


def _framed(url: str, path: str, request: Message) -> bytes:
    body = request.to_binary()
    unary = path == CLAIM
    message = body if unary else struct.pack(">BI", 0, len(body)) + body
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n"
        f"Content-Type: application/{'proto' if unary else 'connect+proto'}\r\n"
        "Connect-Protocol-Version: 1\r\n"
        f"Content-Length: {len(message)}\r\n\r\n"
    )
    return head.encode() + message
