"""Claiming from queues: share out what is ready, and meet a repeated claim with its own grants."""

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
from holdfast.stores.cas.dispatch import Dispatch, Parcel
from holdfast.stores.cas.documents import ClaimHint, Held, Shelf, each
from holdfast.stores.cas.hints import Hints
from holdfast.stores.cas.revision import Step
from holdfast.stores.cas.writing import ATTEMPTS, Fits, Writer


class Claim:
    """One claim on its way: what it has got, and what it has tried."""

    def __init__(self, ready: Ready, work: Work) -> None:
        self.ready = ready
        self.step = Step(work.decide)
        self.decisions: list[Decision] = []
        self.tried: set[str] = set()
        self.wanted = ready.limit

    def take(self, decisions: Sequence[Decision]) -> None:
        self.decisions += decisions
        self.wanted -= sum(isinstance(decision, Change) for decision in decisions)

    def has(self, held: Held, _: datetime) -> bool:
        """Whether the job is leased under this claim."""
        job = held.record
        return job is not None and job.lease is not None and job.claim_op_id == self.ready.op_id

    def fits(self, held: Held, now: datetime) -> bool:
        """Whether the claim may have the job, or has it already. One that has had a job before, and
        has it no more, was answered by that: it gets nothing else."""
        job = held.record
        if job is None:
            return False
        if held.claimed(self.ready.op_id):
            if not self.has(held, now):
                self.wanted = 0
            return self.has(held, now)
        return claimable(job, self.ready, now)


class Share(Struct, frozen=True):
    """What a claim tries next; `noted` are jobs that somebody else tries under the same op_id."""

    claim: Claim
    held: tuple[Held, ...]
    noted: tuple[str, ...] = ()


class Claiming:
    """Claims that choose from the same row of jobs are served together."""

    def __init__(self, shelf: Shelf, writer: Writer, dispatch: Dispatch, hints: Hints) -> None:
        self._shelf = shelf
        self._writer = writer
        self._dispatch = dispatch
        self._hints = hints

    async def serve(self, claims: Sequence[Claim], parcels: list[Parcel]) -> None:
        repeated = await each(lambda claim: self._repeat(claim, parcels), claims)
        fresh = [claim for claim, known in zip(claims, repeated, strict=True) if not known]
        if not fresh:
            return
        wanted = sum(claim.wanted for claim in fresh)
        async with aclosing(self._hints.ready(fresh[0].ready, wanted=wanted)) as row:
            while shares := [share for claim in fresh if (share := await _deal(claim, row)).held]:
                noted = await each(self._note, shares)
                failpoint("cas.claims_noted")
                jobs = [job_id for share in noted for job_id in _jobs(share)]
                async with self._dispatch.parcel(jobs) as parcel:
                    parcels.append(parcel)
                    await each(partial(self._try, parcel), noted)

    async def _repeat(self, claim: Claim, parcels: list[Parcel]) -> bool:
        """Answer a repeated claim with what is still leased under it; False when it got nothing."""
        op_id = claim.ready.op_id
        hint = await self._shelf.fetch(keys.claim(op_id), ClaimHint)
        if hint is None:
            return False
        held = await self._shelf.load_many(hint[0].jobs)
        known = [one for one in held if one.claimed(op_id)]
        async with self._dispatch.parcel(one.job_id for one in known) as parcel:
            parcels.append(parcel)
            for one in known:
                claim.take(await self._settle(claim, one.job_id, parcel, one, fits=claim.has))
        return bool(known)

    async def _note(self, share: Share) -> Share:
        """Write down which jobs are tried under the op_id, before they are. Others may do so too."""
        claim, mine = share.claim, [held.job_id for held in share.held]
        claim.tried.update(mine)
        key = keys.claim(claim.ready.op_id)
        if await self._shelf.create(key, ClaimHint(tuple(mine))):
            return share
        for _ in range(ATTEMPTS):
            found = await self._shelf.fetch(key, ClaimHint)
            jobs = found[0].jobs if found else ()
            hint = ClaimHint(tuple(dict.fromkeys([*jobs, *mine])))
            if hint.jobs == jobs or await self._shelf.put(key, hint, found[1] if found else None):
                noted = tuple(job_id for job_id in jobs if job_id not in claim.tried)
                claim.tried.update(noted)
                return Share(claim, share.held, noted)
        raise Unavailable(f"Claim {claim.ready.op_id} is repeated by too many at once.")

    async def _try(self, parcel: Parcel, share: Share) -> None:
        claim = share.claim
        for job_id in share.noted:
            if claim.wanted:
                claim.take(await self._settle(claim, job_id, parcel))
        answers = await each(
            lambda held: self._settle(claim, held.job_id, parcel, held),
            share.held[: claim.wanted],
        )
        for decisions in answers:
            claim.take(decisions)

    async def _settle(
        self,
        claim: Claim,
        job_id: str,
        parcel: Parcel,
        first: Held | None = None,
        *,
        fits: Fits | None = None,
    ) -> tuple[Decision, ...]:
        fits = fits or claim.fits
        return await self._writer.settle(job_id, [claim.step], parcel, first=first, fits=fits)


async def _deal(claim: Claim, row: AsyncIterator[Held]) -> Share:
    """As many of the row as the claim still wants."""
    held: list[Held] = []
    while len(held) < claim.wanted and (one := await anext(row, None)) is not None:
        held.append(one)
    return Share(claim, tuple(held))


def _jobs(share: Share) -> list[str]:
    return [*share.noted, *(held.job_id for held in share.held)]
