"""Reading: pages, logs, counts, reasons, and what a registry says of itself."""

import asyncio
from datetime import timedelta

import pytest

from holdfast.core.derived_ids import derived_id
from holdfast.core.errors import Conflict, Invalid, NotFound
from holdfast.core.lifecycle import HandoffStep, Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobFilter, JobRequest
from holdfast.testing.world import World, output
from tests.registry.faulty_stores import breathe


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_has_from_one_to_a_thousand_items(world: World, limit: int) -> None:
    await world.enqueue("job-1")
    for page in (
        world.registry.list_jobs(limit=limit),
        world.registry.logs("job-1", limit=limit),
        world.registry.events(limit=limit),
    ):
        with pytest.raises(Invalid, match="page"):
            await page


async def test_a_short_id_is_long_enough_to_be_looked_for(world: World) -> None:
    await world.enqueue("job-1")

    with pytest.raises(Invalid, match="at least 4 characters"):
        await world.registry.list_jobs(JobFilter(short_id="job"))

    assert len((await world.registry.list_jobs(JobFilter(short_id="job-"))).jobs) == 1


async def test_what_is_not_there_is_not_found(world: World) -> None:
    for read in (
        world.registry.status("nobody"),
        world.registry.history("nobody"),
        world.registry.logs("nobody"),
        world.registry.why("nobody"),
        world.registry.acquire("nobody", owner="w"),
        world.registry.cancel("nobody", actor="user:ana"),
        world.registry.replay("nobody", actor="user:ana"),
    ):
        with pytest.raises(NotFound) as caught:
            await read
        assert caught.value.job_id == "nobody"


async def test_why_counts_the_others_and_names_the_holder_of_the_lock(world: World) -> None:
    await world.enqueue("one", lock="disk")
    assert "No known worker serves queue default" in await world.registry.why("one")
    await world.enqueue("two", lock="disk")
    await world.enqueue("three")
    await world.registry.acquire("one", owner="w")

    assert "worker-" not in await world.registry.why("one")
    assert "held by job one" in await world.registry.why("two")
    assert "beside 1 other job." in await world.registry.why("three")


async def test_reading_many_keeps_the_order_asked_for(world: World) -> None:
    await world.enqueue("a")
    await world.enqueue("b", queue="other")

    jobs = await world.registry.status_many(["b", "nobody", "a"])

    assert [job and job.job_id for job in jobs] == ["b", None, "a"]
    assert await world.registry.counts("other") == {State.QUEUED: 1}
    page = await world.registry.list_jobs(JobFilter(queue="other"))
    assert [job.job_id for job in page.jobs] == ["b"]


async def test_a_registry_describes_its_store_and_tells_its_time(world: World) -> None:
    assert world.local.describe() == world.store.describe()
    assert await world.registry.now() == world.clock.now()
    assert (await world.registry.locks("disk")).token == 0


async def test_waiting_for_change_ends_with_a_commit_or_with_its_time(world: World) -> None:
    mark = world.registry.change_mark()
    await world.enqueue("job-1")
    await world.registry.changes(since=mark, timeout=1e6)

    silent = asyncio.create_task(world.registry.changes(timeout=5))
    await breathe()
    assert not silent.done()

    while not silent.done():  # one who asks a server begins to wait a little later
        world.clock.advance(5.1)
        await asyncio.sleep(0.01)
    await silent


