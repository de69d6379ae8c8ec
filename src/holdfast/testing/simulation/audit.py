"""The audit hears every answer a caller gets, and holds it against what the witness has seen land."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Fenced, HoldfastError, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job, Progress
from holdfast.core.lifecycle import Outcome
from holdfast.core.outputs import Found, Promise
from holdfast.core.state import ENDED, LEASED, State
from holdfast.ports import Completion, Grant, Request
from holdfast.registry.local import LocalRegistry
from holdfast.testing.simulation.witness import Witness

T = TypeVar("T")

Report: TypeAlias = tuple[Outcome, bool | None, tuple[Request, ...]]
"""How an owner says that its attempt ended: outcome, compensation, follow-ups."""


class Book:
    """What all callers of a run were told."""

    def __init__(self, witness: Witness, store_now: Callable[[], datetime]) -> None:
        """`store_now` is a time that no answer given from now on may lie before."""
        self.witness = witness
        self.store_now = store_now
        self.doubtful: set[str] = set()
        self.open: Counter[str] = Counter()
        self.grants: dict[tuple[str, int], str] = {}
        self.made: dict[str, str] = {}
        self.ended: dict[str, State] = {}
        self.reports: dict[str, Report] = {}
        self.stale = 0
        self.ambiguous = 0
        self.answers = 0

    def applied(self, job_id: str, op_id: str) -> int | None:
        """The version an op left, when it has landed."""
        track = self.witness.jobs.get(job_id)
        return track.ops.get(op_id) if track else None

    def token_at(self, job_id: str, version: int) -> int | None:
        """The token that is in force at a version: None where nobody holds the job."""
        token: int | None = None
        for event in self.witness.track(job_id).chain[:version]:
            if event.event_type == EventType.CLAIMED:
                token = event.fencing_token
            elif event.to_state is not None and event.to_state not in LEASED:
                token = None
        return token

    def ended_by(self, job_id: str, token: int) -> str | None:
        """The op that ended the attempt of this token; None while nothing did."""
        for event in self.witness.track(job_id).chain:
            left = event.from_state in LEASED and event.to_state not in (*LEASED, None)
            if left and event.fencing_token == token:
                return event.op_id
        return None


class Audited:
    """A registry whose answers are checked. It passes on what it does not know."""

    def __init__(self, registry: LocalRegistry, book: Book, name: str) -> None:
        self._registry = registry
        self._book = book
        self._witness = book.witness
        self._name = name
        self._verdicts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    async def _ask(self, verb: str, job_id: str, op_id: str | None, work: Awaitable[T]) -> T:
        book, witness = self._book, self._witness
        landed = book.applied(job_id, op_id) if op_id else None
        if op_id:
            witness.refused.pop(op_id, None)
            book.open[op_id] += 1
        try:
            answer = await work
        except HoldfastError as error:
            book.answers += 1
            witness.note(f"{self._name} {verb} {job_id} {op_id} {error!r}")
            book.stale += isinstance(error, Fenced)
            if isinstance(error, Unavailable) and error.applied == "unknown":
                book.ambiguous += 1
                if op_id:
                    book.doubtful.add(op_id)
            elif op_id and isinstance(error, Unavailable):
                if op_id not in book.doubtful and book.open[op_id] == 1:
                    witness.refused[op_id] = f"{verb} {job_id} {op_id}"
            elif op_id:
                words = f"{verb} {job_id} {op_id}: refused, though it was applied: {error.message}"
                gone = verb == "acquire" and not self._held_under(op_id)
                witness.expect("I30", landed is None or gone, words)
            raise
        finally:
            if op_id:
                book.open[op_id] -= 1
        book.answers += 1
        witness.note(f"{self._name} {verb} {job_id} {op_id} ok")
        return answer

    async def enqueue(self, request: Request, *, actor: str) -> Job:
        name = request.request_id or request.job_id or ""
        job = await self._ask("enqueue", name, None, self._registry.enqueue(request, actor=actor))
        track = self._witness.jobs.get(job.job_id)
        there = track is not None and track.job is not None
        self._witness.expect("I11", there, f"{job.job_id}: acknowledged, and not there")
        same = job.spec == request.spec
        self._witness.expect("I12", same, f"{job.job_id}: answered for another request")
        if request.found is not None:
            words = f"{job.job_id}: found before, and {job.state} all the same"
            self._witness.expect("I36", job.state is State.SUCCEEDED, words)
        if name:
            first = self._book.made.setdefault(name, job.job_id)
            self._witness.expect("I12", first == job.job_id, f"{name} made {first}, {job.job_id}")
        return job

    async def claim(
        self, queues: Sequence[str], *, owner: str, limit: int = 1, op_id: str, **more: Any
    ) -> list[Grant]:
        held = self._held_under(op_id)
        work = self._registry.claim(queues, owner=owner, limit=limit, op_id=op_id, **more)
        grants = await self._ask("claim", "", op_id, work)
        names = sorted(grant.job_id for grant in grants)
        self._witness.note(f"{self._name} got {names} under {op_id}")
        self._witness.expect("I24", len(grants) <= limit, f"{op_id}: {len(grants)} of {limit}")
        for grant in grants:
            self._granted(grant, op_id)
        for job_id, token in held.items():
            kept = self._book.token_at(job_id, 10**9) == token
            words = f"{op_id} holds {job_id}, and its repeat was not told"
            self._witness.expect("I29", not kept or job_id in names, words)
        claimed = [t for t in self._witness.jobs.values() if op_id in t.ops]
        self._witness.expect("I29", len(claimed) <= limit, f"{op_id} claimed {len(claimed)} jobs")
        return grants

    async def acquire(self, job_id: str, *, op_id: str, **more: Any) -> Grant:
        work = self._registry.acquire(job_id, op_id=op_id, **more)
        grant = await self._ask("acquire", job_id, op_id, work)
        self._granted(grant, op_id)
        return grant

    def _held_under(self, op_id: str) -> dict[str, int]:
        """The jobs that this claim has got and still holds."""
        return {
            job_id: track.job.fencing_token
            for job_id, track in self._witness.jobs.items()
            if op_id in track.ops
            and track.job
            and track.job.lease
            and track.job.claim_op_id == op_id
        }

    def _granted(self, grant: Grant, op_id: str) -> None:
        key = (grant.job_id, grant.fencing_token)
        first = self._book.grants.setdefault(key, op_id)
        self._witness.expect("I7", first == op_id, f"{key} was granted to {first} and {op_id}")
        there = self._book.applied(grant.job_id, op_id) is not None
        self._witness.expect("I30", there, f"{key}: granted, and not in the log")

    async def heartbeat(
        self,
        grant: Grant,
        *,
        lease: timedelta | None = None,
        progress: Progress | None = None,
        checkpoint: object = None,
    ) -> Job:
        work = self._registry.heartbeat(
            grant, lease=lease, progress=progress, checkpoint=checkpoint
        )
        asked_at = self._book.store_now()
        job = await self._ask("heartbeat", grant.job_id, None, work)
        self._fenced("heartbeat", grant, job.version)
        renewed = job.lease is not None and job.lease.heartbeat_at >= asked_at
        self._witness.expect("I16", renewed, f"{grant.job_id}: acknowledged, and not renewed")
        return job

    async def publish(self, grant: Grant, events: Sequence[Event]) -> Job:
        job = await self._ask("publish", grant.job_id, None, self._registry.publish(grant, events))
        stored = f"{grant.job_id}/{grant.attempt}.{grant.fencing_token}.{events[-1].sequence}"
        there = stored in self._witness.seen
        self._witness.expect("I9", there, f"{stored}: acknowledged, and not stored")
        return job

    async def aggregate(self, grant: Grant, *, op_id: str) -> Job:
        job = await self._ask(
            "aggregate", grant.job_id, op_id, self._registry.aggregate(grant, op_id=op_id)
        )
        self._fenced("aggregate", grant, job.version)
        return job

    async def complete(
        self,
        grant: Grant,
        outcome: Outcome,
        *,
        op_id: str,
        compensated: bool | None = None,
        follow_ups: Sequence[Request] = (),
    ) -> Job:
        work = self._registry.complete(
            grant, outcome, op_id=op_id, compensated=compensated, follow_ups=follow_ups
        )
        return await self._complete(
            Completion(grant, outcome, op_id, compensated, tuple(follow_ups)), work
        )

    async def complete_many(self, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
        answers = asyncio.ensure_future(self._registry.complete_many(completions))

        async def answer(n: int) -> Job:
            told = (await asyncio.shield(answers))[n]
            if isinstance(told, HoldfastError):
                raise told
            return told

        async def one(n: int, completion: Completion) -> Job | HoldfastError:
            try:
                return await self._complete(completion, answer(n))
            except HoldfastError as error:
                return error

        return list(await asyncio.gather(*map(one, range(len(completions)), completions)))

    async def _complete(self, completion: Completion, work: Awaitable[Job]) -> Job:
        grant, op_id = completion.grant, completion.op_id or ""
        key = (grant.job_id, grant.fencing_token)
        self._witness.wished[key] = completion.follow_ups
        if completion.compensated is False:
            self._witness.spoiled.add(key)
        report = (completion.outcome, completion.compensated, completion.follow_ups)
        self._book.reports[op_id] = report
        first = self._book.ended_by(*key)
        try:
            job = await self._ask("complete", grant.job_id, op_id, work)
        except Fenced:
            words = f"{key} {op_id}: refused, though the same was applied under {first}"
            known = first is not None and self._book.reports.get(first) == report
            self._witness.expect("I30", not known, words)
            raise
        if self._book.applied(grant.job_id, op_id) is None:
            op_id = self._book.ended_by(*key) or op_id
            words = f"{key}: acknowledged, and another outcome was kept, under {op_id}"
            self._witness.expect("I30", self._book.reports.get(op_id) == report, words)
        self._ended_by("complete", grant, op_id, job)
        return job

    async def release(self, grant: Grant, *, op_id: str, **more: Any) -> Job:
        work = self._registry.release(grant, op_id=op_id, **more)
        job = await self._ask("release", grant.job_id, op_id, work)
        self._ended_by("release", grant, op_id, job)
        return job

    async def cancel(self, job_id: str, *, op_id: str, **more: Any) -> Job:
        job = await self._ask(
            "cancel", job_id, op_id, self._registry.cancel(job_id, op_id=op_id, **more)
        )
        self._note_end(job)
        asked = job.state is State.CANCELLED or job.cancel is not None
        self._witness.expect("I23", asked, f"{job_id}: acknowledged, and not asked to stop")
        return job

    async def replay(self, job_id: str, *, actor: str, replay_id: str) -> Job:
        work = self._registry.replay(job_id, actor=actor, replay_id=replay_id)
        job = await self._ask("replay", job_id, None, work)
        first = self._witness.replays.get((job_id, replay_id))
        self._witness.expect("I28", first == job.job_id, f"{replay_id} made {first}, {job.job_id}")
        return job

    async def judge(
        self,
        job_id: str,
        found: Found = Found(),
        *,
        op_id: str | None = None,
        version: int | None = None,
        **more: Any,
    ) -> Job:
        self._verdicts += 1
        op_id = op_id or f"{self._name}-verdict-{self._verdicts}"
        work = self._registry.judge(job_id, found, op_id=op_id, version=version, **more)
        job = await self._ask("judge", job_id, op_id, work)
        applied = self._book.applied(job_id, op_id)
        if applied is None:
            words = f"{job_id}: a verdict was acknowledged, and is not there"
            same = job.found == found or more.get("override") is job.state
            self._witness.expect("I30", same, words)
        elif version is not None:
            words = f"{job_id}: the verdict on version {version} came after {applied - 1}"
            self._witness.expect("I35", applied == version + 1, words)
        self._note_end(job)
        return job

    async def resume(
        self, job_id: str, outputs: Promise, *, actor: str, resume_id: str, again: bool
    ) -> Job:
        if again:
            self._witness.wanted_again.add((job_id, resume_id))
        work = self._registry.resume(job_id, outputs, actor=actor, resume_id=resume_id, again=again)
        job = await self._ask("resume", job_id, None, work)
        first = self._witness.resumed.get((job_id, resume_id), job.job_id)
        self._witness.expect("I28", first == job.job_id, f"{resume_id} made {first}, {job.job_id}")
        words = f"{job_id} is said to be resumed by {job.job_id}"
        self._witness.expect("I28", job.spec.resumed_from == job_id, words)
        return job

    async def get(self, job_id: str) -> Job:
        track = self._witness.jobs.get(job_id)
        version = track.job.version if track and track.job else 0
        job = await self._ask("get", job_id, None, self._registry.get(job_id))
        words = f"{job_id}: read version {job.version} after {version}"
        self._witness.expect("I8", job.version >= version, words)
        return job

    def _fenced(self, verb: str, grant: Grant, version: int) -> None:
        """I9: an act that was accepted was the owner's."""
        token = self._book.token_at(grant.job_id, version)
        words = f"{verb} {grant.job_id} with {grant.fencing_token} accepted under {token}"
        self._witness.expect("I9", token == grant.fencing_token, words)

    def _ended_by(self, verb: str, grant: Grant, op_id: str, job: Job) -> None:
        version = self._book.applied(grant.job_id, op_id)
        words = f"{verb} {grant.job_id} {op_id}: acknowledged at {job.version}, is at {version}"
        self._witness.expect("I30", version == job.version, words)
        chain = self._witness.track(grant.job_id).chain
        first = next((e.offset or 1 for e in chain if e.op_id == op_id), 1)
        self._fenced(verb, grant, first - 1)
        self._note_end(job)

    def _note_end(self, job: Job) -> None:
        """I23: what was told as the end is the end."""
        if job.state in ENDED and job.state is not State.PARTIAL_SUCCESS:
            first = self._book.ended.setdefault(job.job_id, job.state)
            self._witness.expect("I23", first is job.state, f"{job.job_id}: {first}, {job.state}")
