"""A job that is spoken about, and what its listeners hear."""

from rest_client import Stream, Told
from wire_bad_client import Peer

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Grant, Request


def held(server: Peer) -> Grant:
    """A job that somebody owns."""

    async def make() -> Grant:
        job = await server.registry.enqueue(Request(spec=Spec(kind="report")), actor="user:ana")
        return await server.registry.acquire(job.job_id, owner="w-1")

    grant: Grant = server.do(make())
    return grant


def speak(server: Peer, grant: Grant, first: int, last: int, data: bytes = b"hi\n\n: x") -> None:
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


def end(server: Peer, grant: Grant) -> None:
    server.do(server.registry.complete(grant, Success()))


def path_of(grant: Grant) -> str:
    return f"/v1/jobs/{grant.job_id}/stream"


def event_ids(told: list[Told]) -> list[str]:
    return [str(one.json()["event_id"]) for one in told]


def whole(server: Peer, grant: Grant) -> list[str]:
    """The ids of all that was said about the job."""
    log = server.do(server.registry.log(grant.job_id))
    return [event.event_id for event in log.events]


def read(stream: Stream, count: int) -> list[Told]:
    """The next so many events, or all there are."""
    told: list[Told] = []
    for one in stream.events():
        told.append(one)
        if len(told) == count:
            break
    return told


def feed(server: Peer) -> list[str]:
    return [event.event_id for event in server.do(server.registry.feed()).events]