async def test_a_task_token_stands_for_its_grant_and_no_other(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()

    token = await world.local.seal_task_token(grant)
    claimed = await world.local.unseal_task_token(token)

    assert (claimed.job_id, claimed.attempt, claimed.fencing_token) == ("job-1", 1, 1)
    with pytest.raises(NotFound):
        await world.local.unseal_task_token(token[:-8] + "AAAAAAAA")


async def test_acquiring_can_create_the_very_job_it_names(world: World) -> None:
    request = JobRequest(spec=Spec(lock="disk"), job_id="job-1")

    grant = await world.registry.acquire("job-1", owner="w", create=request)

    assert await world.types("job-1") == ["job_queued", "job_claimed"]
    assert (await world.registry.locks("disk")).holder == "job-1"
    with pytest.raises(Invalid, match="must name the job_id"):
        await world.registry.acquire("job-2", owner="w", create=request)
    with pytest.raises(Conflict, match="owned by w"):
        await world.registry.acquire("job-1", owner="x", create=request)
    await world.registry.complete(grant, Success())
    await world.check()


@pytest.mark.parametrize(
    "request_",
    [
        JobRequest(spec=Spec(), job_id="a", request_id="b"),
        JobRequest(spec=Spec(), job_id="a b"),
        JobRequest(spec=Spec(), request_id="a/b"),
        JobRequest(spec=Spec(), correlation_id="a b"),
        JobRequest(spec=Spec(), trace_id="a b"),
        JobRequest(spec=Spec(), submitted_by="x\udcff"),
        JobRequest(spec=Spec(priority=10)),
    ],
)
async def test_a_request_that_cannot_stand_is_invalid_and_no_job_is_made(
    world: World, request_: JobRequest
) -> None:
    good = JobRequest(spec=Spec())

    with pytest.raises(Invalid):
        await world.registry.enqueue_many([good, request_], actor="user:ana")

    assert await world.registry.counts() == {}


async def test_a_request_is_one_job_in_its_queue_and_another_in_the_next(world: World) -> None:
    here = JobRequest(spec=Spec(), request_id="r", correlation_id="c-1", trace_id="t-1")
    there = JobRequest(spec=Spec(queue="other"), request_id="r", submitted_by="user:bo")

    jobs = await world.registry.enqueue_many([here, there, here], actor="user:ana")

    assert jobs[0] == jobs[2]
    assert jobs[0].job_id == derived_id("default", "r") != jobs[1].job_id
    assert (jobs[0].correlation, jobs[0].trace_id) == ("c-1", "t-1")
    assert (jobs[0].submitted_by, jobs[1].submitted_by) == ("user:ana", "user:bo")


async def test_claims_name_a_queue_an_owner_and_a_sane_number(world: World) -> None:
    for claim in (
        world.registry.claim([], owner="w"),
        world.registry.claim(["a b"], owner="w"),
        world.registry.claim(["default"], owner="w w"),
        world.registry.claim(["default"], owner="w", limit=0),
        world.registry.claim(["default"], owner="w", limit=1001),
        world.registry.acquire("job-1", owner=""),
    ):
        with pytest.raises(Invalid):
            await claim


async def test_a_claim_that_is_invalid_says_so_instead_of_finding_nothing(world: World) -> None:
    await world.enqueue("job-1")

    with pytest.raises(Invalid):
        await world.registry.claim(["default"], owner="w", lease=timedelta(days=2))


async def test_published_events_before_the_newest_are_refused_unless_they_are_known(
    world: World,
) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    await world.registry.publish(grant, [output(n, world=world) for n in (1, 2, 5)])

    grown = await world.registry.publish(grant, [output(n, world=world) for n in (2, 5, 6)])
    with pytest.raises(Invalid, match="Sequence 3 comes after 6"):
        await world.registry.publish(grant, [output(3, world=world), output(7, world=world)])

    assert grown.published == 6
    log = await world.registry.logs("job-1")
    assert [e.sequence for e in log.events if e.sequence] == [1, 2, 5, 6]


@pytest.mark.parametrize("end", ["succeeded", "running"])
async def test_only_a_job_that_ended_without_success_is_replayed(world: World, end: str) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()
    await world.registry.heartbeat(grant)
    if end == "succeeded":
        await world.registry.complete(grant, Success())

    with pytest.raises(Conflict, match=f"is {end}") as caught:
        await world.registry.replay("job-1", actor="user:ana")

    assert caught.value.version == (await world.registry.status("job-1")).version


async def test_a_replay_nobody_may_make_leaves_no_link(world: World) -> None:
    await world.enqueue("job-1")
    await world.registry.cancel("job-1", actor="user:ana")

    with pytest.raises(Invalid, match="needs a kind"):
        await world.registry.replay("job-1", actor="stranger", replay_id="r-1")

    assert await world.types("job-1") == ["job_queued", "job_cancelled"]
    assert len((await world.registry.logs("job-1")).events) == 2


async def test_a_replay_without_an_id_makes_a_new_job_each_time(world: World) -> None:
    await world.enqueue("job-1", delay=timedelta(hours=1))
    await world.registry.cancel("job-1", actor="user:ana")

    made = [await world.registry.replay("job-1", actor="user:ana") for _ in range(2)]

    assert made[0].job_id != made[1].job_id
    assert all(job.spec.replayed_from == "job-1" for job in made)
    assert all(job.ready_at == world.clock.now() for job in made)


async def test_a_checkpoint_that_is_no_small_json_is_invalid(world: World) -> None:
    await world.enqueue("job-1")
    grant = await world.claim()

    with pytest.raises(Invalid, match="checkpoint"):
        await world.registry.heartbeat(grant, checkpoint=object())

    assert (await world.registry.status("job-1")).state == "assigned"


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_sweep_has_a_limit(world: World, limit: int) -> None:
    with pytest.raises(Invalid, match="expires from 1 to"):
        await world.registry.expire(limit=limit)


async def test_an_acquire_repeated_after_its_grant_is_gone_is_refused_for_ever(
    world: World,
) -> None:
    await world.enqueue("job-1")
    first = await world.registry.acquire("job-1", owner="w-1", op_id="key-1")
    await world.registry.release(first)
    second = await world.registry.acquire("job-1", owner="w-2", op_id="key-2")
    await world.registry.release(second)

    with pytest.raises(Conflict, match="its grant is gone"):
        await world.registry.acquire("job-1", owner="w-1", op_id="key-1")

    assert (await world.registry.status("job-1")).state is State.QUEUED


async def test_an_acquire_is_not_kept_waiting_by_a_lock_whose_holder_lapsed(world: World) -> None:
    await world.enqueue("one", lock="disk")
    await world.enqueue("two", lock="disk")
    await world.registry.acquire("one", owner="w-1")
    with pytest.raises(Conflict, match="locked by job one"):
        await world.registry.acquire("two", owner="w-2")
    world.clock.advance(61)

    grant = await world.registry.acquire("two", owner="w-2")

    assert grant.fencing_token == 2


async def test_what_was_made_before_a_refusal_is_said(world: World) -> None:
    await world.enqueue("taken")
    requests = [
        JobRequest(spec=Spec(), job_id="new"),
        JobRequest(spec=Spec(priority=1), job_id="taken"),
    ]

    with pytest.raises(Conflict, match="The 1 others were made"):
        await world.registry.enqueue_many(requests, actor="user:ana")

    assert (await world.registry.status("new")).state is State.QUEUED


async def test_a_request_alone_is_refused_without_a_word_about_others(world: World) -> None:
    await world.enqueue("taken")

    with pytest.raises(Conflict, match="different request") as caught:
        await world.enqueue("taken", priority=1)

    assert "others" not in caught.value.message.removeprefix("Job taken exists already")[40:]


async def test_a_handle_is_kept_as_text(world: World) -> None:
    request = JobRequest(spec=Spec(executor="k8s"), job_id="job-1", register=True)
    await world.registry.enqueue(request, actor="user:ana")
    await world.registry.handoff("job-1", HandoffStep.BEGIN, actor="user:ana")

    job = await world.registry.handoff(
        "job-1",
        HandoffStep.DONE,
        actor="user:ana",
        handle={"uid": 12},  # type: ignore[dict-item]
    )

    assert job.handle == {"uid": "12"}


async def test_a_replay_whose_id_is_taken_is_refused(world: World) -> None:
    await world.enqueue("job-1")
    await world.registry.cancel("job-1", actor="user:ana")
    await world.enqueue(derived_id("job-1", "replay", "r-1"), priority=1)

    with pytest.raises(Conflict):
        await world.registry.replay("job-1", actor="user:ana", replay_id="r-1")

    assert len((await world.registry.logs("job-1")).events) == 2


@pytest.mark.parametrize("bad", ["a\0b", "\ud800"])
async def test_a_filter_that_is_no_text_is_refused(world: World, bad: str) -> None:
    await world.enqueue("job-1", labels={"team": "blue"})
    for which in (
        JobFilter(labels={"team": bad}),
        JobFilter(labels={bad: "blue"}),
        JobFilter(queue=bad),
    ):
        with pytest.raises(Invalid):
            await world.registry.list_jobs(which)
    page = await world.registry.list_jobs(JobFilter(labels={"team": "blue"}))
    assert len(page.jobs) == 1


async def test_a_cursor_is_sealed_for_its_holder(world: World) -> None:
    sealed = await world.local.seal_cursor("1.7", holder="key:ana/feed")

    assert await world.local.unseal_cursor(sealed, holder="key:ana/feed") == "1.7"
    with pytest.raises(Invalid):
        await world.local.unseal_cursor(sealed, holder="key:eve/feed")


async def test_why_can_leave_out_how_many_others_wait(world: World) -> None:
    for n in range(3):
        await world.enqueue(f"job-{n}")

    assert "beside 2 other jobs" in await world.local.why("job-0")
    assert "beside" not in await world.local.why("job-0", beside=False)


async def test_why_tells_a_queue_that_nobody_serves_from_busy_workers_and_from_unknown_kinds(
    world: World,
) -> None:
    async def announce(name: str, **more: object) -> None:
        await world.registry.announce(
            name,
            instance=name,
            queues=["default"],
            slots=2,
            kinds=["report"],
            **more,  # type: ignore[arg-type]
        )

    await announce("w1", busy=2)
    for n in range(3):
        await world.enqueue(f"job-{n}", kind="report")
    await world.enqueue("typo", kind="report", queue="defualt")
    await world.enqueue("newer", kind="report:2")
    await world.enqueue("command", priority=0)

    assert "Did you mean queue default? w1 serves it." in await world.registry.why("typo")
    assert "not for report:2, only for report (w1)" in await world.registry.why("newer")
    assert "served by w1, but not for commands" in await world.registry.why("command")
    assert (
        "w1, the only worker that can run it, is busy, with 2 of 2 slots taken 0.0 s ago;"
        " 3 jobs are ahead of it in its queue."
    ) in await world.registry.why("job-2")
    await announce("w2")
    assert "claimed by w2, with 2 free slots 0.0 s ago" in await world.registry.why("job-2")
    hidden = await world.local.why("typo", beside=False, reaches=lambda queue: queue != "default")
    assert ("mean" in hidden, "w1" in hidden) == (False, False)


async def test_why_says_how_long_a_job_runs_and_since_when_it_is_silent(world: World) -> None:
    await world.enqueue("job-1", timeout=timedelta(hours=1))
    grant = await world.claim(lease=timedelta(hours=2))
    await world.registry.heartbeat(grant)
    world.clock.advance(60)
    silent = await world.registry.why("job-1")
    await world.registry.publish(grant, [output(1, world=world)])
    world.clock.advance(240)

    assert "It has been running for 60 s, without any output or event so far." in silent
    assert "It has been running for 5 min, its last output or event came 4 min ago." in (
        await world.registry.why("job-1")
    )


async def test_a_queue_whose_jobs_somebody_runs_is_served(world: World) -> None:
    for n in range(2):
        await world.enqueue(f"job-{n}")
    await world.claim()

    assert "and waits for a worker on queue default" in await world.registry.why("job-1")
