"""Acceptance scenarios 1 to 4 and 6: the life of a job, on every store."""

import asyncio

import msgspec
import pytest

from holdfast.core.errors import Conflict
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Success
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.retry import COMMAND_RETRY
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobFilter, JobRequest
from holdfast.testing.world import World, output


async def test_a_job_lives_from_submit_to_success_in_four_events(world: World) -> None:
    """Scenario 1, as far as the registry goes."""

    payload = encode_process_spec(ProcessSpec(argv=("echo", "hi")))
    job = await world.enqueue(payload=payload, retry=COMMAND_RETRY)
    grant = await world.claim()
    await world.registry.heartbeat(grant)
    await world.registry.publish(grant, [output(1, "hi\n", world=world)])
    done = await world.registry.complete(grant, Success(result={"exit_code": 0}))

    history = await world.registry.history(job.job_id)
    log = await world.registry.logs(job.job_id)

    assert (done.state, done.result) == (State.SUCCEEDED, {"exit_code": 0})
    assert [(e.event_type, e.transition_no) for e in history] == [
        ("job_queued", 1),
        ("job_claimed", 2),
        ("job_started", 3),
        ("job_succeeded", 4),
    ]
    assert [e.data for e in log.events if e.event_type == "output"] == [b"hi\n"]
    await world.check()


async def test_twenty_equal_requests_at_once_make_one_job(world: World) -> None:
    """Scenario 2."""

    request = JobRequest(spec=Spec(kind="resize"), request_id="order-7")
    first = await world.registry.enqueue(request, actor="user:ana")

    again = await asyncio.gather(*(world.registry.enqueue(request, actor="user:ana") for _ in range(20)))

    assert {job.job_id for job in again} == {first.job_id}
    assert await world.types(first.job_id) == ["job_queued"]
    assert await world.registry.counts() == {State.QUEUED: 1}


async def test_twenty_equal_first_requests_at_once_make_one_job(world: World) -> None:
    """Scenario 2, with nobody before them."""

    request = JobRequest(spec=Spec(kind="resize"), request_id="order-7")

    jobs = await asyncio.gather(*(world.registry.enqueue(request, actor="user:ana") for _ in range(20)))

    [job_id] = {job.job_id for job in jobs}
    assert await world.types(job_id) == ["job_queued"]
    assert await world.registry.counts() == {State.QUEUED: 1}


async def test_one_request_id_with_two_payloads_is_never_accepted(world: World) -> None:
    """Scenario 2 and invariant I12: the key is kept with what was asked."""

    small = Spec(payload=msgspec.Raw(b'{"width":640}'))
    large = Spec(payload=msgspec.Raw(b'{"width":1280}'))
    await world.registry.enqueue(JobRequest(spec=small, request_id="order-7"), actor="user:ana")

    with pytest.raises(Conflict):
        await world.registry.enqueue(JobRequest(spec=large, request_id="order-7"), actor="user:ana")


async def test_a_command_that_exits_3_has_failed_with_3(world: World) -> None:
    """Scenario 3, as far as the registry goes."""

    job = await world.enqueue(retry=COMMAND_RETRY)
    failure = Failure(message="the command exited with 3", code="ExitCode", exit_code=3)

    failed = await world.registry.complete(await world.claim(), failure)

    last = (await world.registry.history(job.job_id))[-1]
    assert failed.state is State.FAILED
    assert failed.error == failure
    assert last.event_type == "job_failed"
    assert last.attributes["error"] == msgspec.to_builtins(failure)
    assert await world.registry.claim(["default"], owner="w") == []
    await world.check()


async def test_jobs_are_claimed_in_order_each_with_its_own_token(world: World) -> None:
    """Scenario 4."""

    for job_id in "ABC":
        await world.enqueue(job_id)

    grants = [await world.claim() for _ in range(3)]

    assert [grant.job_id for grant in grants] == ["A", "B", "C"]
    tokens = [await world.local.seal_task_token(grant) for grant in grants]
    assert len(set(tokens)) == 3


async def test_an_empty_queue_gives_nothing_after_the_wait_the_caller_chose(world: World) -> None:
    """Scenario 4: a dequeue of an empty queue returns after about 5 s."""

    async def dequeue() -> object:
        mark = world.registry.change_mark()
        if grants := await world.registry.claim(["default"], owner="w"):
            return grants
        await world.registry.changes(since=mark, timeout=5)
        return await world.registry.claim(["default"], owner="w")

    waiting = asyncio.create_task(dequeue())
    while not waiting.done():
        world.clock.advance(0.5)
        await world.store.counts()
        await asyncio.sleep(0)

    assert await waiting == []
    assert world.clock.monotonic() >= 5


async def test_120_jobs_are_three_pages_while_new_ones_arrive(world: World) -> None:
    """Scenario 6."""

    requests = [JobRequest(spec=Spec(queue="images"), job_id=f"job-{n:03}") for n in range(120)]
    await world.registry.enqueue_many(requests, actor="user:ana")
    await world.enqueue("elsewhere")
    which = JobFilter(queue="images", states=(State.QUEUED,))
    pages, cursor = [], None
    while True:
        page = await world.registry.list_jobs(which, after=cursor, limit=50)
        pages.append([job.job_id for job in page.jobs])
        await world.enqueue(f"noise-{len(pages)}", queue="other")
        cursor = page.next
        if cursor is None:
            break

    assert [len(page) for page in pages] == [50, 50, 20]
    assert [i for page in pages for i in page] == [f"job-{n:03}" for n in range(120)]


async def test_a_job_that_stays_is_listed_once_though_others_come_and_go(world: World) -> None:
    """Scenario 6 and invariant I27."""

    requests = [JobRequest(spec=Spec(), job_id=f"job-{n:03}") for n in range(120)]
    await world.registry.enqueue_many(requests, actor="user:ana")
    seen, cursor = [], None
    for turn in range(20):
        page = await world.registry.list_jobs(JobFilter(states=(State.QUEUED,)), after=cursor, limit=50)
        seen += [job.job_id for job in page.jobs]
        await world.claim()
        await world.enqueue(f"new-{turn}")
        cursor = page.next
        if cursor is None:
            break

    stayed = [f"job-{n:03}" for n in range(3, 120)]
    assert [job_id for job_id in seen if job_id in set(stayed)] == stayed
    assert len(seen) == len(set(seen))
