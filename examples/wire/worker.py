"""A worker of job.v1: takes one job at a time, runs its command, publishes its output and reports its end.

    python worker.py [--url http://localhost:8080] [--queue default] [--visibility 300]

Ctrl-C lets it finish its job. If the server requires a key, it is taken from HOLDFAST_KEY.
"""

import argparse
import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import IO, TypeVar

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf import Message, Oneof
from protobuf.wkt import Timestamp

from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.generated.job.v1.job_connect import (
    JobEventsServiceClientSync,
    JobServiceClientSync,
)

T = TypeVar("T")

KEY = os.environ.get("HOLDFAST_KEY")
HEADERS = {"authorization": f"Bearer {KEY}"} if KEY else {}
CHUNK_BYTES = 64 * 1024


def with_retries(call: Callable[[], T]) -> T:
    """Return the response to a call; while the server is unavailable, send the call again unchanged."""
    while True:
        try:
            return call()
        except ConnectError as error:
            if error.code is not Code.UNAVAILABLE:
                raise
            time.sleep(1)


class Attempt:
    """One try at one job, from its grant to its end, or until it is taken away."""

    def __init__(self, url: str, granted: pb.DequeueJobResponse, visibility: int) -> None:
        assert granted.job is not None
        self.jobs = JobServiceClientSync(url)
        self.events = JobEventsServiceClientSync(url)
        self.job = granted.job
        self.token = granted.task_token
        self.visibility = visibility
        self.process: subprocess.Popen[bytes] | None = None
        self.sequence = 0
        self.publishing = Lock()
        self.over = Event()

    def run(self) -> str:
        """Return the outcome as text. The job is completed only when all its events are stored."""
        with ThreadPoolExecutor() as threads:
            try:
                threads.submit(self.extend)
                exit_code = self.execute(threads)
                with_retries(lambda: self.complete(exit_code))
            except ConnectError as error:
                return f"given up: {error}"
            finally:
                self.over.set()
                self.stop(signal.SIGKILL)
                if self.process is not None:
                    self.process.wait()
        return f"exit code {exit_code}"

    def extend(self) -> None:
        """Renew the hold on the job. When it is lost, the process is killed."""
        request = pb.UpdateJobRequest(task_token=self.token, visibility_timeout_seconds=self.visibility)
        try:
            while not self.over.is_set():
                response = with_retries(lambda: self.jobs.update_job(request, headers=HEADERS))
                if response.cancel_requested:
                    self.stop(signal.SIGTERM)
                self.over.wait(self.visibility / 3)
        except ConnectError:
            self.stop(signal.SIGKILL)

    def execute(self, threads: ThreadPoolExecutor) -> int:
        """Run the command, publish everything from its start to its end, and return its exit code."""
        params = self.job.job_params or pb.JobParams()
        try:
            self.process = process = subprocess.Popen(
                [params.command, *params.args],
                env={**os.environ, **params.environment},
                cwd=params.working_directory or None,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self.publish(pb.EventType.PROCESS_ERROR, pb.ProcessError(error_message=str(error)))
            return 127
        assert process.stdout is not None
        assert process.stderr is not None
        start = pb.ProcessStart(pid=process.pid, started_at=Timestamp.now())
        self.publish(pb.EventType.PROCESS_START, start)
        errors = threads.submit(self.pump, process.stderr, pb.StreamType.STDERR)
        self.pump(process.stdout, pb.StreamType.STDOUT)
        errors.result()
        code = process.wait()
        exit_code = code if code >= 0 else 128 - code
        self.publish(pb.EventType.PROCESS_END, pb.ProcessEnd(pid=process.pid, exit_code=exit_code))
        return exit_code

    def pump(self, pipe: IO[bytes], stream: pb.StreamType) -> None:
        """Publish a stream. What comes while an event is being stored waits in the pipe for the next."""
        while data := pipe.read(CHUNK_BYTES):
            self.publish(pb.EventType.OUTPUT, pb.Output(output=data, stream_type=stream))

    def publish(self, kind: pb.EventType, data: Message) -> None:
        """Publish an event, one after the other. Sent again with its sequence, it is stored once."""
        with self.publishing:
            self.sequence += 1
            event = pb.JobEvent(
                sequence=self.sequence,
                timestamp=Timestamp.now(),
                event_type=kind,
                event_data=Oneof(kind.name.lower(), data),  # type: ignore[arg-type]
            )
            message = pb.PublishJobEventsRequest(task_token=self.token, events=[event])
            with_retries(lambda: self.events.publish_job_events(iter([message]), headers=HEADERS))

    def complete(self, exit_code: int) -> None:
        result = pb.JobResult(success=exit_code == 0, exit_code=exit_code)
        request = pb.CompleteJobRequest(task_token=self.token, job_result=result)
        self.jobs.complete_job(request, headers=HEADERS)

    def stop(self, number: signal.Signals) -> None:
        """Send the signal to the process, and to all that it has started."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)


def main(url: str, queue: str, visibility: int) -> None:
    stopping = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    jobs = JobServiceClientSync(url)
    request = pb.DequeueJobRequest(queue=queue, max_jobs=1, visibility_timeout_seconds=visibility)
    while not stopping.is_set():
        # The server waits a few seconds for a job; a stream without one means that there is none.
        for granted in with_retries(lambda: list(jobs.dequeue_job(request, headers=HEADERS))):
            attempt = Attempt(url, granted, visibility)
            print(f"{attempt.job.job_id} attempt {granted.attempt}", flush=True)
            print(f"{attempt.job.job_id} {attempt.run()}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://localhost:8080")
    parser.add_argument("--queue", default="default")
    parser.add_argument(
        "--visibility",
        type=int,
        default=300,
        help="seconds to hold a job",
    )
    main(**vars(parser.parse_args()))
