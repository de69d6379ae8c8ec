"""A worker of job.v1 as others have written it: raw Connect over HTTP, without any code of ours but messages.

It behaves like the existing Go client: it flushes a batch after it has grown beyond the advertised size, by
reads of up to 200 KiB; what it could not send goes as one message once the server is back; the last events
may follow the completion; and it reports success whatever its process ended with.
"""

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from urllib.parse import urlsplit

from protobuf import Message, Oneof
from protobuf.wkt import Timestamp

from holdfast.wire.generated.job.v1 import job_pb as pb

JOBS = "/job.v1.JobService/"
PUBLISH = "/job.v1.JobEventsService/PublishJobEvents"
PATIENCE_SECONDS = 60.0
USER_AGENT = "connect-go/1.19.1 (go1.25.5)"
READ_BYTES_MAX = 200 * 1024


def framed(message: bytes, flags: int = 0) -> bytes:
    """The message as one frame of a stream."""
    return struct.pack(">BI", flags, len(message)) + message


def frames(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The flags and the bytes of every frame."""
    while body:
        flags, length = struct.unpack(">BI", body[:5])
        yield flags, body[5 : 5 + length]
        body = body[5 + length :]


class PublishStream:
    """One open PublishJobEvents call: messages go up while it is open, one response comes back."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._plug = socket.create_connection(address, timeout=PATIENCE_SECONDS)
        head = (
            f"POST {PUBLISH} HTTP/1.1\r\nhost: localhost\r\nuser-agent: {USER_AGENT}\r\n"
            "content-type: application/connect+proto\r\nconnect-protocol-version: 1\r\n"
            "transfer-encoding: chunked\r\n\r\n"
        )
        self._plug.sendall(head.encode())

    def send(self, message: Message) -> None:
        """Send one message; `OSError` when the server has ended the call."""
        self.send_bytes(framed(message.to_binary()))

    def send_bytes(self, data: bytes) -> None:
        self._plug.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def close(self) -> dict[str, str]:
        """End the call; return the server's error, empty when there is none."""
        with self._plug, suppress(OSError):
            with suppress(OSError):
                self._plug.sendall(b"0\r\n\r\n")
            return _ending(self._plug)
        return {"code": "unavailable"}

    def ending(self) -> dict[str, str]:
        """The error with which the server ends the call by itself."""
        with self._plug:
            return _ending(self._plug)


def _ending(plug: socket.socket) -> dict[str, str]:
    got = bytearray()
    while not got.endswith(b"0\r\n\r\n") and (part := plug.recv(1 << 16)):
        got += part
    _, _, body = bytes(got).partition(b"\r\n\r\n")
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
    ends = [json.loads(data) for flags, data in frames(whole) if flags & 2]
    return dict(ends[0].get("error", {})) if ends else {"code": "cut"}


class Run:
    """One attempt at a job: what its process writes, in the client's own batches."""

    def __init__(self, worker: "JobV1Worker", granted: pb.DequeueJobResponse) -> None:
        assert granted.job is not None
        assert granted.job.execution_config is not None
        assert granted.job.execution_config.batching is not None
        self.worker = worker
        self.job_id = granted.job.job_id
        self.token = granted.task_token
        self.batching = granted.job.execution_config.batching
        self.refusals: list[dict[str, str]] = []
        self.away = False
        self._sequence = 0
        self._pending: list[bytes] = []
        self.backlog: list[pb.JobEvent] = []
        self._stream: PublishStream | None = None

    def write(self, chunk: bytes) -> None:
        """One read of the process's output. The batch is flushed once it has grown too large."""
        assert len(chunk) <= READ_BYTES_MAX
        self._pending.append(chunk)
        size = sum(map(len, self._pending))
        if size > self.batching.max_batch_bytes or len(self._pending) >= self.batching.max_batch_size:
            self.flush()

    def flush(self) -> None:
        """Send what is pending as one batch, with whatever could not be sent before."""
        if self._pending:
            self.backlog.append(self._batch())
            self._pending = []
        if self.backlog and not self.away:
            self.send(self.backlog)
            self.backlog = []

    def _batch(self) -> pb.JobEvent:
        start = self._sequence + 1
        self._sequence += len(self._pending)
        stdout = pb.StreamType.STDOUT
        batch = pb.OutputBatch(
            outputs=[pb.OutputItem(output=one, stream_type=stdout) for one in self._pending],
            start_sequence=start,
            end_sequence=self._sequence,
            first_timestamp_ms=1_760_000_000_000,
        )
        return _event(start, pb.EventType.OUTPUT_BATCH, Oneof("output_batch", batch))

    def lose(self, events: int) -> None:
        """Drop what would have had the next sequences, as the client does with what it cannot keep."""
        self._sequence += events

    def started(self) -> None:
        self._sequence += 1
        start = pb.ProcessStart(pid=7)
        kind = pb.EventType.PROCESS_START
        self.send([_event(self._sequence, kind, Oneof("process_start", start))])

    def ended(self, exit_code: int) -> None:
        """Send the end of the process, after what it wrote."""
        self.flush()
        self._sequence += 1
        end = pb.ProcessEnd(pid=7, exit_code=exit_code)
        self.send([_event(self._sequence, pb.EventType.PROCESS_END, Oneof("process_end", end))])

    def send(self, events: list[pb.JobEvent]) -> None:
        """All of these in one message. What the server refuses is noted, and lost."""
        message = pb.PublishJobEventsRequest(task_token=self.token, events=events)
        for _ in range(2):
            self._stream = self._stream or PublishStream(self.worker.address)
            try:
                self._stream.send(message)
            except OSError:
                self.close()
            else:
                return

    def close(self) -> None:
        """End the publish stream, and note whether everything was taken."""
        stream, self._stream = self._stream, None
        if stream is not None and (error := stream.close()):
            self.refusals.append(error)

    def complete(self, *, success: bool = True, exit_code: int = 0) -> None:
        result = pb.JobResult(job_id=self.job_id, success=success, exit_code=exit_code)
        asked = pb.CompleteJobRequest(task_token=self.token, job_result=result)
        self.worker.call("CompleteJob", asked)


def _event(sequence: int, kind: pb.EventType, data: "Oneof[str, Message]") -> pb.JobEvent:
    return pb.JobEvent(
        sequence=sequence,
        timestamp=Timestamp(seconds=1_760_000_000),
        event_type=kind,
        event_data=data,  # type: ignore[arg-type]
    )


class JobV1Worker:
    """The client: one connection for each call."""

    def __init__(self, url: str, queue: str = "default") -> None:
        place = urlsplit(url)
        self.address = (place.hostname or "", place.port or 0)
        self.queue = queue

    def call(self, method: str, asked: Message, kind: str = "application/proto") -> bytes:
        """Return the body of the response to a call; raise when it is an error."""
        body = asked.to_binary()
        stream = kind.startswith("application/connect")
        link = HTTPConnection(*self.address, timeout=PATIENCE_SECONDS)
        try:
            headers = {"content-type": kind, "host": "localhost", "user-agent": USER_AGENT}
            link.request("POST", JOBS + method, framed(body) if stream else body, headers)
            answer = link.getresponse()
            got = answer.read()
            assert answer.status == 200, got
            return got
        finally:
            link.close()

    def submit(self, command: str = "true") -> str:
        asked = pb.EnqueueJobRequest(queue=self.queue, job_params=pb.JobParams(command=command))
        return pb.EnqueueJobResponse.from_binary(self.call("EnqueueJob", asked)).job_id

    def dequeue(self, visibility_timeout_seconds: int = 300) -> Run:
        """The next job; there must be one."""
        asked = pb.DequeueJobRequest(
            queue=self.queue,
            max_jobs=1,
            visibility_timeout_seconds=visibility_timeout_seconds,
        )
        body = self.call("DequeueJob", asked, "application/connect+proto")
        [granted] = [data for flags, data in frames(body) if not flags & 2]
        return Run(self, pb.DequeueJobResponse.from_binary(granted))

    @contextmanager
    def run(self) -> Iterator[Run]:
        """A new job, run; its publish stream is closed at the end."""
        self.submit()
        run = self.dequeue()
        run.started()
        yield run
        run.close()


def lines(count: int) -> bytes:
    """Return this many different lines of 78 characters."""
    return b"".join(b"line %08d %s\n" % (n, b"x" * 63) for n in range(count))


def chunks(data: bytes, size: int) -> Iterator[bytes]:
    """The data as a process's pipe gives it: at most `size` bytes at once."""
    for start in range(0, len(data), size):
        yield data[start : start + size]
