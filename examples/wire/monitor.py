"""A monitor of job.v1: prints the output of a job, live or afterwards, and exits with its exit code.

    python monitor.py JOB_ID [--url http://localhost:8080]

If the server requires a key, it is taken from HOLDFAST_KEY.
"""

import argparse
import os
import sys
import time

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf import Oneof

from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.generated.job.v1.job_connect import JobEventsServiceClientSync

KEY = os.environ.get("HOLDFAST_KEY")
HEADERS = {"authorization": f"Bearer {KEY}"} if KEY else {}


class Monitor:
    """The position in the job's events, and the last exit code."""

    def __init__(self) -> None:
        self.seen = (0, 0)
        self.exit_code: int | None = None

    def follow(self, url: str, job_id: str) -> None:
        """Read until the server ends the stream, because the job has ended."""
        events = JobEventsServiceClientSync(url)
        request = pb.StreamJobEventsRequest(job_id=job_id)
        while True:
            try:
                for response in events.stream_job_events(request, headers=HEADERS):
                    if response.event is not None:
                        self.show(response.event)
                return
            except ConnectError as error:
                if error.code is not Code.UNAVAILABLE:
                    raise
            time.sleep(1)  # the server is unavailable: read again, and skip what was seen

    def show(self, event: pb.JobEvent) -> None:
        """Sequences start at 1 in every attempt; both together are the position."""
        place = (event.attempt, event.sequence)
        if place <= self.seen:
            return
        self.seen = place
        match event.event_data:
            case Oneof(value=pb.Output() as output):
                write(output.output)
            case Oneof(value=pb.OutputBatch() as batch):
                for item in batch.outputs:
                    write(item.output)
            case Oneof(value=pb.ProcessError() as failure):
                print(failure.error_message, file=sys.stderr)
            case Oneof(value=pb.ProcessEnd() as end):
                self.exit_code = end.exit_code
                print(f"exit code {end.exit_code}", file=sys.stderr)


def write(output: bytes) -> None:
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("job_id")
    parser.add_argument("--url", default="http://localhost:8080")
    arguments = parser.parse_args()
    monitor = Monitor()
    try:
        monitor.follow(arguments.url, arguments.job_id)
    except ConnectError as error:
        print(f"{error.code.value}: {error.message}", file=sys.stderr)
        return 1
    if monitor.exit_code is None:
        print("The job ended without running to its end.", file=sys.stderr)
        return 1
    return monitor.exit_code


if __name__ == "__main__":
    sys.exit(main())
