"""Looking for outputs and judging them: what is refused before anything is written, and repeats."""

from datetime import timedelta
from typing import cast

import pytest
from msgspec.structs import replace

from conftest import Run
from holdfast.core.errors import Conflict, Invalid, NotFound
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import Found, Output
from holdfast.core.state import State
from holdfast.ports import Request
from holdfast.testing.verdict_contract import PROMISING
from holdfast.testing.world import World

VALIDATOR, OTHER = "validator:v-1", "validator:v-2"
SOME = Found(verified=5, missing=3, names=("weights",))
MORE = Found(verified=6, missing=2, names=("weights",))
ALL = Found(verified=8)


async def await_verdict(world: World) -> Job:
    await world.registry.enqueue(Request(spec=PROMISING, job_id="job-1"), actor="user:ana")
    return await world.registry.complete(await world.claim(), Success(where="box-1:/data"))


def seen(job: Job) -> Job:
    """All that a log knows of a job: without signs of life, and when it was written last."""
    return replace(job, check=None, updated_at=job.created_at)


def test_a_validation_from_the_first_look_to_the_last_verdict(run: Run) -> None:
    async def body(world: World) -> None:
        done = await await_verdict(world)
        await world.registry.look("job-1", actor=VALIDATOR, version=done.version, total=8)
        with pytest.raises(Conflict, match="is looking for its outputs already"):
            await world.registry.look("job-1", actor=OTHER)
        partial = await world.registry.judge(
            "job-1", SOME, actor=VALIDATOR, version=done.version, reason="three are late"
        )
        with pytest.raises(Conflict, match="has judged it since"):
            await world.registry.judge("job-1", ALL, actor=OTHER, version=done.version)
        with pytest.raises(Conflict, match="has judged it since"):
            await world.registry.look("job-1", actor=OTHER, version=done.version)

        ended = await world.registry.judge("job-1", ALL, actor=OTHER, version=partial.version)

        assert (partial.state, partial.reason) == (State.PARTIAL_SUCCESS, "three are late")
        assert (ended.state, ended.found) == (State.SUCCEEDED, ALL)
        assert (await world.registry.get("job-1")).found == ALL
        await world.check()

    run(body)


@pytest.mark.parametrize("found", [SOME, ALL, Found(missing=8)])
def test_a_repeated_verdict_is_answered_from_history_whatever_came_after(
    run: Run, found: Found
) -> None:
    async def body(world: World) -> None:
        done = await await_verdict(world)

        async def judge() -> Job:
            return await world.registry.judge(
                "job-1", found, actor=VALIDATOR, op_id="op-1", version=done.version
            )

        first = await judge()
        for _ in range(2):
            history = await world.registry.history("job-1")
            assert seen(await judge()) == seen(first)
            assert await world.registry.history("job-1") == history
            world.clock.advance(1)
            if first.state is State.PARTIAL_SUCCESS:
                await world.registry.judge("job-1", ALL, actor=OTHER, op_id="op-2")

    run(body)


def test_other_findings_are_repeated_as_they_were_told(run: Run) -> None:
    async def body(world: World) -> None:
        await await_verdict(world)
        partial = await world.registry.judge("job-1", SOME, actor=VALIDATOR)
        world.clock.advance(100)

        async def judge() -> Job:
            return await world.registry.judge(
                "job-1", MORE, actor=VALIDATOR, op_id="op-1", version=partial.version
            )

        first = await judge()
        assert (first.found, first.ended_at) == (MORE, partial.ended_at)
        assert seen(await judge()) == seen(first)
        world.clock.advance(100)
        await world.registry.judge("job-1", ALL, actor=OTHER, op_id="op-2")
        assert seen(await judge()) == seen(first)
        assert (await world.registry.get("job-1")).state is State.SUCCEEDED

    run(body)


def test_the_same_findings_again_say_nothing_and_look_again_later(run: Run) -> None:
    async def body(world: World) -> None:
        await await_verdict(world)
        first = await world.registry.judge("job-1", SOME, actor=VALIDATOR)
        world.clock.advance(3600)

        again = await world.registry.judge("job-1", SOME, actor=VALIDATOR)

        assert seen(again) == seen(first)
        assert again.check is not None
        assert again.check.next_at == world.clock.now() + timedelta(hours=1)
        assert len(await world.registry.history("job-1")) == first.version

    run(body)


def test_an_operators_word_is_on_record_with_its_reason(run: Run) -> None:
    async def body(world: World) -> None:
        await await_verdict(world)
        with pytest.raises(Invalid, match="needs a reason"):
            await world.registry.judge("job-1", actor="user:ana", override=State.SUCCEEDED)

        job = await world.registry.judge(
            "job-1", actor="user:ana", override=State.SUCCEEDED, reason="x" * 5000
        )

        [*_, event] = await world.registry.history("job-1")
        assert (job.state, job.found) == (State.SUCCEEDED, None)
        assert (event.actor, event.attributes) == ("user:ana", {"override": True})
        assert event.reason is not None
        assert event.reason.endswith("… [shortened]")

    run(body)


