"""The remote registry: the verbs of the port, called over the wire.

Most methods are derived: their parameters come from the port, and are the fields of the request in the
table of verbs. Written out are the methods that send in batches, wait, or follow a stream.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from copy import copy
from inspect import Parameter, signature
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from msgspec import structs

from holdfast.core.access import Key
from holdfast.core.errors import Exhausted, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.core.event import Event, check_external
from holdfast.core.job import Job
from holdfast.core.lifecycle import Outcome
from holdfast.core.limits import BATCH_ITEMS_MAX, check_actor
from holdfast.ports import (
    Clock,
    Completion,
    EnqueuedJobs,
    EventPage,
    Grant,
    Ids,
    JobRequest,
    Registry,
    Resumption,
)
from holdfast.registry.job_requests import enqueue_commands
from holdfast.wire import requests, responses
from holdfast.wire.arguments import FIELDS, only_field, task_token
from holdfast.wire.batch_codecs import COMPLETION
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import undecodable_response
from holdfast.wire.replays import replays_in_logs
from holdfast.wire.server_connection import ServerConnection
from holdfast.wire.values import EVENT, JOB_REQUEST
from holdfast.wire.verb_client import VerbClient, check_count, chunks, nothing_applied_by_reads
from holdfast.wire.verbs import VERBS_BY_NAME

P = ParamSpec("P")
R = TypeVar("R")

IDS_AT_ONCE = 200
CALLS_AT_ONCE = 32
AWAY_SECONDS = 1.0
RECONNECTS_MAX = 30
WAIT_SECONDS = 20.0
AWAIT_MS = 30_000
EMPTY = "it is empty."


def derived(
    port_method: Callable[Concatenate[Registry, P], Coroutine[Any, Any, R]],
    name: str | None = None,
    *,
    check: Callable[[Any], object] | None = None,
    unwrap: Callable[[Any], R] | None = None,
    **more: object,
) -> Callable[Concatenate["RemoteRegistry", P], Coroutine[Any, Any, R]]:
    """Return the implementation of a method of the port: it sends its arguments as the fields of the
    verb's request, after `check`, together with the constant fields `more`. Of a response with one field
    it returns that field, unless `unwrap` is given."""
    name = name or port_method.__name__
    request = VERBS_BY_NAME[name].request.value
    [_, *parameters] = signature(port_method).parameters.values()
    names = [one.name for one in parameters if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    absent = (None, ..., Parameter.empty)
    defaults = {one.name: one.default for one in parameters if one.default not in absent}
    take = unwrap or only_field(VERBS_BY_NAME[name].response.value)
    has_op = "op_id" in request.__struct_fields__

    async def method(self: "RemoteRegistry", /, *args: P.args, **kwargs: P.kwargs) -> R:
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        fields = dict(more)
        for field, value in given.items():
            if value is not None:
                target, convert = FIELDS.get(field, (field, None))
                fields[target] = value if convert is None else convert(value)
        if has_op and "op_id" not in fields:
            fields["op_id"] = self._client.op_id_or_new(None)
        sent = request(**fields)
        if check is not None:
            check(sent)
        if isinstance(sent, requests.Claim):
            self._claim = sent
        return take(await self._client.call(name, sent))

    return method


def _check_claim(request: requests.Claim) -> None:
    if request.limit is None or not 1 <= request.limit <= BATCH_ITEMS_MAX:
        raise Invalid(f"A claim takes from 1 to {BATCH_ITEMS_MAX} jobs, not {request.limit}.")


def _check_new_key(request: requests.CreateKey) -> None:
    check_actor(request.actor)
    if not request.queues:
        raise Invalid("Name at least one queue for the key; '*' is all of them.")


def _made(resumption: Resumption) -> Job:
    if resumption.job is None:
        raise undecodable_response(EMPTY)
    return resumption.job


def _key(response: responses.CreatedKey) -> tuple[Key, str]:
    return response.key, response.text


class RemoteRegistry:
    """The registry of a server."""

    handoff = derived(Registry.handoff)
    replay = derived(Registry.replay)
    claim = derived(Registry.claim, check=_check_claim, keeps_timeout=True)
    acquire = derived(Registry.acquire, keeps_timeout=True)
    heartbeat = derived(Registry.heartbeat)
    aggregate = derived(Registry.aggregate)
    release = derived(Registry.release)
    cancel = derived(Registry.cancel)
    report_validation = derived(Registry.report_validation)
    complete_validation = derived(Registry.complete_validation)
    resume = derived(Registry.resume, unwrap=_made)
    list_jobs = derived(Registry.list_jobs)
    counts = derived(Registry.counts)
    locks = derived(Registry.locks)
    why = derived(Registry.why)
    announce = derived(Registry.announce)
    workers = derived(Registry.workers)
    queues = derived(Registry.queues)
    history_page = derived(Registry.history_page, "history")
    logs = derived(Registry.logs)
    events = derived(Registry.events)
    tail = derived(Registry.tail)
    now = derived(Registry.now)
    expire = derived(Registry.expire)
    prune = derived(Registry.prune)
    verify = derived(Registry.verify)
    doctor = derived(Registry.doctor)
    create_key = derived(Registry.create_key, check=_check_new_key, unwrap=_key)
    list_keys = derived(Registry.list_keys)
    revoke_key = derived(Registry.revoke_key, check=lambda request: check_actor(request.actor))

    def __init__(self, connection: ServerConnection, clock: Clock, ids: Ids) -> None:
        self._client = VerbClient(connection, ids)
        self._ids = ids
        self._clock = clock
        self._claim: requests.Claim | None = None
        self._mark: str | None = None
        self._changes = 0

    @property
    def calls_at_once(self) -> int:
        return CALLS_AT_ONCE

    @property
    def connection(self) -> ServerConnection:
        """The connection to the server."""
        return self._client.connection

    def take_unvalidated(self) -> list[str]:
        """Return nothing: the server validates the jobs that end there."""
        return []

    def describe(self) -> str:
        return f"a holdfast server at {' or '.join(self.connection.addresses)}"

    async def enqueue(self, request: JobRequest, *, actor: str, connection: object = None) -> Job:
        [job] = await self.enqueue_many([request], actor=actor, connection=connection)
        return job

    async def enqueue_many(
        self, requests: Sequence[JobRequest], *, actor: str, connection: object = None
    ) -> EnqueuedJobs:
        if connection is not None:
            raise Invalid(
                "Only a postgresql:// store can create jobs inside a transaction of the caller.",
                advice="Give the client the URL of the database itself.",
            )
        if any(one.found is not None for one in requests):
            raise Invalid("A server itself checks which outputs exist already: use its inspector.")
        named = [
            one
            if one.job_id is not None or one.request_id is not None
            else structs.replace(one, job_id=self._ids.new())
            for one in requests
        ]
        jobs, existed = list[Job](), set[str]()
        enqueue_commands(named, self._ids, actor=actor)  # all are checked before any is created
        for some in chunks([JOB_REQUEST.encode(one) for one in named]):
            try:
                message = pb.EnqueueRequest(requests=some, actor=actor)
                made: responses.JobList = await self._client.send("enqueue", message)
            except Unavailable as error:
                if jobs:  # the earlier chunks were applied
                    error.applied = "unknown"
                raise
            jobs += check_count(some, made.jobs)
            existed.update(made.existed)
        # An id that was generated here exists already only when the request was sent twice.
        generated = {one.job_id for one, asked in zip(named, requests, strict=True) if one is not asked}
        return EnqueuedJobs.of(jobs, existed - generated)

    async def publish(self, grant: Grant, events: Sequence[Event]) -> Job:
        token, job = task_token(grant), grant.job
        for some in chunks([EVENT.encode(event) for event in events]) or [[]]:
            message = pb.PublishRequest(task_token=token, events=some)
            job = (await self._client.send("publish", message)).job
        return job

    async def complete(
        self,
        grant: Grant,
        outcome: Outcome,
        *,
        op_id: str | None = None,
        compensated: bool | None = None,
        follow_ups: Sequence[JobRequest] = (),
    ) -> Job:
        done = Completion(grant, outcome, op_id, compensated, tuple(follow_ups))
        [result] = await self.complete_many([done])
        if isinstance(result, HoldfastError):
            raise result
        return result

    async def complete_many(self, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
        refused: dict[int, Invalid] = {}
        messages: list[pb.Completion] = []
        for n, done in enumerate(completions):
            try:
                messages.append(COMPLETION.encode(self._ended(done)))
            except Invalid as error:
                refused[n] = error
        results = [one for some in chunks(messages) for one in await self._complete(some)]
        rest = iter(results)
        return [refused[n] if n in refused else next(rest) for n in range(len(completions))]

    async def _complete(self, some: list[pb.Completion]) -> list[Job | HoldfastError]:
        try:
            message = pb.CompleteRequest(completions=some)
            each: responses.BatchResponse = await self._client.send("complete", message)
            return [
                undecodable_response(EMPTY) if one is None else one for one in check_count(some, each.answers)
            ]
        except HoldfastError as error:
            return [copy(error) for _ in some]

    def _ended(self, done: Completion) -> requests.AttemptCompletion:
        return requests.AttemptCompletion(
            task_token=task_token(done.grant),
            outcome=done.outcome,
            op_id=self._client.op_id_or_new(done.op_id),
            compensated=done.compensated,
            follow_ups=done.follow_ups,
        )

    async def record(self, events: Sequence[Event]) -> int:
        recorded = 0
        for some in chunks([EVENT.encode(check_external(event)) for event in events]):
            response = await self._client.send("record", pb.RecordRequest(events=some))
            recorded += response.recorded
        return recorded

    async def status(self, job_id: str) -> Job:
        [job] = await self.status_many([job_id])
        if job is None:
            raise NotFound(f"There is no job {job_id}.", job_id=job_id)
        return job

    async def status_many(self, job_ids: Sequence[str]) -> list[Job | None]:
        jobs: list[Job | None] = []
        for start in range(0, len(job_ids), IDS_AT_ONCE):
            jobs += await self._get(job_ids[start : start + IDS_AT_ONCE])
        return jobs

    async def _get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """Return the jobs, in halves where they are too large for one response."""
        try:
            request = requests.Status(job_ids=tuple(job_ids))
            each: responses.BatchResponse = await self._client.call("status", request)
        except Exhausted:
            if len(job_ids) == 1:
                raise
            half = len(job_ids) // 2
            return await self._get(job_ids[:half]) + await self._get(job_ids[half:])
        jobs: list[Job | None] = []
        with nothing_applied_by_reads("status"):
            answers = check_count(job_ids, each.answers)
        for one in answers:
            if isinstance(one, HoldfastError):
                raise one
            jobs.append(one)
        return jobs

    async def replays(self, job_ids: Sequence[str]) -> list[list[str]]:
        return await replays_in_logs(self, job_ids)

    async def history(self, job_id: str) -> list[Event]:
        events, cursor = list[Event](), None
        while True:
            page = await self.history_page(job_id, after=cursor)
            events += page.events
            cursor = page.next
            if cursor is None:
                return events

    async def watch(
        self, job_id: str | None = None, *, after: str | None = None
    ) -> AsyncGenerator[Event, None]:
        """Every event from the cursor on, each once. A stream that breaks is reopened where it was."""
        cursor, broken = after, 0
        while True:
            request = requests.Watch(job_id=job_id, after=cursor)
            try:
                async with aclosing(self._client.stream("watch", request)) as pages:
                    async for one in pages:
                        page = cast("EventPage", one)
                        for event in page.events:
                            yield event
                        cursor, broken = page.cursor, 0
                return
            except Unavailable:
                broken += 1
                if broken > RECONNECTS_MAX:
                    raise
                await self._clock.sleep(AWAY_SECONDS)

    async def wait(self, job_id: str, *, timeout: float | None = None) -> Job:  # noqa: ASYNC109
        """Return the job once it has ended; raise `Unavailable` if that takes longer than `timeout`."""
        until = None if timeout is None else self._clock.monotonic() + timeout
        broken = 0
        while True:
            try:
                job = await self.status(job_id)
            except Unavailable:
                broken += 1
                late = until is not None and self._clock.monotonic() >= until
                if late or broken > RECONNECTS_MAX:
                    raise
                await self._clock.sleep(AWAY_SECONDS)
                continue
            broken = 0
            if job.ended:
                return job
            left = WAIT_SECONDS if until is None else until - self._clock.monotonic()
            if left <= 0:
                raise Unavailable(f"Job {job_id} is still {job.state}.", job_id=job_id, version=job.version)
            request = requests.Changes(
                mark=f"{job.version}.{job.published}",
                seconds=min(left, WAIT_SECONDS),
                job_id=job_id,
            )
            try:
                await self._client.call("changes", request, timeout_ms=AWAIT_MS)
            except Unavailable:  # it is sent again
                pass
            except Exhausted:  # too many clients wait there: poll
                await self._clock.sleep(min(left, AWAY_SECONDS))

    def change_mark(self, *, ready: bool = False) -> int:
        return self._changes

    async def changes(
        self,
        *,
        since: int | None = None,
        timeout: float,  # noqa: ASYNC109
        ready: bool = False,
    ) -> None:
        """Return also when the server does not respond; the next call to it raises the error."""
        seconds = min(timeout, WAIT_SECONDS)
        claim = self._claim if ready else None
        if claim is None and since is not None and since != self._changes:
            return
        mark = self._mark if claim is None else None
        request = requests.Changes(seconds=seconds, claim=claim, mark=mark)
        try:
            response: responses.ChangeMark = await self._client.call("changes", request, timeout_ms=AWAIT_MS)
        except HoldfastError:
            await self._clock.sleep(min(seconds, AWAY_SECONDS))
            return
        if claim is None and response.mark != self._mark:
            self._mark = response.mark
            self._changes += 1

    async def close(self) -> None:
        await self.connection.close()
