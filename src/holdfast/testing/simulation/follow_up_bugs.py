"""Planted mistakes about follow-ups: made without a success, or a success without them."""

from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.core.job import Job
from holdfast.core.lifecycle import Complete, Enqueue, creation, decide, ending
from holdfast.ports import One, Work
from holdfast.registry import complete as verb
from holdfast.registry import line
from holdfast.registry.line import Line
from holdfast.stores.cas import writing
from holdfast.stores.cas.documents import Document, Held
from holdfast.stores.cas.revision import Proposal, revise
from holdfast.testing.simulation.planting import Swaps, bug


def _make(command: Enqueue) -> Work:
    return Work(One(command.job_id, command.spec.lock), partial(decide, command))


@bug(trap=42)
def follow_ups_regardless() -> Swaps:
    """Follow-ups are made whatever becomes of the completion."""

    def looks(command: Any) -> list[Work]:
        return [_make(made) for made in getattr(command, "follow_ups", ())]

    return ((line, "_looks", looks), (ending, "follow", lambda *_: ()))


@bug(trap=13)
def follow_ups_later() -> Swaps:
    """Follow-ups are made by the owner in another commit, after that of the completion."""
    real = Line.settle

    async def settle(self: Line, job_id: str, command: Any, **more: Any) -> Job:
        job = await real(self, job_id, command, **more)
        if isinstance(command, Complete):
            for made in command.follow_ups:
                await self.submit(_make(made))
        return job

    return ((Line, "settle", settle), (ending, "follow", lambda *_: ()))


@bug(trap=42)
def follow_ups_of_a_failure() -> Swaps:
    """An attempt that failed makes its follow-ups."""
    real = ending.complete

    def complete(job: Job, command: Complete, *rest: Any) -> Any:
        change = real(job, command, *rest)
        return replace(change, made=creation.follow(change, command.follow_ups))

    return ((ending, "complete", complete), (verb, "Success", object))


@bug(trap=13, store="objects")
def follow_ups_not_owed() -> Swaps:
    """What a dead owner was about to make is made by nobody."""
    real = revise

    def revised(held: Held, proposal: Proposal, *rest: Any, **more: Any) -> Document:
        return real(held, replace(proposal, made=()), *rest, **more)

    return ((writing, "revise", revised),)
