"""Planted mistakes in the store of single objects: what goes wrong between two writes."""

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from holdfast.stores.cas import outbox, writer
from holdfast.stores.cas.claims import DocumentClaims, Share
from holdfast.stores.cas.documents import Document, LoadedDocument
from holdfast.stores.cas.locks import LockDocuments
from holdfast.stores.cas.outbox import OutboxRelay
from holdfast.stores.cas.revision import Proposal, revise
from holdfast.testing.simulation.planted_bug import Swaps, bug
from holdfast.testing.simulation.stores import Bucket

HASTE = timedelta(seconds=2)


@bug(trap=19, store="objects")
def last_write_wins() -> Swaps:
    """An object is overwritten whatever its version."""
    return ((Bucket, "_has_version", lambda self, key, version: key in self._objects),)


@bug(trap=12, store="objects")
def own_write_not_recognised() -> Swaps:
    """A write that landed is taken for a conflict."""
    return ((writer, "_traces", lambda document: set()),)


@bug(trap=35, store="objects")
def marker_not_written() -> Swaps:
    """A queued job has no marker in the queue."""
    return ((writer, "new_markers", lambda old, new: []),)


@bug(trap=9, store="objects")
def lock_not_written() -> Swaps:
    """A lock is read and not taken."""

    async def take(self: LockDocuments, *_: Any) -> bool:
        return True

    return ((LockDocuments, "take", take),)


@bug(trap=13, store="objects")
def outbox_trimmed_early() -> Swaps:
    """An event leaves its outbox before it is in the log."""

    async def is_delivered(self: OutboxRelay, name: str) -> bool:
        return True

    return ((OutboxRelay, "is_delivered", is_delivered),)


@bug(trap=9, store="objects")
def lock_holder_not_fenced() -> Swaps:
    """A lock is taken from a writer whose write may still arrive."""

    async def fence(self: LockDocuments, *_: Any) -> bool:
        return True

    return ((LockDocuments, "fence", fence),)


@bug(trap=11, store="objects")
def claim_attempts_not_recorded() -> Swaps:
    """A claim does not record which jobs it tries."""

    async def note(self: DocumentClaims, share: Share) -> Share:
        share.claim.tried.update(loaded.job_id for loaded in share.loaded)
        return share

    return ((DocumentClaims, "_note", note),)


@bug(trap=13, store="objects")
def slow_writer_not_fenced() -> Swaps:
    """A repair takes a slow writer for a dead one, and does not fence it."""

    async def close(self: OutboxRelay, job_id: str, tag: str) -> Document:
        loaded = await self._documents.load(job_id)
        return loaded.document or Document(serial=0, nonce="")

    # An early repair alone is not a mistake: it does no harm to a fenced writer.
    return ((OutboxRelay, "_close", close), (outbox, "REPAIR_AFTER", HASTE))


@bug(trap=42, store="objects")
def pending_facts_dropped() -> Swaps:
    """The facts of a dead writer for other jobs are never delivered."""
    real = revise

    def revised(loaded: LoadedDocument, proposal: Proposal, *rest: Any, **more: Any) -> Document:
        return real(loaded, replace(proposal, pending_facts=()), *rest, **more)

    return ((writer, "revise", revised),)
