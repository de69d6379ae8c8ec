"""A job with published events, and what its streams send."""

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from tests.server.raw_http_client import ThreadedServer
from tests.server.rest.rest_client import EventStream, StreamEvent


def claimed(server: ThreadedServer) -> Grant:
    """Return the grant of a new job."""

    async def make() -> Grant:
        job = await server.registry.enqueue(JobRequest(spec=Spec(kind="report")), actor="user:ana")
        return await server.registry.acquire(job.job_id, owner="w-1")

    grant: Grant = server.do(make())
    return grant


def publish_output(
    server: ThreadedServer, grant: Grant, first: int, last: int, data: bytes = b"hi\n\n: x"
) -> None:
    async def publish() -> None:
        now = await server.registry.now()
        told = [
            Event(
                WorkerEventType.OUTPUT,
                EventClass.WORKER,
                now,
                sequence=number,
                stream="stdout",
                data=b"%d %b" % (number, data),
            )
            for number in range(first, last + 1)
        ]
        await server.registry.publish(grant, told)

    server.do(publish())


def complete(server: ThreadedServer, grant: Grant) -> None:
    server.do(server.registry.complete(grant, Success()))


def path_of(grant: Grant) -> str:
    return f"/v1/jobs/{grant.job_id}/stream"


def event_ids(told: list[StreamEvent]) -> list[str]:
    return [str(one.json()["event_id"]) for one in told]


def logged_ids(server: ThreadedServer, grant: Grant) -> list[str]:
    """Return the ids of all events of the job."""
    log = server.do(server.registry.logs(grant.job_id))
    return [event.event_id for event in log.events]


def read_events(stream: EventStream, count: int) -> list[StreamEvent]:
    """Read this many events, or all there are."""
    told: list[StreamEvent] = []
    for one in stream.events():
        told.append(one)
        if len(told) == count:
            break
    return told


def feed_ids(server: ThreadedServer) -> list[str]:
    return [event.event_id for event in server.do(server.registry.events()).events]
