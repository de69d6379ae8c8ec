"""Clients of the service: those that enqueue as fast as they can, and 64 workers at 200 jobs a second."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from pyqwest import Client, HTTPTransport

from holdfast.system import SystemIds
from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.generated.job.v1.job_connect import JobEventsServiceClient, JobServiceClient

T = TypeVar("T")

ids = SystemIds()
PARAMS = pb.JobParams(command="echo", args=["hi"])


async def enqueues(url: str, seconds: float, clients: int) -> float:
    """Jobs per second that so many clients enqueue, each waiting for its answer."""
    http = Client(HTTPTransport(enable_otel=False))
    method = f"{url}/job.v1.JobService/EnqueueJob"
    headers = {"content-type": "application/proto", "accept-encoding": "identity"}
    done = 0
    until = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal done
        while time.perf_counter() < until:
            asked = pb.EnqueueJobRequest(request_id=ids.new(), queue="q", job_params=PARAMS)
            answer = await http.post(method, headers=headers, content=asked.to_binary())
            assert answer.status == 200, answer.content
            done += 1

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    return done / (time.perf_counter() - begun)


class Load:
    """So many jobs a second for so many workers, each of which polls, extends and completes."""

    def __init__(self, url: str) -> None:
        http = Client(HTTPTransport(enable_otel=False))
        plain = {"send_compression": None, "accept_compression": (), "http_client": http}
        self._jobs = JobServiceClient(url, **plain)  # type: ignore[arg-type]
        self.times: dict[str, list[float]] = defaultdict(list)
        self._due: dict[str, float] = {}
        self.done = 0

    async def _timed(self, name: str, call: Awaitable[T]) -> T:
        begun = time.perf_counter()
        answer = await call
        self.times[name].append(time.perf_counter() - begun)
        return answer

    async def run(self, rate: int, workers: int, seconds: float) -> None:
        working = [asyncio.create_task(self._work(n)) for n in range(workers)]
        begun, sent = time.perf_counter(), []
        for n in range(int(rate * seconds)):
            due = begun + n / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            sent.append(asyncio.create_task(self._enqueue(due)))
        await asyncio.gather(*sent)
        for _ in range(600):
            if self.done >= len(sent):
                break
            await asyncio.sleep(0.05)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    async def _enqueue(self, due: float) -> None:
        asked = pb.EnqueueJobRequest(request_id=ids.new(), queue="load", job_params=PARAMS)
        answer = await self._jobs.enqueue_job(asked)
        self.times["EnqueueJob, from when it was due"].append(time.perf_counter() - due)
        self._due[answer.job_id] = due

    async def _work(self, number: int) -> None:
        asked = pb.DequeueJobRequest(queue="load", max_jobs=1, worker_id=f"worker-{number}")
        while True:
            async for got in self._jobs.dequeue_job(asked):
                assert got.job is not None
                due = self._due.get(got.job.job_id)
                if due is not None:
                    name = "DequeueJob, from when the job was due"
                    self.times[name].append(time.perf_counter() - due)
                await self._one(got.job.job_id, got.task_token)

    async def _one(self, job_id: str, token: str) -> None:
        await self._timed("UpdateJob", self._jobs.update_job(pb.UpdateJobRequest(task_token=token)))
        await self._timed("GetJob", self._jobs.get_job(pb.GetJobRequest(job_id=job_id)))
        result = pb.JobResult(job_id=job_id, success=True)
        asked = pb.CompleteJobRequest(task_token=token, job_result=result)
        await self._timed("CompleteJob", self._jobs.complete_job(asked))
        self.done += 1


async def fan_out(url: str, events: int, streams: int) -> tuple[float, int]:
    """How long it takes to publish so many outputs and to read them all by so many streams; how many
    were lost, doubled or out of order."""
    http = Client(HTTPTransport(enable_otel=False))
    plain = {"send_compression": None, "accept_compression": (), "http_client": http}
    jobs = JobServiceClient(url, **plain)  # type: ignore[arg-type]
    log = JobEventsServiceClient(url, **plain)  # type: ignore[arg-type]
    made = await jobs.enqueue_job(pb.EnqueueJobRequest(queue="fan", job_params=PARAMS))
    [got] = [one async for one in jobs.dequeue_job(pb.DequeueJobRequest(queue="fan"))]
    begun = time.perf_counter()

    async def read() -> int:
        wrong = last = 0
        asked = pb.StreamJobEventsRequest(job_id=made.job_id)
        async for answer in log.stream_job_events(asked):
            sequence = answer.event.sequence if answer.event else 0
            wrong += sequence != last + 1
            last = sequence
        return wrong + (last != events)

    async def said() -> AsyncIterator[pb.PublishJobEventsRequest]:
        for start in range(1, events + 1, 500):
            yield pb.PublishJobEventsRequest(
                task_token=got.task_token,
                events=[output(n) for n in range(start, min(start + 500, events + 1))],
            )

    reading = [asyncio.create_task(read()) for _ in range(streams)]
    await log.publish_job_events(said())
    result = pb.JobResult(job_id=made.job_id, success=True)
    await jobs.complete_job(pb.CompleteJobRequest(task_token=got.task_token, job_result=result))
    wrong = sum(await asyncio.gather(*reading))
    return time.perf_counter() - begun, wrong


def output(n: int) -> pb.JobEvent:
    from protobuf import Oneof

    said = pb.Output(output=f"line {n} of a program that says a lot\n".encode())
    return pb.JobEvent(
        sequence=n,
        event_type=pb.EventType.OUTPUT,
        event_data=Oneof("output", said),  # type: ignore[arg-type]
    )
