"""The remote registry, first part: the verbs that change jobs, done by a server."""

from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from operator import attrgetter
from typing import Literal, TypeVar

from msgspec.structs import replace
from protobuf import Message, Oneof

from holdfast.core.errors import HoldfastError, Invalid, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job, Progress
from holdfast.core.lifecycle import HandoffStep, Outcome, Stopped, Success
from holdfast.core.limits import BATCH_ITEMS_MAX, clip
from holdfast.core.spec import Json, check_struct
from holdfast.ports import Completion, Grant, Ids, Request
from holdfast.registry.requests import command_of
from holdfast.wire.errors import error_of
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.link import Link, check_written
from holdfast.wire.mapping import duration, json_text, misread
from holdfast.wire.values import EVENT, FAILURE, GRANT, JOB, PROGRESS, REQUEST

T = TypeVar("T")
M = TypeVar("M", bound=Message)

MESSAGE_BYTES = 700 * 1024
"""How much is sent at once: a server takes 1 MiB, and a message has more in it than its data."""

NOTHING = "there is nothing in it."


class RemoteOwning:
    """Every mutation gets an op_id here, if the caller has none: so it can be sent again, to another
    server too."""

    def __init__(self, link: Link, ids: Ids) -> None:
        self._link = link
        self._ids = ids
        self._claim: pb.ClaimRequest | None = None

    @property
    def link(self) -> Link:
        """The way to the server."""
        return self._link

    def _op(self, op_id: str | None) -> str:
        return self._ids.new() if op_id is None else op_id

    async def _job(self, method: str, asked: Message) -> Job:
        answer: pb.JobResponse = await self._link.call(attrgetter(method), asked)
        return JOB.read(there(answer.job))

    # Making jobs.

    async def enqueue(self, request: Request, *, actor: str, connection: object = None) -> Job:
        [job] = await self.enqueue_many([request], actor=actor, connection=connection)
        return job

    async def enqueue_many(
        self, requests: Sequence[Request], *, actor: str, connection: object = None
    ) -> list[Job]:
        if connection is not None:
            raise Invalid("Only a postgresql:// store can make jobs inside a transaction of yours.")
        if any(one.found is not None for one in requests):
            raise Invalid("A server looks by itself what is there already: ask its inspector.")
        named = [
            one
            if one.job_id is not None or one.request_id is not None
            else replace(one, job_id=self._ids.new())
            for one in requests
        ]
        jobs: list[Job] = []
        for one in named:
            command_of(one, self._ids, actor=actor)  # all are checked before any is made
        for some in chunks([REQUEST.encode(one) for one in named]):
            asked = pb.EnqueueRequest(requests=some, actor=actor)
            try:
                answer = await self._link.call(attrgetter("enqueue"), asked)
            except Unavailable as error:
                if jobs:  # what was sent before has landed
                    error.applied = "unknown"
                raise
            jobs += map(JOB.read, one_each(some, answer.jobs))
        return jobs

    async def handoff(
        self,
        job_id: str,
        step: HandoffStep,
        *,
        actor: str,
        op_id: str | None = None,
        handle: dict[str, str] | None = None,
        error: str | None = None,
    ) -> Job:
        asked = pb.HandoffRequest(
            job_id=job_id,
            step=str(step),
            actor=actor,
            op_id=self._op(op_id),
            handle={name: str(text) for name, text in (handle or {}).items()},
            error=clipped(error),
        )
        return await self._job("handoff", asked)

    async def replay(self, job_id: str, *, actor: str, replay_id: str | None = None) -> Job:
        asked = pb.ReplayRequest(job_id=job_id, actor=actor, op_id=self._op(replay_id))
        return await self._job("replay", asked)

    # Owning them.

    async def claim(
        self,
        queues: Sequence[str],
        *,
        owner: str,
        limit: int = 1,
        op_id: str | None = None,
        kinds: Sequence[str] = (),
        lease: timedelta | None = None,
        heartbeat_interval: timedelta | None = None,
        region: str | None = None,
        executor: str | None = None,
    ) -> list[Grant]:
        if not 1 <= limit <= BATCH_ITEMS_MAX:
            raise Invalid(f"A claim takes from 1 to {BATCH_ITEMS_MAX} jobs, not {limit}.")
        self._claim = pb.ClaimRequest(
            queues=list(queues),
            owner=owner,
            limit=limit,
            op_id=self._op(op_id),
            kinds=list(kinds),
            lease=None if lease is None else duration(lease),
            heartbeat_interval=None if heartbeat_interval is None else duration(heartbeat_interval),
            region=region,
            executor=executor,
            keeps_timeout=True,
        )
        answer = await self._link.call(attrgetter("claim"), self._claim)
        return [GRANT.read(grant) for grant in answer.grants]

    async def acquire(
        self,
        job_id: str,
        *,
        owner: str,
        op_id: str | None = None,
        lease: timedelta | None = None,
        heartbeat_interval: timedelta | None = None,
        region: str | None = None,
        executor: str | None = None,
        create: Request | None = None,
    ) -> Grant:
        asked = pb.AcquireRequest(
            job_id=job_id,
            owner=owner,
            op_id=self._op(op_id),
            lease=None if lease is None else duration(lease),
            heartbeat_interval=None if heartbeat_interval is None else duration(heartbeat_interval),
            region=region,
            executor=executor,
            create=None if create is None else REQUEST.encode(create),
            keeps_timeout=True,
        )
        answer = await self._link.call(attrgetter("acquire"), asked)
        return GRANT.read(there(answer.grant))

    async def heartbeat(
        self,
        grant: Grant,
        *,
        lease: timedelta | None = None,
        progress: Progress | None = None,
        checkpoint: Json = None,
    ) -> Job:
        asked = pb.HeartbeatRequest(
            task_token=_token(grant),
            lease=None if lease is None else duration(lease),
            progress=None if progress is None else PROGRESS.encode(check_struct(progress)),
            checkpoint=None if checkpoint is None else _text(checkpoint, "checkpoint"),
        )
        return await self._job("heartbeat", asked)

    async def publish(self, grant: Grant, events: Sequence[Event]) -> Job:
        token, job = _token(grant), grant.job
        for some in chunks([EVENT.encode(event) for event in events]) or [[]]:
            asked = pb.PublishRequest(task_token=token, events=some)
            job = await self._job("publish", asked)
        return job

    async def aggregate(self, grant: Grant, *, op_id: str | None = None) -> Job:
        asked = pb.AggregateRequest(task_token=_token(grant), op_id=self._op(op_id))
        return await self._job("aggregate", asked)

    async def complete(
        self,
        grant: Grant,
        outcome: Outcome,
        *,
        op_id: str | None = None,
        compensated: bool | None = None,
        follow_ups: Sequence[Request] = (),
    ) -> Job:
        done = Completion(grant, outcome, op_id, compensated, tuple(follow_ups))
        [answer] = await self.complete_many([done])
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def complete_many(self, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
        answers: list[Job | HoldfastError | None] = []
        told: list[pb.Completion] = []
        for done in completions:
            try:
                told.append(self._completion(done))
                answers.append(None)
            except Invalid as error:
                answers.append(error)
        ended = [answer for some in chunks(told) for answer in await self._complete(some)]
        rest = iter(ended)
        return [next(rest) if answer is None else answer for answer in answers]

    async def _complete(self, some: list[pb.Completion]) -> list[Job | HoldfastError]:
        try:
            asked = pb.CompleteRequest(completions=some)
            answer = await self._link.call(attrgetter("complete"), asked)
            return list(map(_answer, one_each(some, answer.answers)))
        except HoldfastError as error:
            return [copy(error) for _ in some]

    def _completion(self, done: Completion) -> pb.Completion:
        return pb.Completion(
            task_token=_token(done.grant),
            outcome=_outcome(done.outcome),
            op_id=self._op(done.op_id),
            compensated=done.compensated,
            follow_ups=[REQUEST.encode(request) for request in done.follow_ups],
        )

    async def release(
        self,
        grant: Grant,
        *,
        op_id: str | None = None,
        reason: str | None = None,
        delay: timedelta | None = None,
        undelivered: bool = False,
    ) -> Job:
        asked = pb.ReleaseRequest(
            task_token=_token(grant),
            op_id=self._op(op_id),
            reason=clipped(reason),
            delay=None if delay is None else duration(delay),
            undelivered=undelivered,
        )
        return await self._job("release", asked)

    async def cancel(
        self,
        job_id: str,
        *,
        actor: str,
        op_id: str | None = None,
        reason: str | None = None,
        hard: bool = False,
    ) -> Job:
        asked = pb.CancelRequest(
            job_id=job_id, actor=actor, op_id=self._op(op_id), reason=clipped(reason), hard=hard
        )
        return await self._job("cancel", asked)


def there(message: T | None) -> T:
    """What an answer must have in it."""
    if message is None:
        raise misread(NOTHING)
    return message


def one_each(asked: Sequence[object], answers: Sequence[M]) -> Sequence[M]:
    """The answers, when there is one for each that was asked for."""
    if len(answers) != len(asked):
        raise misread(f"it has {len(answers)} parts, and {len(asked)} were asked for.")
    return answers


def _token(grant: Grant) -> str:
    if grant.task_token is None:
        raise Invalid("This grant is of another registry: it has no task token.")
    return grant.task_token


def chunks(messages: Sequence[M]) -> list[list[M]]:
    """The messages in order, as many at a time as a server takes."""
    chunks: list[list[M]] = []
    total = MESSAGE_BYTES
    for message in messages:
        size = check_written(message)
        total += size
        if total > MESSAGE_BYTES or len(chunks[-1]) == BATCH_ITEMS_MAX:
            chunks.append([])
            total = size
        chunks[-1].append(message)
    return chunks


def clipped(text: str | None) -> str | None:
    """The text, cut to what a server takes."""
    return None if text is None else clip(text)


def _text(value: Json, what: str) -> str:
    try:
        return json_text(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"{what} cannot be written as JSON: {error}") from error


_Succeeded = Oneof[Literal["success"], pb.Success]
_Failed = Oneof[Literal["failure"], pb.Failure]
_Stopped = Oneof[Literal["stopped"], pb.Stopped]


def _outcome(outcome: Outcome) -> _Succeeded | _Failed | _Stopped:
    match outcome:
        case Success(result=result, where=where):
            text = None if result is None else _text(result, "result")
            return _Succeeded("success", pb.Success(result=text, where=where))
        case Failure():
            return _Failed("failure", FAILURE.encode(check_struct(outcome)))
        case Stopped(reason=reason, where=where):
            return _Stopped("stopped", pb.Stopped(reason=clipped(reason), where=where))


def _answer(one: pb.Answer) -> Job | HoldfastError:
    match one.answer.value if one.answer else None:
        case pb.Job() as job:
            try:
                return JOB.read(job)
            except Unavailable as error:
                return error
        case pb.ErrorDetail() as error:
            return error_of(error)
    return misread(NOTHING)
