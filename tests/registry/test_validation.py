"""Looking for outputs and judging them: what is refused before anything is written, and repeats."""

from datetime import timedelta
from typing import cast

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict, Invalid, NotFound
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import Output, ValidationResult
from holdfast.core.state import State
from holdfast.ports import JobRequest
from holdfast.testing.verdict_contract import PROMISING
from holdfast.testing.world import World

VALIDATOR, OTHER = "validator:v-1", "validator:v-2"
SOME = ValidationResult(verified=5, missing=3, names=("weights",))
MORE = ValidationResult(verified=6, missing=2, names=("weights",))
ALL = ValidationResult(verified=8)


async def await_verdict(world: World) -> Job:
    await world.registry.enqueue(JobRequest(spec=PROMISING, job_id="job-1"), actor="user:ana")
    return await world.registry.complete(await world.claim(), Success(where="box-1:/data"))


def seen(job: Job) -> Job:
    """All that a log knows of a job: without signs of life, and when it was written last."""
    return replace(job, check=None, updated_at=job.created_at)


async def test_a_validation_from_the_first_look_to_the_last_verdict(world: World) -> None:
    done = await await_verdict(world)
    await world.registry.report_validation("job-1", actor=VALIDATOR, version=done.version, total=8)
    with pytest.raises(Conflict, match="is validating its outputs already"):
        await world.registry.report_validation("job-1", actor=OTHER)
    partial = await world.registry.complete_validation(
        "job-1", SOME, actor=VALIDATOR, version=done.version, reason="three are late"
    )
    with pytest.raises(Conflict, match="validation was completed since"):
        await world.registry.complete_validation("job-1", ALL, actor=OTHER, version=done.version)
    with pytest.raises(Conflict, match="validation was completed since"):
        await world.registry.report_validation("job-1", actor=OTHER, version=done.version)

    ended = await world.registry.complete_validation("job-1", ALL, actor=OTHER, version=partial.version)

    assert (partial.state, partial.reason) == (State.PARTIAL_SUCCESS, "three are late")
    assert (ended.state, ended.found) == (State.SUCCEEDED, ALL)
    assert (await world.registry.status("job-1")).found == ALL
    await world.check()


@pytest.mark.parametrize("found", [SOME, ALL, ValidationResult(missing=8)])
async def test_a_repeated_verdict_is_answered_from_history_whatever_came_after(
    world: World, found: ValidationResult
) -> None:
    done = await await_verdict(world)

    async def judge() -> Job:
        return await world.registry.complete_validation(
            "job-1", found, actor=VALIDATOR, op_id="op-1", version=done.version
        )

    first = await judge()
    for _ in range(2):
        history = await world.registry.history("job-1")
        assert seen(await judge()) == seen(first)
        assert await world.registry.history("job-1") == history
        world.clock.advance(1)
        if first.state is State.PARTIAL_SUCCESS:
            await world.registry.complete_validation("job-1", ALL, actor=OTHER, op_id="op-2")


async def test_other_findings_are_repeated_as_they_were_told(world: World) -> None:
    await await_verdict(world)
    partial = await world.registry.complete_validation("job-1", SOME, actor=VALIDATOR)
    world.clock.advance(100)

    async def judge() -> Job:
        return await world.registry.complete_validation(
            "job-1", MORE, actor=VALIDATOR, op_id="op-1", version=partial.version
        )

    first = await judge()
    assert (first.found, first.ended_at) == (MORE, partial.ended_at)
    assert seen(await judge()) == seen(first)
    world.clock.advance(100)
    await world.registry.complete_validation("job-1", ALL, actor=OTHER, op_id="op-2")
    assert seen(await judge()) == seen(first)
    assert (await world.registry.status("job-1")).state is State.SUCCEEDED


async def test_the_same_findings_again_say_nothing_and_look_again_later(world: World) -> None:
    await await_verdict(world)
    first = await world.registry.complete_validation("job-1", SOME, actor=VALIDATOR)
    world.clock.advance(3600)

    again = await world.registry.complete_validation("job-1", SOME, actor=VALIDATOR)

    assert seen(again) == seen(first)
    assert again.check is not None
    assert again.check.next_at == world.clock.now() + timedelta(hours=1)
    assert len(await world.registry.history("job-1")) == first.version


async def test_an_operators_word_is_on_record_with_its_reason(world: World) -> None:
    await await_verdict(world)
    with pytest.raises(Invalid, match="needs a reason"):
        await world.registry.complete_validation("job-1", actor="user:ana", override=State.SUCCEEDED)

    job = await world.registry.complete_validation(
        "job-1", actor="user:ana", override=State.SUCCEEDED, reason="x" * 5000
    )

    [*_, event] = await world.registry.history("job-1")
    assert (job.state, job.found) == (State.SUCCEEDED, None)
    assert (event.actor, event.attributes) == ("user:ana", {"override": True})
    assert event.reason is not None
    assert event.reason.endswith("… [shortened]")


