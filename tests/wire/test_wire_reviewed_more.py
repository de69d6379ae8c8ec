"""What a hostile review found in the server, second part: grants, limits, and whose a job is."""

import asyncio
import sys
from urllib.parse import urlsplit

import pytest
from protobuf import Message
from wire_load_clients import Clients
from wire_load_world import until
from wire_reviewed_world import Scene, play

from holdfast.core.access import Scope
from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Exhausted, Invalid, NotFound
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.spec import JOB_V1_KIND, Spec
from holdfast.core.state import State
from holdfast.ports import Grant, Request
from holdfast.server.context import Settings
from holdfast.server.grants import Grants
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old

DAY_SECONDS = 24 * 3600


async def leaves_with_the_grant(here: Scene, method: str, asked: Message) -> None:
    """A client that is gone between the commit and the answer."""
    place, body = urlsplit(here.served.url), asked.to_binary()
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    left, real = asyncio.Event(), Grants.seal

    async def seal(self: Grants, grants: list[Grant]) -> list[Grant]:
        writer.transport.abort()
        left.set()
        connections = here.served.server.server_state.connections
        await until(lambda: all(one.transport.is_closing() for one in connections))
        return await real(self, grants)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Grants, "seal", seal)
        head = (
            f"POST /holdfast.v1.RegistryService/{method} HTTP/1.1\r\nhost: {place.netloc}\r\n"
            f"content-type: application/proto\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await left.wait()
        await until(lambda: not here.served.server.server_state.tasks)
    await here.served.app.context.grants.close()


@pytest.mark.parametrize("op_id", [None, "op-1"])
def test_only_a_claim_without_a_name_is_given_back(op_id: str | None) -> None:
    """Who names a claim asks again, elsewhere too, and may have been answered there."""

    async def body(here: Scene) -> None:
        expected = State.QUEUED if op_id is None else State.ASSIGNED
        job = await here.enqueue()
        claim = pb.ClaimRequest(queues=["q"], owner="w", op_id=op_id)
        await leaves_with_the_grant(here, "Claim", claim)
        assert (await here.registry.get(job.job_id)).state is expected

        other = await here.enqueue("other")
        acquire = pb.AcquireRequest(job_id=other.job_id, owner="w", op_id=op_id and "op-2")
        await leaves_with_the_grant(here, "Acquire", acquire)
        assert (await here.registry.get(other.job_id)).state is expected

        again = await here.caller.registry.claim(claim)
        assert [grant.job.job_id for grant in again.grants if grant.job] == [job.job_id]

    play(body)


def test_a_repeat_is_answered_though_the_queue_is_full() -> None:
    async def body(here: Scene) -> None:
        async def ask(*names: str) -> list[str]:
            asked = [Request(spec=Spec(queue="q"), request_id=name) for name in names]
            jobs = await here.remote.enqueue_many(asked, actor="user:a")
            return [job.job_id for job in jobs]

        first = await ask("one", "two")
        assert await ask("one", "two") == first
        assert await ask("two") == first[1:]
        with pytest.raises(Exhausted):
            await ask("two", "three")
        assert await here.registry.counts("q") == {State.QUEUED: 2}

    play(body, Settings(queue_items_max=2))


def test_a_queue_is_not_longer_than_it_may_be_however_many_come_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(here: Scene) -> None:
        asked, real = Request(spec=Spec(queue="q")), here.registry.counts

        async def counts(queue: str | None = None) -> dict[State, int]:
            found = await real(queue)
            await asyncio.sleep(0.2)  # as long as a store may take
            return found

        monkeypatch.setattr(here.registry, "counts", counts)
        got = await asyncio.gather(
            *(here.remote.enqueue(asked, actor="user:a") for _ in range(200)),
            return_exceptions=True,
        )
        assert {type(one) for one in got} == {Job, Exhausted}
        assert await here.registry.counts("q") == {State.QUEUED: 10}

    play(body, Settings(queue_items_max=10))


def test_a_job_that_is_made_by_acquiring_it_counts() -> None:
    async def body(here: Scene) -> None:
        async def make(job_id: str) -> None:
            asked = Request(spec=Spec(queue="q"), job_id=job_id)
            await here.remote.release(await here.remote.acquire(job_id, owner="w", create=asked))

        await make("one")
        await make("two")
        with pytest.raises(Exhausted):
            await make("three")
        await make("two")

    play(body, Settings(queue_items_max=2))


def test_what_is_sent_at_once_is_measured_with_all_that_is_in_it() -> None:
    async def body(here: Scene) -> None:
        labels = {f"k{n}": "v" * 250 for n in range(60)}
        asked = [Request(spec=Spec(queue="q", labels=labels)) for _ in range(100)]
        assert len(await here.remote.enqueue_many(asked, actor="user:a")) == 100

        [grant] = await here.remote.claim(["q"], owner="w")
        said = [
            Event(
                WorkerEventType.CUSTOM,
                EventClass.WORKER,
                here.clock.now(),
                sequence=number,
                attributes={"text": "z" * 20_000},
            )
            for number in range(1, 101)
        ]
        assert (await here.remote.publish(grant, said)).published == 100

    play(body)


def test_one_bad_request_among_many_makes_nothing() -> None:
    async def body(here: Scene) -> None:
        good = [Request(spec=Spec(queue="q")) for _ in range(1_500)]
        bad: list[Request] = [
            Request(spec=Spec(queue="q", priority=99)),
            Request(spec=Spec(queue="q"), job_id="not an id"),
            Request(spec=Spec(queue="q"), request_id="r" * 1_000),
        ]
        for one in bad:
            with pytest.raises(Invalid):
                await here.remote.enqueue_many([*good, one], actor="user:a")
            assert await here.registry.counts("q") == {}

    play(body)


def test_a_key_does_not_own_what_somebody_of_its_name_submitted_at_the_store() -> None:
    async def body(here: Scene) -> None:
        spec = Spec(queue="q")
        await here.registry.enqueue(Request(spec=spec, job_id="theirs"), actor="user:alice")
        _, text = await here.registry.create_key(
            name="alice", scopes=[Scope.SUBMIT], actor="user:root"
        )
        alice, clients = here.served.remote(text), await here.key("alice", Scope.SUBMIT)

        with pytest.raises(NotFound):
            await alice.get("theirs")
        with pytest.raises(NotFound):
            await alice.cancel("theirs", actor="user:alice")

        forged = Request(spec=spec, job_id="hers", submitted_by="user:root")
        assert (await alice.enqueue(forged, actor="user:alice")).submitted_by == "key:alice"
        assert (await alice.cancel("hers", actor="user:alice")).state is State.CANCELLED
        asked = old.EnqueueJobRequest(job_params=old.JobParams(command="echo"))
        made = await clients.jobs.enqueue_job(asked, headers=clients.headers)
        assert (await here.registry.get(made.job_id)).submitted_by == "key:alice"
        await alice.close()

    play(body, Settings(keys=True))


@pytest.mark.parametrize(
    "metadata", [{"note": "v" * 300}, {f"k{n}": "v" for n in range(70)}, {"k" * 300: "v"}]
)
def test_metadata_of_job_v1_comes_back_as_it_was_given(metadata: dict[str, str]) -> None:
    async def body(here: Scene) -> None:
        clients = Clients(here.served.url)
        params = old.JobParams(command="echo", args=["a"], owner="ana", metadata=metadata)
        made = await clients.jobs.enqueue_job(old.EnqueueJobRequest(job_params=params))
        taken = await clients.taken()

        for job in (await clients.get(made.job_id), taken.job):
            assert job is not None
            assert (job.kind, job.job_params) == (JOB_V1_KIND, params)

    play(body, Settings(poll_seconds=0))


def test_more_than_a_day_of_visibility_is_a_day() -> None:
    async def body(here: Scene) -> None:
        clients = Clients(here.served.url)
        await clients.enqueue()
        taken = await clients.taken(visibility_timeout_seconds=2 * DAY_SECONDS)
        assert taken.lease_seconds == DAY_SECONDS
        asked = old.UpdateJobRequest(
            task_token=taken.task_token, visibility_timeout_seconds=2**31 - 1
        )
        assert (await clients.jobs.update_job(asked)).lease_seconds == DAY_SECONDS

    play(body, Settings(poll_seconds=0))


FORK = """
import asyncio, os, sys
from holdfast.sdk.open import open_registry

async def ask(registry):
    try:
        async with asyncio.timeout(20):
            await registry.counts()
        return "answered"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"

async def main(registry=None):
    registry = registry or await open_registry(sys.argv[1])
    print(await ask(registry), flush=True)
    return registry

registry = asyncio.run(main())
if not (child := os.fork()):
    asyncio.run(main())
    asyncio.run(main(registry))
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_process_that_was_forked_is_told_what_to_do() -> None:
    async def body(here: Scene) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", FORK, here.served.url, stdout=asyncio.subprocess.PIPE
        )
        said = (await process.communicate())[0].decode().splitlines()
        assert said[0] == "answered"
        assert len(said) == 3
        for words in said[1:]:
            assert words.startswith("Invalid: ")
            assert "spawn" in words

    play(body)
