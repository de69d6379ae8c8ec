"""Planted mistakes about follow-ups: created without a success, or missing after one."""

from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.core.job import Job
from holdfast.core.lifecycle import Complete, Enqueue, creation, decide, termination
from holdfast.ports import ById, Work
from holdfast.registry import commit_queue
from holdfast.registry import complete as verb
from holdfast.registry.commit_queue import CommitQueue
from holdfast.stores.cas import writer
from holdfast.stores.cas.documents import Document, LoadedDocument
from holdfast.stores.cas.revision import Proposal, revise
from holdfast.testing.simulation.planted_bug import Swaps, bug


def _make(command: Enqueue) -> Work:
    return Work(ById(command.job_id, command.spec.lock), partial(decide, command))


@bug(trap=42)
def follow_ups_of_refused_completion() -> Swaps:
    """Follow-ups are created also if the completion is refused."""

    def looks(command: Any) -> list[Work]:
        return [_make(made) for made in getattr(command, "follow_ups", ())]

    return (
        (commit_queue, "_existence_checks", looks),
        (termination, "make_follow_ups", lambda *_: ()),
    )


@bug(trap=13)
def follow_ups_in_second_commit() -> Swaps:
    """Follow-ups are created by the owner in a second commit, after that of the completion."""
    real = CommitQueue.execute

    async def settle(self: CommitQueue, job_id: str, command: Any, **more: Any) -> Job:
        job = await real(self, job_id, command, **more)
        if isinstance(command, Complete):
            for made in command.follow_ups:
                await self.submit(_make(made))
        return job

    return ((CommitQueue, "execute", settle), (termination, "make_follow_ups", lambda *_: ()))


@bug(trap=42)
def follow_ups_of_failed_attempt() -> Swaps:
    """An attempt that failed makes its follow-ups."""
    real = termination.complete

    def complete(job: Job, command: Complete, *rest: Any) -> Any:
        change = real(job, command, *rest)
        return replace(change, made=creation.make_follow_ups(change, command.follow_ups))

    return ((termination, "complete", complete), (verb, "Success", object))


@bug(trap=13, store="objects")
def follow_ups_lost_with_writer() -> Swaps:
    """The follow-ups of a dead owner are never created."""
    real = revise

    def revised(loaded: LoadedDocument, proposal: Proposal, *rest: Any, **more: Any) -> Document:
        return real(loaded, replace(proposal, made=()), *rest, **more)

    return ((writer, "revise", revised),)
