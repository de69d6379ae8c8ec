"""The contract of a store: promised outputs, their validation, their verdict, and resumes."""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from holdfast.core.errors import Conflict, HoldfastError
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import File, Output, OutputPromise, ValidationProgress, ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobRequest
from holdfast.testing.world import Opener, World, in_world

VALIDATOR, OTHER = "validator:v-1", "validator:v-2"
PROMISE = OutputPromise(
    files=(File("model.pt", None, 3, "a" * 64), File("run-7/*.parquet", 4)),
    names=("weights",),
    manifest="b" * 64,
    entries=5,
    store="s-1",
    place="file:///data/out",
)
PROMISING = Spec(queue="default", outputs=PROMISE, promised_outputs=8)
SOME = ValidationResult(verified=5, missing=3, reused=2, names=("model.pt", "weights"), report="reports/1")
ALL = ValidationResult(verified=8, reused=1)
EVIDENCE = (
    Output(name="weights", missing="it is not there"),
    Output(name="model.pt", path="/data/model.pt", size=3, sha256="a" * 64, reused=True),
)
MINUTE = timedelta(minutes=1)


async def await_verdict(world: World, job_id: str = "job-1") -> Job:
    """Return a job whose work is done, and whose eight outputs are to be validated."""
    await world.registry.enqueue(JobRequest(spec=PROMISING, job_id=job_id), actor="user:ana")
    grant: Grant = await world.registry.acquire(job_id, owner="w")
    return await world.registry.complete(grant, Success(where="box-1:/data"))


async def kept(world: World, job_id: str = "job-1") -> Job:
    [job] = await world.store.get([job_id])
    assert job is not None
    return job