@pytest.mark.parametrize(
    ("found", "evidence", "words"),
    [
        (Found(verified=7), (), "7 verified and 0 missing outputs are not the 8"),
        (Found(verified=cast("int", "8")), (), "Found is not what it should be"),
        (replace(ALL, names=("\udcff",)), (), "What was found cannot be written as JSON"),
        (replace(ALL, names=("x" * 70_000,)), (), "What was found has 70,"),
        (ALL, (Output(name="x"),) * 101, "At most 100 outputs are told one by one"),
        (ALL, (Output(name=cast("str", 7)),), "Output is not what it should be"),
        (ALL, (Output(name="x", path="y" * 4000),) * 20, "What was found has 80,"),
    ],
)
def test_findings_that_cannot_be_kept_are_refused(
    run: Run, found: Found, evidence: tuple[Output, ...], words: str
) -> None:
    async def body(world: World) -> None:
        await await_verdict(world)

        with pytest.raises(Invalid, match=words):
            await world.local.judge("job-1", found, actor=VALIDATOR, evidence=evidence)

        assert (await world.local.get("job-1")).state is State.VALIDATING

    run(body)


def test_as_much_evidence_as_is_taken_is_kept(run: Run) -> None:
    async def body(world: World) -> None:
        await await_verdict(world)
        evidence = [Output(name=f"{n:0100}", sha256="a" * 64, size=n) for n in range(100)]

        await world.registry.judge("job-1", ALL, actor=VALIDATOR, evidence=evidence)

        [*_, event] = await world.registry.history("job-1")
        told = event.attributes["evidence"]
        assert isinstance(told, list)
        assert len(told) == 100

    run(body)


@pytest.mark.parametrize("actor", ["", "ana", "robot:r"])
def test_who_looks_or_judges_has_a_name(run: Run, actor: str) -> None:
    async def body(world: World) -> None:
        await await_verdict(world)

        with pytest.raises(Invalid, match="actor"):
            await world.local.look("job-1", actor=actor)
        with pytest.raises(Invalid, match="actor"):
            await world.local.judge("job-1", ALL, actor=actor)

    run(body)


def test_a_look_of_the_wrong_kind_is_refused(run: Run) -> None:
    async def body(world: World) -> None:
        await await_verdict(world)

        with pytest.raises(Invalid, match="Look is not what it should be"):
            await world.local.look("job-1", actor=VALIDATOR, done=cast("int", "many"))

    run(body)


def test_the_outputs_of_no_job_are_not_looked_for(run: Run) -> None:
    async def body(world: World) -> None:
        with pytest.raises(NotFound):
            await world.registry.look("x", actor=VALIDATOR)
        with pytest.raises(NotFound):
            await world.registry.judge("x", ALL, actor=VALIDATOR)

    run(body)


def test_what_was_not_run_was_not_found_before_either(run: Run) -> None:
    async def body(world: World) -> None:
        request = Request(spec=PROMISING, job_id="job-1", found=ALL)
        with pytest.raises(Invalid, match="it was found by nobody"):
            await world.local.acquire("job-1", owner="w", create=request)
        await world.enqueue("maker")
        grant = await world.claim()
        follow_up = Request(spec=PROMISING, found=ALL)
        with pytest.raises(Invalid, match=r"follow_ups\[0\]: A follow-up is there to be run"):
            await world.local.complete(grant, Success(), follow_ups=[follow_up])
        for found, words in (
            (Found(verified=7, missing=1), "Only a job whose promised outputs were all found"),
            (Found(verified=cast("int", "8")), "Found is not what it should be"),
            (Found(verified=8, names=("x" * 70_000,)), "What was found has 70,"),
        ):
            with pytest.raises(Invalid, match=words):
                await world.local.enqueue(replace(request, found=found), actor=VALIDATOR)
        assert await world.store.get(["job-1"]) == [None]

    run(body)


def test_a_registry_knows_once_what_it_saw_end_without_success(run: Run) -> None:
    async def body(world: World) -> None:
        plain = replace(PROMISING, promised_outputs=0, outputs=None)
        for job_id, spec in (("a", PROMISING), ("b", plain)):
            await world.registry.enqueue(Request(spec=spec, job_id=job_id), actor="user:ana")
            await world.registry.cancel(job_id, actor="user:ana")

        assert world.local.take_unverified() == ["a"]
        assert world.local.take_unverified() == []
        await world.registry.judge("a", SOME, actor=VALIDATOR)
        assert world.local.take_unverified() == []

    run(body)
