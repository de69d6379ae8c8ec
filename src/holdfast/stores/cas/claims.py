"""Claims from queues: they share the ready jobs, and a repeated claim gets its own grants again."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial

from msgspec import Struct

from holdfast.core.eligibility import claimable
from holdfast.core.errors import Unavailable
from holdfast.core.lifecycle import Change
from holdfast.failpoint import failpoint
from holdfast.ports import Decision, Ready, Work
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import ClaimHint, DocumentStore, LoadedDocument, each
from holdfast.stores.cas.hints import Hints
from holdfast.stores.cas.outbox import OutboxBatch, OutboxRelay
from holdfast.stores.cas.revision import DecidedStep
from holdfast.stores.cas.writer import ATTEMPTS, DocumentWriter, Fits


class ClaimInProgress:
    """One claim in progress: the decisions it has got, and the jobs it has tried."""

    def __init__(self, ready: Ready, work: Work) -> None:
        self.ready = ready
        self.step = DecidedStep(work.decide)
        self.decisions: list[Decision] = []
        self.tried: set[str] = set()
        self.wanted = ready.limit

    def take(self, decisions: Sequence[Decision]) -> None:
        self.decisions += decisions
        self.wanted -= sum(isinstance(decision, Change) for decision in decisions)

    def has(self, loaded: LoadedDocument, _: datetime) -> bool:
        """Whether the job is leased under this claim."""
        job = loaded.record
        return job is not None and job.lease is not None and job.claim_op_id == self.ready.op_id

    def fits(self, loaded: LoadedDocument, now: datetime) -> bool:
        """Whether the claim may have the job, or has it already. A claim that once had a job and no longer
        has it was answered then, and gets no other."""
        job = loaded.record
        if job is None:
            return False
        if loaded.claimed(self.ready.op_id):
            if not self.has(loaded, now):
                self.wanted = 0
            return self.has(loaded, now)
        return claimable(job, self.ready, now)


class Share(Struct, frozen=True):
    """The jobs that a claim tries next; `noted` are jobs that another process tries under the same
    op_id."""

    claim: ClaimInProgress
    loaded: tuple[LoadedDocument, ...]
    noted: tuple[str, ...] = ()


class DocumentClaims:
    """Serves claims; those that choose from the same jobs together."""

    def __init__(
        self, documents: DocumentStore, writer: DocumentWriter, relay: OutboxRelay, hints: Hints
    ) -> None:
        self._documents = documents
        self._writer = writer
        self._relay = relay
        self._hints = hints

    async def serve(self, claims: Sequence[ClaimInProgress], batches: list[OutboxBatch]) -> None:
        repeated = await each(lambda claim: self._repeat(claim, batches), claims)
        fresh = [claim for claim, known in zip(claims, repeated, strict=True) if not known]
        if not fresh:
            return
        wanted = sum(claim.wanted for claim in fresh)
        async with aclosing(self._hints.ready(fresh[0].ready, wanted=wanted)) as row:
            while shares := [share for claim in fresh if (share := await _deal(claim, row)).loaded]:
                noted = await each(self._note, shares)
                failpoint("cas.claims_noted")
                jobs = [job_id for share in noted for job_id in _jobs(share)]
                async with self._relay.batch(jobs) as batch:
                    batches.append(batch)
                    await each(partial(self._try, batch), noted)

    async def _repeat(self, claim: ClaimInProgress, batches: list[OutboxBatch]) -> bool:
        """Give a repeated claim the jobs that are still leased under it; return whether it is a repeated
        one."""
        op_id = claim.ready.op_id
        hint = await self._documents.fetch(keys.claim(op_id), ClaimHint)
        if hint is None:
            return False
        loaded = await self._documents.load_many(hint[0].jobs)
        known = [one for one in loaded if one.claimed(op_id)]
        async with self._relay.batch(one.job_id for one in known) as batch:
            batches.append(batch)
            for one in known:
                claim.take(await self._commit(claim, one.job_id, batch, one, fits=claim.has))
        return bool(known)

    async def _note(self, share: Share) -> Share:
        """Record which jobs are tried under the op_id, before they are. Another process may do so too."""
        claim, mine = share.claim, [loaded.job_id for loaded in share.loaded]
        claim.tried.update(mine)
        key = keys.claim(claim.ready.op_id)
        if await self._documents.create(key, ClaimHint(tuple(mine))):
            return share
        for _ in range(ATTEMPTS):
            found = await self._documents.fetch(key, ClaimHint)
            jobs = found[0].jobs if found else ()
            hint = ClaimHint(tuple(dict.fromkeys([*jobs, *mine])))
            if hint.jobs == jobs or await self._documents.put(key, hint, found[1] if found else None):
                noted = tuple(job_id for job_id in jobs if job_id not in claim.tried)
                claim.tried.update(noted)
                return Share(claim, share.loaded, noted)
        raise Unavailable(f"Claim {claim.ready.op_id} is repeated by too many at once.")

    async def _try(self, batch: OutboxBatch, share: Share) -> None:
        claim = share.claim
        for job_id in share.noted:
            if claim.wanted:
                claim.take(await self._commit(claim, job_id, batch))
        answers = await each(
            lambda loaded: self._commit(claim, loaded.job_id, batch, loaded),
            share.loaded[: claim.wanted],
        )
        for decisions in answers:
            claim.take(decisions)

    async def _commit(
        self,
        claim: ClaimInProgress,
        job_id: str,
        batch: OutboxBatch,
        first: LoadedDocument | None = None,
        *,
        fits: Fits | None = None,
    ) -> tuple[Decision, ...]:
        fits = fits or claim.fits
        return await self._writer.commit(job_id, [claim.step], batch, first=first, fits=fits)


async def _deal(claim: ClaimInProgress, row: AsyncIterator[LoadedDocument]) -> Share:
    """Take as many jobs from the row as the claim still wants."""
    loaded: list[LoadedDocument] = []
    while len(loaded) < claim.wanted and (one := await anext(row, None)) is not None:
        loaded.append(one)
    return Share(claim, tuple(loaded))


def _jobs(share: Share) -> list[str]:
    return [*share.noted, *(loaded.job_id for loaded in share.loaded)]
