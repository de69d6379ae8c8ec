"""The server under test, as a process: the real one, or one that answers EnqueueJob with a constant.

python bench/wire_server.py URL PORT [--constant]
"""

import sys

import uvloop

from holdfast.cli.serve_log import ServerLog
from holdfast.cli.serving import run
from holdfast.server import jobs
from holdfast.server.context import Settings
from holdfast.server.serving import Place
from holdfast.wire.generated.job.v1 import job_pb as pb

ANSWER = pb.EnqueueJobResponse(
    job_id="018f3c5e-7c1a-7e6b-9f30-2b5d0f3f8a11", state=pb.JobState.SCHEDULED
)


async def constant(
    self: jobs.JobService, request: pb.EnqueueJobRequest, _: jobs.Call
) -> pb.EnqueueJobResponse:
    """The framework, the parsing and the answer, and nothing else."""
    return ANSWER


if __name__ == "__main__":
    url, port, *more = sys.argv[1:]
    if more == ["--constant"]:
        jobs.JobService.enqueue_job = constant  # type: ignore[method-assign]
    uvloop.run(run(url, Place(port=int(port)), Settings(), ServerLog("text")))
