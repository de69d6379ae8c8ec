"""The server under test, as a process: the real one, or one that answers EnqueueJob with a constant.

python bench/wire_server.py URL PORT [--constant]
"""

import sys

import uvloop

from holdfast.cli.server_log import ServerLog
from holdfast.cli.server_process import run_server
from holdfast.server import job_service
from holdfast.server.context import ServerSettings
from holdfast.server.http_server import ListenAddress
from holdfast.wire.generated.job.v1 import job_pb as pb

ANSWER = pb.EnqueueJobResponse(job_id="018f3c5e-7c1a-7e6b-9f30-2b5d0f3f8a11", state=pb.JobState.SCHEDULED)


async def constant(
    self: job_service.JobService, request: pb.EnqueueJobRequest, _: job_service.Call
) -> pb.EnqueueJobResponse:
    """The framework, the parsing and the answer, and nothing else."""
    return ANSWER


if __name__ == "__main__":
    url, port, *more = sys.argv[1:]
    if more == ["--constant"]:
        job_service.JobService.enqueue_job = constant  # type: ignore[method-assign]
    uvloop.run(run_server(url, ListenAddress(port=int(port)), ServerSettings(), ServerLog("text")))
