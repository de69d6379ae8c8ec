"""The remote registry: the same verbs, done by a server.

Most methods are derived: the port gives their parameters, and the table of verbs the request that these
are the fields of. Written out are those that send in batches, wait, or follow a stream.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from copy import copy
from inspect import Parameter, signature
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from msgspec import Struct, structs

from holdfast.core.access import Key
from holdfast.core.errors import Exhausted, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.core.event import Event, check_external
from holdfast.core.job import Job
from holdfast.core.lifecycle import Outcome
from holdfast.core.limits import BATCH_ITEMS_MAX, check_actor, clip
from holdfast.core.spec import check_struct
from holdfast.ports import (
    Clock,
    Completion,
    Filter,
    Grant,
    Ids,
    Registry,
    Request,
    Resumption,
    Slice,
)
from holdfast.registry.requests import command_of
from holdfast.wire import answers, asks
from holdfast.wire.caller import Caller, chunks, one_each
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.link import Link
from holdfast.wire.mapping import misread
from holdfast.wire.values import EVENT, REQUEST
from holdfast.wire.verbs import BY_NAME, COMPLETION

P = ParamSpec("P")
R = TypeVar("R")

IDS_AT_ONCE = 200
AWAY_SECONDS = 1.0
RECONNECTS_MAX = 30
WAIT_SECONDS = 20.0
AWAIT_MS = 30_000
NOTHING = "there is nothing in it."


def derived(
    promise: Callable[Concatenate[Registry, P], Coroutine[Any, Any, R]],
    name: str | None = None,
    *,
    check: Callable[[Any], object] | None = None,
    unwrap: Callable[[Any], R] | None = None,
    **more: object,
) -> Callable[Concatenate["RemoteRegistry", P], Coroutine[Any, Any, R]]:
    """Return the method that keeps this promise of the port: it sends its arguments as the fields of the
    verb's request, after `check`, with `more` fields that are always the same. Of a response with one
    field it returns that field, unless `unwrap` says otherwise."""
    name = name or promise.__name__
    request = BY_NAME[name].request.value
    [_, *parameters] = signature(promise).parameters.values()
    names = [one.name for one in parameters if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    unsaid = (None, ..., Parameter.empty)
    defaults = {one.name: one.default for one in parameters if one.default not in unsaid}
    take = unwrap or _only_field(BY_NAME[name].response.value)
    has_op = "op_id" in request.__struct_fields__

    async def method(self: "RemoteRegistry", /, *args: P.args, **kwargs: P.kwargs) -> R:
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        fields = dict(more)
        for field, value in given.items():
            if value is not None:
                target, convert = _FIELDS.get(field, (field, None))
                fields[target] = value if convert is None else convert(value)
        if has_op and "op_id" not in fields:
            fields["op_id"] = self._caller.op(None)
        sent = request(**fields)
        if check is not None:
            check(sent)
        if isinstance(sent, asks.Claim):
            self._claim = sent
        return take(await self._caller.call(name, sent))

    return method


def _only_field(response: type[Struct]) -> Callable[[Any], Any]:
    """What a method returns of such a response: its one field (a list for a tuple), or all of it."""
    if len(response.__struct_fields__) != 1:
        return lambda value: value
    [field] = response.__struct_fields__

    def take(value: Struct) -> Any:  # noqa: ANN401
        found = getattr(value, field)
        return list(found) if isinstance(found, tuple) else found

    return take


def _token(grant: Grant) -> str:
    if grant.task_token is None:
        raise Invalid("This grant is of another registry: it has no task token.")
    return grant.task_token


def _which(which: Filter) -> asks.Which:
    fields = {name: getattr(which, name) for name in asks.Which.__struct_fields__}
    return asks.Which(**fields)


_FIELDS: dict[str, tuple[str, Callable[[Any], object] | None]] = {
    "grant": ("task_token", _token),
    "replay_id": ("op_id", None),
    "resume_id": ("op_id", None),
    "reason": ("reason", clip),
    "error": ("error", clip),
    "trouble": ("trouble", clip),
    "handle": ("handle", lambda handle: {name: str(text) for name, text in handle.items()}),
    "progress": ("progress", check_struct),
    "found": ("found", check_struct),
    "evidence": ("evidence", lambda evidence: tuple(map(check_struct, evidence))),
    "outputs": ("promise", check_struct),
    "which": ("which", _which),
    "output": ("without_output", lambda output: not output),
}
"""Which field of a request an argument is, and what is made of it; else the field of its own name."""


def _check_claim(request: asks.Claim) -> None:
    if request.limit is None or not 1 <= request.limit <= BATCH_ITEMS_MAX:
        raise Invalid(f"A claim takes from 1 to {BATCH_ITEMS_MAX} jobs, not {request.limit}.")


def _check_new_key(request: asks.CreateKey) -> None:
    check_actor(request.actor)
    if not request.queues:
        raise Invalid("Name at least one queue for the key; '*' is all of them.")


def _made(resumption: Resumption) -> Job:
    if resumption.job is None:
        raise misread(NOTHING)
    return resumption.job


def _key(response: answers.KeyMade) -> tuple[Key, str]:
    return response.key, response.text


class RemoteRegistry:
    """The verbs over the wire."""

    handoff = derived(Registry.handoff)
    replay = derived(Registry.replay)
    claim = derived(Registry.claim, check=_check_claim, keeps_timeout=True)
    acquire = derived(Registry.acquire, keeps_timeout=True)
    heartbeat = derived(Registry.heartbeat)
    aggregate = derived(Registry.aggregate)
    release = derived(Registry.release)
    cancel = derived(Registry.cancel)
    look = derived(Registry.look)
    judge = derived(Registry.judge)
    resume = derived(Registry.resume, unwrap=_made)
    list_jobs = derived(Registry.list_jobs)
    counts = derived(Registry.counts, "count_jobs")
    resource = derived(Registry.resource, "get_resource")
    why = derived(Registry.why)
    history_page = derived(Registry.history_page, "history")
    log = derived(Registry.log, "read_log")
    feed = derived(Registry.feed, "read_feed")
    tail = derived(Registry.tail)
    now = derived(Registry.now)
    expire = derived(Registry.expire)
    prune = derived(Registry.prune)
    verify = derived(Registry.verify)
    examine = derived(Registry.examine)
    create_key = derived(Registry.create_key, check=_check_new_key, unwrap=_key)
    keys = derived(Registry.keys, "list_keys")
    revoke_key = derived(Registry.revoke_key, check=lambda request: check_actor(request.actor))

    def __init__(self, link: Link, clock: Clock, ids: Ids) -> None:
        self._caller = Caller(link, ids)
        self._ids = ids
        self._clock = clock
        self._claim: asks.Claim | None = None
        self._mark: str | None = None
        self._changes = 0

    @property
    def link(self) -> Link:
        """The way to the server."""
        return self._caller.link

    def take_unverified(self) -> list[str]:
        """Nothing: the server looks for what has ended there."""
        return []

    def describe(self) -> str:
        return f"a holdfast server at {' or '.join(self.link.addresses)}"

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
            else structs.replace(one, job_id=self._ids.new())
            for one in requests
        ]
        jobs: list[Job] = []
        for one in named:
            command_of(one, self._ids, actor=actor)  # all are checked before any is made
        for some in chunks([REQUEST.encode(one) for one in named]):
            try:
                message = pb.EnqueueRequest(requests=some, actor=actor)
                made: answers.OfJobs = await self._caller.send("enqueue", message)
            except Unavailable as error:
                if jobs:  # what was sent before has landed
                    error.applied = "unknown"
                raise
            jobs += one_each(some, made.jobs)
        return jobs

    async def publish(self, grant: Grant, events: Sequence[Event]) -> Job:
        token, job = _token(grant), grant.job
        for some in chunks([EVENT.encode(event) for event in events]) or [[]]:
            message = pb.PublishRequest(task_token=token, events=some)
            job = (await self._caller.send("publish", message)).job
        return job

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
        refused: dict[int, Invalid] = {}
        messages: list[pb.Completion] = []
        for n, done in enumerate(completions):
            try:
                messages.append(COMPLETION.encode(self._ended(done)))
            except Invalid as error:
                refused[n] = error
        ended = [answer for some in chunks(messages) for answer in await self._complete(some)]
        rest = iter(ended)
        return [refused[n] if n in refused else next(rest) for n in range(len(completions))]

    async def _complete(self, some: list[pb.Completion]) -> list[Job | HoldfastError]:
        try:
            message = pb.CompleteRequest(completions=some)
            each: answers.OfEach = await self._caller.send("complete", message)
            return [
                misread(NOTHING) if one is None else one for one in one_each(some, each.answers)
            ]
        except HoldfastError as error:
            return [copy(error) for _ in some]

    def _ended(self, done: Completion) -> asks.Ended:
        return asks.Ended(
            task_token=_token(done.grant),
            outcome=done.outcome,
            op_id=self._caller.op(done.op_id),
            compensated=done.compensated,
            follow_ups=done.follow_ups,
        )

    async def record(self, events: Sequence[Event]) -> int:
        recorded = 0
        for some in chunks([EVENT.encode(check_external(event)) for event in events]):
            response = await self._caller.send("record", pb.RecordRequest(events=some))
            recorded += response.recorded
        return recorded

    async def get(self, job_id: str) -> Job:
        [job] = await self.get_many([job_id])
        if job is None:
            raise NotFound(f"There is no job {job_id}.", job_id=job_id)
        return job

    async def get_many(self, job_ids: Sequence[str]) -> list[Job | None]:
        jobs: list[Job | None] = []
        for start in range(0, len(job_ids), IDS_AT_ONCE):
            jobs += await self._get(job_ids[start : start + IDS_AT_ONCE])
        return jobs

    async def _get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """The jobs, by halves where they are too much for one response."""
        try:
            request = asks.GetJobs(job_ids=tuple(job_ids))
            each: answers.OfEach = await self._caller.call("get_jobs", request)
        except Exhausted:
            if len(job_ids) == 1:
                raise
            half = len(job_ids) // 2
            return await self._get(job_ids[:half]) + await self._get(job_ids[half:])
        jobs: list[Job | None] = []
        for one in one_each(job_ids, each.answers):
            if isinstance(one, HoldfastError):
                raise one
            jobs.append(one)
        return jobs

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
        """Every event from the cursor on, each once. A stream that breaks is opened again where it was."""
        cursor, broken = after, 0
        while True:
            request = asks.Watch(job_id=job_id, after=cursor)
            try:
                async with aclosing(self._caller.stream("watch", request)) as slices:
                    async for one in slices:
                        page = cast("Slice", one)
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
        """Return the job once it has ended; `Unavailable` when that takes longer than `timeout`."""
        until = None if timeout is None else self._clock.monotonic() + timeout
        broken = 0
        while True:
            try:
                job = await self.get(job_id)
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
                raise Unavailable(
                    f"Job {job_id} is still {job.state}.", job_id=job_id, version=job.version
                )
            request = asks.AwaitChange(
                mark=f"{job.version}.{job.published}",
                seconds=min(left, WAIT_SECONDS),
                job_id=job_id,
            )
            try:
                await self._caller.call("await_change", request, timeout_ms=AWAIT_MS)
            except Unavailable:  # it is sent again
                pass
            except Exhausted:  # too many clients wait there: read from time to time
                await self._clock.sleep(min(left, AWAY_SECONDS))

    def mark(self, *, ready: bool = False) -> int:
        return self._changes

    async def changed(
        self,
        *,
        since: int | None = None,
        timeout: float,  # noqa: ASYNC109
        ready: bool = False,
    ) -> None:
        """A server that does not answer has nothing new; the next call there raises why."""
        seconds = min(timeout, WAIT_SECONDS)
        claim = self._claim if ready else None
        if claim is None and since is not None and since != self._changes:
            return
        mark = self._mark if claim is None else None
        request = asks.AwaitChange(seconds=seconds, claim=claim, mark=mark)
        try:
            response: answers.Marked = await self._caller.call(
                "await_change", request, timeout_ms=AWAIT_MS
            )
        except HoldfastError:
            await self._clock.sleep(min(seconds, AWAY_SECONDS))
            return
        if claim is None and response.mark != self._mark:
            self._mark = response.mark
            self._changes += 1

    async def close(self) -> None:
        await self.link.close()