@pytest.mark.parametrize(
    ("found", "evidence", "words"),
    [
        (ValidationResult(verified=7), (), "7 verified and 0 missing outputs are not the 8"),
        (
            ValidationResult(verified=cast("int", "8")),
            (),
            f"{ValidationResult.__name__} is not valid",
        ),
        (replace(ALL, names=("\udcff",)), (), "What was found cannot be written as JSON"),
        (replace(ALL, names=("x" * 70_000,)), (), "What was found has 70,"),
        (ALL, (Output(name="x"),) * 101, "At most 100 outputs are listed one by one"),
        (ALL, (Output(name=cast("str", 7)),), "Output is not valid"),
        (ALL, (Output(name="x", path="y" * 4000),) * 20, "What was found has 80,"),
    ],
)
async def test_findings_that_cannot_be_kept_are_refused(
    world: World, found: ValidationResult, evidence: tuple[Output, ...], words: str
) -> None:
    await await_verdict(world)

    with pytest.raises(Invalid, match=words):
        await world.local.complete_validation("job-1", found, actor=VALIDATOR, evidence=evidence)

    assert (await world.local.status("job-1")).state is State.VALIDATING


async def test_as_much_evidence_as_is_taken_is_kept(world: World) -> None:
    await await_verdict(world)
    evidence = [Output(name=f"{n:0100}", sha256="a" * 64, size=n) for n in range(100)]

    await world.registry.complete_validation("job-1", ALL, actor=VALIDATOR, evidence=evidence)

    [*_, event] = await world.registry.history("job-1")
    told = event.attributes["evidence"]
    assert isinstance(told, list)
    assert len(told) == 100


@pytest.mark.parametrize("actor", ["", "ana", "robot:r"])
async def test_who_looks_or_judges_has_a_name(world: World, actor: str) -> None:
    await await_verdict(world)

    with pytest.raises(Invalid, match="actor"):
        await world.local.report_validation("job-1", actor=actor)
    with pytest.raises(Invalid, match="actor"):
        await world.local.complete_validation("job-1", ALL, actor=actor)


async def test_a_look_of_the_wrong_kind_is_refused(world: World) -> None:
    await await_verdict(world)

    with pytest.raises(Invalid, match=" is not valid"):
        await world.local.report_validation("job-1", actor=VALIDATOR, done=cast("int", "many"))


async def test_the_outputs_of_no_job_are_not_looked_for(world: World) -> None:
    with pytest.raises(NotFound):
        await world.registry.report_validation("x", actor=VALIDATOR)
    with pytest.raises(NotFound):
        await world.registry.complete_validation("x", ALL, actor=VALIDATOR)


async def test_what_was_not_run_was_not_found_before_either(world: World) -> None:
    request = JobRequest(spec=PROMISING, job_id="job-1", found=ALL)
    with pytest.raises(Invalid, match="cannot be created with found outputs"):
        await world.local.acquire("job-1", owner="w", create=request)
    await world.enqueue("maker")
    grant = await world.claim()
    follow_up = JobRequest(spec=PROMISING, found=ALL)
    with pytest.raises(Invalid, match=r"follow_ups\[0\]: A follow-up has to run"):
        await world.local.complete(grant, Success(), follow_ups=[follow_up])
    for found, words in (
        (
            ValidationResult(verified=7, missing=1),
            "Only a job whose promised outputs were all found",
        ),
        (ValidationResult(verified=cast("int", "8")), f"{ValidationResult.__name__} is not valid"),
        (ValidationResult(verified=8, names=("x" * 70_000,)), "What was found has 70,"),
    ):
        with pytest.raises(Invalid, match=words):
            await world.local.enqueue(replace(request, found=found), actor=VALIDATOR)
    assert await world.store.get(["job-1"]) == [None]


async def test_a_registry_knows_once_what_it_saw_end_without_success(world: World) -> None:
    plain = replace(PROMISING, promised_outputs=0, outputs=None)
    for job_id, spec in (("a", PROMISING), ("b", plain)):
        await world.registry.enqueue(JobRequest(spec=spec, job_id=job_id), actor="user:ana")
        await world.registry.cancel(job_id, actor="user:ana")

    assert world.local.take_unvalidated() == ["a"]
    assert world.local.take_unvalidated() == []
    await world.registry.complete_validation("a", SOME, actor=VALIDATOR)
    assert world.local.take_unvalidated() == []