class VerdictContract:
    open: Opener

    @in_world
    async def test_a_promise_is_read_back_whole(self, world: World) -> None:
        done = await await_verdict(world)

        assert await kept(world) == done
        assert done.spec == PROMISING
        assert done.state is State.VALIDATING
        assert done.check == ValidationProgress(
            where="box-1:/data", next_at=world.clock.now() + timedelta(seconds=15)
        )
        again = JobRequest(spec=PROMISING, job_id="job-1")
        assert await world.registry.enqueue(again, actor="user:ana") == done
        await world.check()

    @in_world
    async def test_a_look_is_kept_without_a_new_version_also_after_the_end(self, world: World) -> None:
        done = await await_verdict(world)
        for ended in (False, True):
            if ended:
                done = await world.registry.complete_validation("job-1", SOME, actor=VALIDATOR)
            world.clock.advance(1)
            looked = await world.registry.report_validation("job-1", actor=VALIDATOR, done=3, total=8)

            assert await kept(world) == looked == replace(done, check=looked.check)
            assert looked.check == replace(
                done.check or ValidationProgress(),
                by=VALIDATOR,
                until=world.clock.now() + MINUTE,
                done=3,
                total=8,
            )
            assert len(await world.registry.history("job-1")) == done.version
        await world.check()

    @in_world
    async def test_who_looks_keeps_the_others_away(self, world: World) -> None:
        await await_verdict(world)

        answers = await asyncio.gather(
            *(world.registry.report_validation("job-1", actor=f"validator:v-{n}") for n in range(8)),
            return_exceptions=True,
        )

        won = [answer for answer in answers if isinstance(answer, Job)]
        assert len(won) == 1
        assert all(isinstance(a, Job | Conflict) for a in answers)
        assert await kept(world) == won[0]

    @in_world
    async def test_trouble_is_kept_and_its_facts_are_in_the_log(self, world: World) -> None:
        done = await await_verdict(world)
        for tries in range(1, 6):
            world.clock.advance(60)
            job = await world.registry.report_validation("job-1", actor=VALIDATOR, trouble="no bucket")

            assert await kept(world) == job == replace(done, check=job.check)
            assert job.check is not None
            assert (job.check.tries, job.check.reason) == (tries, "no bucket")
            assert (job.check.by, job.check.where) == (None, "box-1:/data")
        log = await world.registry.logs("job-1")
        unseen = [e for e in log.events if e.event_type == "job_outputs_unseen"]
        assert [event.attributes for event in unseen] == [{"tries": n} for n in (1, 2, 3)]
        assert {event.reason for event in unseen} == {"no bucket"}
        await world.check()

    @in_world
    async def test_every_verdict_and_its_evidence_are_read_back_whole(self, world: World) -> None:
        done = await await_verdict(world)
        steps = ((SOME, 5), (replace(SOME, verified=6, missing=2), 6), (ALL, 7))
        for found, version in steps:
            world.clock.advance(1)
            judged = await world.registry.complete_validation(
                "job-1", found, actor=VALIDATOR, evidence=EVIDENCE, version=done.version
            )

            assert await kept(world) == judged
            assert (judged.found, judged.version) == (found, version)
            [history] = await world.store.histories(["job-1"])
            assert history[-1].attributes["evidence"] == [
                {"name": "weights", "missing": "it is not there"},
                {
                    "name": "model.pt", "path": "/data/model.pt", "size": 3,
                    "sha256": "a" * 64, "reused": True,
                },
            ]  # fmt: skip
            await world.check()
            done = judged
        assert done.state is State.SUCCEEDED
        assert await world.store.counts() == {State.SUCCEEDED: 1}
        assert (await world.types("job-1"))[4:] == [
            "job_partially_succeeded", "job_outputs_verified", "job_succeeded",
        ]  # fmt: skip

    @in_world
    async def test_what_a_failed_job_left_is_read_back_whole_and_its_end_stays(self, world: World) -> None:
        await world.registry.enqueue(JobRequest(spec=PROMISING, job_id="job-1"), actor="user:ana")
        grant = await world.registry.acquire("job-1", owner="w")
        failure = Failure(message="no", retryable=False, where="box-1:/data")
        ended = await world.registry.complete(grant, failure)
        for found in (SOME, replace(SOME, verified=6, missing=2), ALL):
            world.clock.advance(1)
            judged = await world.registry.complete_validation(
                "job-1", found, actor=VALIDATOR, evidence=EVIDENCE, version=ended.version
            )

            assert await kept(world) == judged
            assert judged == replace(
                ended,
                found=found,
                check=ValidationProgress(where="box-1:/data"),
                version=ended.version + 1,
                updated_at=world.clock.now(),
            )
            again = await world.registry.complete_validation("job-1", found, actor=OTHER)
            assert again == judged
            await world.check()
            ended = judged
        assert (ended.state, ended.error) == (
            State.FAILED,
            Failure(message="no", retryable=False),
        )
        assert await world.store.counts() == {State.FAILED: 1}
        assert (await world.types("job-1"))[3:] == ["job_failed"] + 3 * ["job_outputs_verified"]

    @in_world
    async def test_of_many_judges_of_one_version_one_is_heard(self, world: World) -> None:
        done = await await_verdict(world)

        async def complete(n: int) -> Job | HoldfastError:
            found = ValidationResult(verified=n, missing=8 - n)
            try:
                return await world.registry.complete_validation(
                    "job-1", found, actor=f"validator:v-{n}", version=done.version
                )
            except Conflict as error:
                return error

        answers = await asyncio.gather(*map(complete, range(8)))

        heard = [answer for answer in answers if isinstance(answer, Job)]
        assert heard == [await kept(world)]
        assert len(await world.registry.history("job-1")) == done.version + 1
        await world.check()

    @in_world
    async def test_of_a_verdict_and_an_override_one_is_heard(self, world: World) -> None:
        await await_verdict(world)

        answers = await asyncio.gather(
            world.registry.complete_validation("job-1", ValidationResult(missing=8), actor=VALIDATOR),
            world.registry.complete_validation(
                "job-1", actor="user:ana", override=State.SUCCEEDED, reason="seen"
            ),
            return_exceptions=True,
        )

        [heard] = [answer for answer in answers if isinstance(answer, Job)]
        assert await kept(world) == heard
        assert heard.ended
        await world.check()

    @in_world
    async def test_a_job_with_nothing_left_to_do_is_made_ended_in_one_commit(self, world: World) -> None:
        request = JobRequest(spec=PROMISING, job_id="job-1", found=replace(ALL, reused=8))
        job = await world.registry.enqueue(request, actor=VALIDATOR)

        assert await kept(world) == job
        assert (job.state, job.version, job.fencing_token) == (State.SUCCEEDED, 5, 1)
        assert await world.registry.claim(["default"], owner="w") == []
        assert await world.store.counts() == {State.SUCCEEDED: 1}
        [history] = await world.store.histories(["job-1"])
        assert [event.offset for event in history] == [1, 2, 3, 4, 5]
        feed = await world.store.events(after=None, limit=100)
        assert [e.event_id for e in feed.events] == [e.event_id for e in history]
        assert await world.registry.enqueue(request, actor=VALIDATOR) == job
        await world.check()

    @in_world
    async def test_a_partial_success_is_resumed_in_one_commit_with_its_link(self, world: World) -> None:
        await await_verdict(world)
        partial = await world.registry.complete_validation("job-1", SOME, actor=VALIDATOR)
        lacking = OutputPromise(names=("weights",), store="s-1")

        made = await world.registry.resume("job-1", lacking, actor="user:ana", resume_id="r-1")

        assert await kept(world, made.job_id) == made
        assert made.spec.resumed_from == "job-1"
        assert await kept(world) == partial
        log = await world.registry.logs("job-1")
        [link] = [e for e in log.events if e.event_type == "job_resumed"]
        assert link.attributes == {"resumed_as": made.job_id, "version": partial.version}
        assert await world.store.counts() == {State.PARTIAL_SUCCESS: 1, State.QUEUED: 1}
        await world.check()

    @in_world
    async def test_a_partial_success_that_is_looked_at_can_be_forgotten(self, world: World) -> None:
        await await_verdict(world)
        await world.registry.complete_validation("job-1", SOME, actor=VALIDATOR)
        await world.registry.report_validation("job-1", actor=OTHER, trouble="no bucket")
        await await_verdict(world, "job-2")
        world.clock.advance(3600)

        await world.registry.prune(older_than=timedelta(minutes=30))

        assert await world.store.get(["job-1"]) == [None]
        assert (await kept(world, "job-2")).state is State.VALIDATING
        await world.check()
