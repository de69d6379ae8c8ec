"""The checked registry: every response that a caller gets is compared with what was committed."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias, cast

from holdfast.core.catalogue import EventType
from holdfast.core.errors import Fenced, HoldfastError, Unavailable
from holdfast.core.job import Job
from holdfast.core.lifecycle import Outcome
from holdfast.core.outputs import ValidationResult
from holdfast.core.state import ENDED, LEASED, State
from holdfast.ports import Completion, Grant, JobRequest, Registry
from holdfast.registry.local import LocalRegistry
from holdfast.testing.port_methods import Call, Intercepted
from holdfast.testing.simulation.invariant_checker import InvariantChecker

Report: TypeAlias = tuple[Outcome, bool | None, tuple[JobRequest, ...]]
"""How an owner reported the end of its attempt: outcome, compensation, follow-ups."""


class AnswerLog:
    """The responses of a run, to all callers."""

    def __init__(self, checker: InvariantChecker, store_now: Callable[[], datetime]) -> None:
        """`store_now` returns a time before that of every response from now on."""
        self.checker = checker
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
        """Return the version that an operation made; None if it was not applied."""
        track = self.checker.jobs.get(job_id)
        return track.ops.get(op_id) if track else None

    def token_at(self, job_id: str, version: int) -> int | None:
        """Return the token in force at a version; None if the job was not leased."""
        token: int | None = None
        for event in self.checker.track(job_id).chain[:version]:
            if event.event_type == EventType.CLAIMED:
                token = event.fencing_token
            elif event.to_state is not None and event.to_state not in LEASED:
                token = None
        return token

    def ended_by(self, job_id: str, token: int) -> str | None:
        """Return the op_id that ended the attempt of this token; None while it has not ended."""
        for event in self.checker.track(job_id).chain:
            left = event.from_state in LEASED and event.to_state not in (*LEASED, None)
            if left and event.fencing_token == token:
                return event.op_id
        return None


def checked(registry: LocalRegistry, log: AnswerLog, name: str) -> LocalRegistry:
    """Return the registry with its responses checked, as the node `name` uses it."""
    call = CheckedRegistry(registry, log, name).call
    return cast("LocalRegistry", Intercepted(Registry, registry, call))


class CheckedRegistry:
    """The checks of the verbs, by the method of the port. A verb that has none is passed on."""

    def __init__(self, registry: LocalRegistry, log: AnswerLog, name: str) -> None:
        self._registry = registry
        self._log = log
        self._checker = log.checker
        self._name = name
        self._verdicts = 0

    async def call(self, call: Call) -> Any:
        check = _CHECKS.get(call.name)
        return await (call.send() if check is None else check(self, call))

    async def _send(
        self, call: Call, job_id: str, op_id: str | None = None, work: Awaitable[Any] | None = None
    ) -> Any:
        """Send a call, and check a refusal by what its op_id had done; `work` is another way to the
        response."""
        log, checker, verb = self._log, self._checker, call.name
        landed = log.applied(job_id, op_id) if op_id else None
        if op_id:
            checker.refused.pop(op_id, None)
            log.open[op_id] += 1
        try:
            response = await (work or call.send())
        except HoldfastError as error:
            log.answers += 1
            checker.note(f"{self._name} {verb} {job_id} {op_id} {error!r}")
            log.stale += isinstance(error, Fenced)
            if isinstance(error, Unavailable) and error.applied == "unknown":
                log.ambiguous += 1
                if op_id:
                    log.doubtful.add(op_id)
            elif op_id and isinstance(error, Unavailable):
                if op_id not in log.doubtful and log.open[op_id] == 1:
                    checker.refused[op_id] = f"{verb} {job_id} {op_id}"
            elif op_id:
                words = f"{verb} {job_id} {op_id}: refused, though it was applied: {error.message}"
                gone = verb == Registry.acquire.__name__ and not self._held_under(op_id)
                checker.expect("I30", landed is None or gone, words)
            raise
        finally:
            if op_id:
                log.open[op_id] -= 1
        log.answers += 1
        checker.note(f"{self._name} {verb} {job_id} {op_id} ok")
        return response

    async def _enqueue(self, call: Call) -> Job:
        request: JobRequest = call.given["request"]
        name = request.request_id or request.job_id or ""
        job: Job = await self._send(call, name)
        track = self._checker.jobs.get(job.job_id)
        there = track is not None and track.job is not None
        self._checker.expect("I11", there, f"{job.job_id}: acknowledged, and not there")
        same = job.spec == request.spec
        self._checker.expect("I12", same, f"{job.job_id}: answered for another request")
        if request.found is not None:
            words = f"{job.job_id}: found before, and {job.state} all the same"
            self._checker.expect("I36", job.state is State.SUCCEEDED, words)
        if name:
            first = self._log.made.setdefault(name, job.job_id)
            self._checker.expect("I12", first == job.job_id, f"{name} made {first}, {job.job_id}")
        return job

    async def _claim(self, call: Call) -> list[Grant]:
        op_id, limit = call.given["op_id"], call.given["limit"]
        held = self._held_under(op_id)
        grants: list[Grant] = await self._send(call, "", op_id)
        names = sorted(grant.job_id for grant in grants)
        self._checker.note(f"{self._name} got {names} under {op_id}")
        self._checker.expect("I24", len(grants) <= limit, f"{op_id}: {len(grants)} of {limit}")
        for grant in grants:
            self._granted(grant, op_id)
        for job_id, token in held.items():
            kept = self._log.token_at(job_id, 10**9) == token
            words = f"{op_id} holds {job_id}, and its repeat did not return it"
            self._checker.expect("I29", not kept or job_id in names, words)
        claimed = [t for t in self._checker.jobs.values() if op_id in t.ops]
        self._checker.expect("I29", len(claimed) <= limit, f"{op_id} claimed {len(claimed)} jobs")
        return grants

    async def _acquire(self, call: Call) -> Grant:
        op_id = call.given["op_id"]
        grant: Grant = await self._send(call, call.given["job_id"], op_id)
        self._granted(grant, op_id)
        return grant

    def _held_under(self, op_id: str) -> dict[str, int]:
        """Return the jobs that this claim has got and still holds, with their tokens."""
        return {
            job_id: track.job.fencing_token
            for job_id, track in self._checker.jobs.items()
            if op_id in track.ops and track.job and track.job.lease and track.job.claim_op_id == op_id
        }

    def _granted(self, grant: Grant, op_id: str) -> None:
        key = (grant.job_id, grant.fencing_token)
        first = self._log.grants.setdefault(key, op_id)
        self._checker.expect("I7", first == op_id, f"{key} was granted to {first} and {op_id}")
        there = self._log.applied(grant.job_id, op_id) is not None
        self._checker.expect("I30", there, f"{key}: granted, and not in the log")

    async def _heartbeat(self, call: Call) -> Job:
        grant, asked_at = call.given["grant"], self._log.store_now()
        job: Job = await self._send(call, grant.job_id)
        self._fenced(call, grant, job.version)
        renewed = job.lease is not None and job.lease.heartbeat_at >= asked_at
        self._checker.expect("I16", renewed, f"{grant.job_id}: acknowledged, and not renewed")
        return job

    async def _publish(self, call: Call) -> Job:
        grant, events = call.given["grant"], call.given["events"]
        job: Job = await self._send(call, grant.job_id)
        stored = f"{grant.job_id}/{grant.attempt}.{grant.fencing_token}.{events[-1].sequence}"
        there = stored in self._checker.seen
        self._checker.expect("I9", there, f"{stored}: acknowledged, and not stored")
        return job

    async def _aggregate(self, call: Call) -> Job:
        grant = call.given["grant"]
        job: Job = await self._send(call, grant.job_id, call.given["op_id"])
        self._fenced(call, grant, job.version)
        return job

    async def _complete(self, call: Call) -> Job:
        given = {**call.given, "follow_ups": tuple(call.given["follow_ups"])}
        return await self._complete_one(call, Completion(**given), call.send())

    async def _complete_many(self, call: Call) -> list[Job | HoldfastError]:
        completions: Sequence[Completion] = call.given["completions"]
        responses = asyncio.ensure_future(self._registry.complete_many(completions))
        one_call = Call(Registry.complete.__name__, call.method, {})

        async def response(n: int) -> Job:
            result = (await asyncio.shield(responses))[n]
            if isinstance(result, HoldfastError):
                raise result
            return result

        async def one(n: int, completion: Completion) -> Job | HoldfastError:
            try:
                return await self._complete_one(one_call, completion, response(n))
            except HoldfastError as error:
                return error

        return list(await asyncio.gather(*map(one, range(len(completions)), completions)))

    async def _complete_one(self, call: Call, completion: Completion, work: Awaitable[Job]) -> Job:
        grant, op_id = completion.grant, completion.op_id or ""
        key = (grant.job_id, grant.fencing_token)
        self._checker.planned[key] = completion.follow_ups
        if completion.compensated is False:
            self._checker.failed_compensations.add(key)
        report = (completion.outcome, completion.compensated, completion.follow_ups)
        self._log.reports[op_id] = report
        first = self._log.ended_by(*key)
        try:
            job: Job = await self._send(call, grant.job_id, op_id, work)
        except Fenced:
            words = f"{key} {op_id}: refused, though the same was applied under {first}"
            known = first is not None and self._log.reports.get(first) == report
            self._checker.expect("I30", not known, words)
            raise
        if self._log.applied(grant.job_id, op_id) is None:
            op_id = self._log.ended_by(*key) or op_id
            words = f"{key}: acknowledged, and another outcome was kept, under {op_id}"
            self._checker.expect("I30", self._log.reports.get(op_id) == report, words)
        self._ended_by(call, grant, op_id, job)
        return job

    async def _release(self, call: Call) -> Job:
        grant, op_id = call.given["grant"], call.given["op_id"]
        job: Job = await self._send(call, grant.job_id, op_id)
        self._ended_by(call, grant, op_id, job)
        return job

    async def _cancel(self, call: Call) -> Job:
        job_id = call.given["job_id"]
        job: Job = await self._send(call, job_id, call.given["op_id"])
        self._note_end(job)
        asked = job.state is State.CANCELLED or job.cancel is not None
        self._checker.expect("I23", asked, f"{job_id}: acknowledged, and not asked to stop")
        return job

    async def _replay(self, call: Call) -> Job:
        job_id, replay_id = call.given["job_id"], call.given["replay_id"]
        job: Job = await self._send(call, job_id)
        first = self._checker.replays.get((job_id, replay_id))
        self._checker.expect("I28", first == job.job_id, f"{replay_id} made {first}, {job.job_id}")
        return job

    async def _complete_validation(self, call: Call) -> Job:
        self._verdicts += 1
        job_id, version = call.given["job_id"], call.given["version"]
        op_id = call.given["op_id"] or f"{self._name}-verdict-{self._verdicts}"
        call.given["op_id"] = op_id
        job: Job = await self._send(call, job_id, op_id)
        applied = self._log.applied(job_id, op_id)
        if applied is None:
            words = f"{job_id}: a verdict was acknowledged, and is not there"
            found = call.given.get("found", ValidationResult())
            same = job.found == found or call.given["override"] is job.state
            self._checker.expect("I30", same, words)
        elif version is not None:
            words = f"{job_id}: the verdict on version {version} came after {applied - 1}"
            self._checker.expect("I35", applied == version + 1, words)
        self._note_end(job)
        return job

    async def _resume(self, call: Call) -> Job:
        job_id, resume_id = call.given["job_id"], call.given["resume_id"]
        if call.given["again"]:
            self._checker.wanted_again.add((job_id, resume_id))
        job: Job = await self._send(call, job_id)
        first = self._checker.resumed.get((job_id, resume_id), job.job_id)
        self._checker.expect("I28", first == job.job_id, f"{resume_id} made {first}, {job.job_id}")
        words = f"{job_id} is said to be resumed by {job.job_id}"
        self._checker.expect("I28", job.spec.resumed_from == job_id, words)
        return job

    async def _status(self, call: Call) -> Job:
        job_id = call.given["job_id"]
        track = self._checker.jobs.get(job_id)
        version = track.job.version if track and track.job else 0
        job: Job = await self._send(call, job_id)
        words = f"{job_id}: read version {job.version} after {version}"
        self._checker.expect("I8", job.version >= version, words)
        return job

    def _fenced(self, call: Call, grant: Grant, version: int) -> None:
        """I9: an operation that was accepted was the owner's."""
        token = self._log.token_at(grant.job_id, version)
        words = f"{call.name} {grant.job_id} with {grant.fencing_token} accepted under {token}"
        self._checker.expect("I9", token == grant.fencing_token, words)

    def _ended_by(self, call: Call, grant: Grant, op_id: str, job: Job) -> None:
        version = self._log.applied(grant.job_id, op_id)
        words = f"{call.name} {grant.job_id} {op_id}: acknowledged at {job.version}, is at {version}"
        self._checker.expect("I30", version == job.version, words)
        chain = self._checker.track(grant.job_id).chain
        first = next((e.offset or 1 for e in chain if e.op_id == op_id), 1)
        self._fenced(call, grant, first - 1)
        self._note_end(job)

    def _note_end(self, job: Job) -> None:
        """I23: a job that was returned as ended stays as it is."""
        if job.state in ENDED and job.state is not State.PARTIAL_SUCCESS:
            first = self._log.ended.setdefault(job.job_id, job.state)
            self._checker.expect("I23", first is job.state, f"{job.job_id}: {first}, {job.state}")


_CHECKS: dict[str, Callable[[CheckedRegistry, Call], Awaitable[Any]]] = {
    verb.__name__: check
    for verb, check in (
        (Registry.enqueue, CheckedRegistry._enqueue),
        (Registry.claim, CheckedRegistry._claim),
        (Registry.acquire, CheckedRegistry._acquire),
        (Registry.heartbeat, CheckedRegistry._heartbeat),
        (Registry.publish, CheckedRegistry._publish),
        (Registry.aggregate, CheckedRegistry._aggregate),
        (Registry.complete, CheckedRegistry._complete),
        (Registry.complete_many, CheckedRegistry._complete_many),
        (Registry.release, CheckedRegistry._release),
        (Registry.cancel, CheckedRegistry._cancel),
        (Registry.replay, CheckedRegistry._replay),
        (Registry.complete_validation, CheckedRegistry._complete_validation),
        (Registry.resume, CheckedRegistry._resume),
        (Registry.status, CheckedRegistry._status),
    )
}
