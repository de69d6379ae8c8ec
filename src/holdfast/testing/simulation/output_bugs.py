"""Planted mistakes about promised outputs: who may say that they are there, and of what."""

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from holdfast.core import outputs, projection
from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Change, Judge, Look, creation, judging
from holdfast.core.lifecycle.draft import Draft
from holdfast.core.outputs import Found
from holdfast.core.state import State
from holdfast.outputs import validator
from holdfast.outputs.examining import Examination, Examined, Unseen
from holdfast.outputs.family import Family, family_of
from holdfast.registry import linked, resume
from holdfast.testing.simulation.planting import Swaps, bug


@bug(trap=19, validators=2)
def verdict_of_any_version() -> Swaps:
    """A verdict counts though somebody else has judged since."""
    real = judging._judged
    return ((judging, "_judged", lambda job, version: real(job, None)),)


@bug(trap="C-72", validators=2)
def some_is_enough() -> Swaps:
    """A job of which anything is there has succeeded."""
    real = judging._verdict

    def verdict(found: Found) -> State:
        return State.SUCCEEDED if found.verified else real(found)

    return ((judging, "_verdict", verdict),)


@bug(trap=49, validators=2)
def partial_gets_worse() -> Swaps:
    """A partial success becomes a failure when more is missing than before."""
    real = judging._still_partial

    def still_partial(draft: Draft, command: Judge) -> Change:
        if draft.job.found is None or command.found.verified >= draft.job.found.verified:
            return real(draft, command)
        draft.state = State.VALIDATING
        draft.move(State.FAILED, ended_at=draft.now, found=command.found)
        return draft.change()

    return ((judging, "_still_partial", still_partial),)


@bug(trap="C-72", validators=2)
def unseen_is_missing() -> Swaps:
    """An output store that does not answer is taken for an empty one."""
    real = Examination.examine

    async def examine(self: Examination, *args: Any, **more: Any) -> Examined | None:
        try:
            return await real(self, *args, **more)
        except Unseen:
            return Examined(found=Found(missing=self._promise.count))

    return ((Examination, "examine", examine),)


@bug(trap=49, validators=2)
def zombies_leave_outputs() -> Swaps:
    """What any attempt has written counts, whoever's completion was accepted."""

    async def every_owner(registry: Any, job: Job) -> Family:
        family = await family_of(registry, job)
        tokens = [(job.job_id, token) for token in range(1, job.fencing_token + 1)]
        return replace(family, owners=(*family.owners, *tokens))

    return ((validator, "family_of", every_owner),)


@bug(trap=46, validators=2)
def who_looks_looks_for_ever() -> Swaps:
    """Who has said that it looks keeps the others away, also when it has died."""
    return tuple((place, "LOOK", timedelta(days=1)) for place in (judging, outputs))


@bug(trap="R0.92", validators=2)
def gives_up() -> Swaps:
    """A job whose outputs could not be seen twice has failed."""
    real = judging._unseen

    def unseen(job: Job, check: Any, command: Look, now: datetime) -> Change:
        if check.tries < 1 or job.state is not State.VALIDATING:
            return real(job, check, command, now)
        draft = Draft(job, now=now, op_id=f"look:{job.version}", actor=command.actor)
        failure = Failure(message="unavailable", retryable=False)
        error = {"message": "unavailable", "retryable": False}
        draft.move(State.FAILED, attributes={"error": error}, error=failure, ended_at=now)
        return draft.change()

    return ((judging, "_unseen", unseen),)


@bug(trap="R0.95", validators=2)
def override_without_a_reason() -> Swaps:
    """An operator's word is kept, and not why."""
    real = judging.judge

    def judge(job: Job, command: Judge, now: datetime) -> Change:
        change = real(job, command, now)
        if command.override is None or not change.events:
            return change
        silent = tuple(replace(event, reason=None) for event in change.events)
        return replace(change, after=replace(change.after, reason=None), events=silent)

    return ((judging, "judge", judge),)


@bug(trap=39, validators=2)
def findings_not_folded() -> Swaps:
    """The projection takes what is found later for something that came too late."""
    real = projection._follows

    def follows(state: State | None, event: Event) -> bool:
        return event.event_type != EventType.OUTPUTS_VERIFIED and real(state, event)

    return ((projection, "_follows", follows),)


@bug(trap=42, validators=2)
def resumes_twice() -> Swaps:
    """A repeated resume makes a second job."""

    async def made_by(*_: object) -> None:
        return None

    return ((resume, "_made_by", made_by),)


@bug(trap="R0.2", validators=2)
def verdict_ends_it_anew() -> Swaps:
    """A job that was cancelled or parked has failed when somebody sees that nothing of it is there."""
    real = judging._found_after

    def found_after(draft: Draft, command: Judge) -> Change:
        if command.found.missing and not command.found.verified:
            draft.state = State.VALIDATING
            draft.move(State.FAILED, ended_at=draft.now, found=command.found)
            return draft.change()
        return real(draft, command)

    return ((judging, "_found_after", found_after),)


@bug(trap="R0.2", validators=2)
def finding_told_twice() -> Swaps:
    """What is known of a job that failed is put down again by everybody who looks."""
    real = judging._found_after

    def found_after(draft: Draft, command: Judge) -> Change:
        draft.job = replace(draft.job, found=None)
        return real(draft, command)

    return ((judging, "_found_after", found_after),)


@bug(trap=42, validators=2)
def resumed_beside() -> Swaps:
    """A job that is being resumed is resumed once more."""
    return ((resume, "standing", lambda original, earlier: None),)


@bug(trap=42, validators=2)
def resumption_forgotten() -> Swaps:
    """What is missing is made, and the original never hears of it."""
    real = linked.link

    def link(*args: Any) -> Event:
        return replace(real(*args), given_id="somebody-else-s")

    return ((linked, "link", link), (resume, "link", link))


@bug(trap="C-53", validators=2)
def found_and_run_again() -> Swaps:
    """A job with nothing left to do is put into the queue."""
    return ((creation, "_reuse", lambda made, *_: made),)


@bug(trap="C-53", validators=2)
def found_in_part() -> Swaps:
    """A job ends as it begins though something of it is missing."""
    real = creation._reuse

    def reuse(made: Change, found: Found, actor: str) -> Change:
        claimed = replace(found, verified=found.verified + found.missing, missing=0)
        change = real(made, claimed, actor)
        return replace(change, after=replace(change.after, found=found))

    return ((creation, "_reuse", reuse),)


@bug(trap=19, validators=2)
def look_takes_back_a_verdict() -> Swaps:
    """Who says that it looks writes what the job was when it began."""
    real = judging.look

    def look(job: Job, command: Look, now: datetime) -> Change:
        change = real(job, command, now)
        if job.state is not State.PARTIAL_SUCCESS:
            return change
        return replace(change, after=replace(change.after, state=State.VALIDATING, ended_at=None))

    return ((judging, "look", look),)
