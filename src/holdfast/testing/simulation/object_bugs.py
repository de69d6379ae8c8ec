"""Planted mistakes in the store of single objects: what goes wrong between two writes."""

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from holdfast.stores.cas import dispatch, writing
from holdfast.stores.cas.claiming import Claiming, Share
from holdfast.stores.cas.dispatch import Dispatch
from holdfast.stores.cas.documents import Document, Held
from holdfast.stores.cas.locks import Locks
from holdfast.stores.cas.revision import Proposal, revise
from holdfast.testing.simulation.planting import Swaps, bug
from holdfast.testing.simulation.stores import Bucket

HASTE = timedelta(seconds=2)


@bug(trap=19, store="objects")
def last_write_wins() -> Swaps:
    """An object is overwritten whatever its version."""
    return ((Bucket, "_is", lambda self, key, version: key in self._objects),)


@bug(trap=12, store="objects")
def own_write_not_known() -> Swaps:
    """A write that landed is taken for a conflict."""
    return ((writing, "_traces", lambda document: set()),)


@bug(trap=35, store="objects")
def marker_forgotten() -> Swaps:
    """A queued job has no marker in the queue."""
    return ((writing, "new_markers", lambda old, new: []),)


@bug(trap=9, store="objects")
def lock_not_written() -> Swaps:
    """A lock is looked at and not taken."""

    async def take(self: Locks, *_: Any) -> bool:
        return True

    return ((Locks, "take", take),)


@bug(trap=13, store="objects")
def outbox_trimmed() -> Swaps:
    """An event leaves its outbox before the feed has it."""

    async def settled(self: Dispatch, name: str) -> bool:
        return True

    return ((Dispatch, "settled", settled),)


@bug(trap=9, store="objects")
def suspect_not_fenced() -> Swaps:
    """A lock is taken from a writer that may still be on its way."""

    async def fence(self: Locks, *_: Any) -> bool:
        return True

    return ((Locks, "fence", fence),)


@bug(trap=11, store="objects")
def claims_not_noted() -> Swaps:
    """A claim does not write down which jobs it tries."""

    async def note(self: Claiming, share: Share) -> Share:
        share.claim.tried.update(held.job_id for held in share.held)
        return share

    return ((Claiming, "_note", note),)


@bug(trap=13, store="objects")
def slow_writer_not_barred() -> Swaps:
    """A repair takes a slow writer for a dead one, and does not keep it out."""

    async def close(self: Dispatch, job_id: str, tag: str) -> Document:
        held = await self._shelf.load(job_id)
        return held.document or Document(serial=0, nonce="")

    # The haste is no mistake, only the open door: barred, a hasty repair does no harm.
    return ((Dispatch, "_close", close), (dispatch, "REPAIR_AFTER", HASTE))


@bug(trap=42, store="objects")
def debt_forgotten() -> Swaps:
    """What a dead writer owed to another job is told by nobody."""
    real = revise

    def revised(held: Held, proposal: Proposal, *rest: Any, **more: Any) -> Document:
        return real(held, replace(proposal, owed=()), *rest, **more)

    return ((writing, "revise", revised),)
