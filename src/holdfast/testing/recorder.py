"""The recorder: what callers asked of a registry and what it told them, as lines that can be joined."""

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.core.errors import Corrupt, HoldfastError, NotFound, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Job, Progress
from holdfast.core.lifecycle import Outcome
from holdfast.core.naming import derived_id
from holdfast.core.spec import Json
from holdfast.ports import Grant, Ids, Registry, Request
from holdfast.testing.history import Entry, Shown

T = TypeVar("T")


class Recorder:
    """The verbs of a registry, recorded. Whatever has no name gets one, to be found in the log by.

    Verbs that are not here go past the record: a history with them is not complete.
    """

    def __init__(
        self,
        registry: Registry,
        ids: Ids,
        keep: Callable[[Entry], object],
        *,
        process: str,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._registry = registry
        self._ids = ids
        self._keep = keep
        self._process = process
        self._now_ns = now_ns
        self.operations = 0

    async def enqueue(self, request: Request, *, actor: str) -> Job:
        if request.request_id is None and request.job_id is None:
            request = replace(request, job_id=self._ids.new())
        job_id = op_id = request.job_id
        if request.request_id is not None:
            op_id = request.request_id
            job_id = derived_id(request.spec.queue, op_id)
        call = self._registry.enqueue(request, actor=actor)
        return await self._one("enqueue", call, job_id, op_id=op_id)

    async def claim(
        self,
        queues: Sequence[str],
        *,
        owner: str,
        limit: int = 1,
        op_id: str | None = None,
        lease: timedelta | None = None,
    ) -> list[Grant]:
        op_id = op_id or self._ids.new()
        call = self._registry.claim(queues, owner=owner, limit=limit, op_id=op_id, lease=lease)
        return await self._record("claim", call, _granted, op_id=op_id, limit=limit)

    async def acquire(
        self, job_id: str, *, owner: str, op_id: str | None = None, lease: timedelta | None = None
    ) -> Grant:
        op_id = op_id or self._ids.new()
        call = self._registry.acquire(job_id, owner=owner, op_id=op_id, lease=lease)
        return await self._record("claim", call, _acquired, op_id=op_id, job_id=job_id)

    async def heartbeat(
        self,
        grant: Grant,
        *,
        lease: timedelta | None = None,
        progress: Progress | None = None,
        checkpoint: Json = None,
    ) -> Job:
        call = self._registry.heartbeat(
            grant, lease=lease, progress=progress, checkpoint=checkpoint
        )
        return await self._one("heartbeat", call, grant.job_id, token=grant.fencing_token)

    async def publish(self, grant: Grant, events: Sequence[Event]) -> Job:
        call = self._registry.publish(grant, events)
        return await self._one("publish", call, grant.job_id, token=grant.fencing_token)

    async def aggregate(self, grant: Grant, *, op_id: str | None = None) -> Job:
        op_id = op_id or self._ids.new()
        call = self._registry.aggregate(grant, op_id=op_id)
        return await self._owned("aggregate", call, grant, op_id)

    async def complete(
        self,
        grant: Grant,
        outcome: Outcome,
        *,
        op_id: str | None = None,
        compensated: bool | None = None,
        follow_ups: Sequence[Request] = (),
    ) -> Job:
        op_id = op_id or self._ids.new()
        call = self._registry.complete(
            grant, outcome, op_id=op_id, compensated=compensated, follow_ups=follow_ups
        )
        return await self._owned("complete", call, grant, op_id)

    async def release(
        self,
        grant: Grant,
        *,
        op_id: str | None = None,
        reason: str | None = None,
        delay: timedelta | None = None,
        undelivered: bool = False,
    ) -> Job:
        op_id = op_id or self._ids.new()
        call = self._registry.release(
            grant, op_id=op_id, reason=reason, delay=delay, undelivered=undelivered
        )
        return await self._owned("release", call, grant, op_id)

    async def cancel(
        self,
        job_id: str,
        *,
        actor: str,
        op_id: str | None = None,
        reason: str | None = None,
        hard: bool = False,
    ) -> Job:
        op_id = op_id or self._ids.new()
        call = self._registry.cancel(job_id, actor=actor, op_id=op_id, reason=reason, hard=hard)
        return await self._one("cancel", call, job_id, op_id=op_id)

    async def get(self, job_id: str) -> Job:
        return await self._one("get", self._registry.get(job_id), job_id)

    async def _owned(self, verb: str, call: Awaitable[Job], grant: Grant, op_id: str) -> Job:
        return await self._one(verb, call, grant.job_id, op_id=op_id, token=grant.fencing_token)

    async def _one(
        self,
        verb: str,
        call: Awaitable[Job],
        job_id: str | None,
        *,
        op_id: str | None = None,
        token: int | None = None,
    ) -> Job:
        return await self._record(verb, call, _shown, op_id=op_id, job_id=job_id, token=token)

    async def _record(
        self,
        verb: str,
        call: Awaitable[T],
        shown: Callable[[T], tuple[Shown, ...]],
        *,
        op_id: str | None = None,
        job_id: str | None = None,
        token: int | None = None,
        limit: int = 1,
    ) -> T:
        self.operations += 1
        process, number, now_ns = self._process, self.operations, self._now_ns
        self._keep(
            Entry(
                process=process,
                number=number,
                at_ns=now_ns(),
                type="invoke",
                verb=verb,
                op_id=op_id,
                job_id=job_id,
                token=token,
                limit=limit,
            )
        )
        try:
            answer = await call
        except BaseException as error:
            self._keep(_refusal(process, number, now_ns(), job_id, error))
            raise
        at_ns = now_ns()
        self._keep(
            Entry(process=process, number=number, at_ns=at_ns, type="ok", shown=shown(answer))
        )
        return answer


def _shown(job: Job) -> tuple[Shown, ...]:
    return (Shown(job.job_id, job.version, job.fencing_token, job.state),)


def _acquired(grant: Grant) -> tuple[Shown, ...]:
    return _shown(grant.job)


def _granted(grants: list[Grant]) -> tuple[Shown, ...]:
    return tuple([shown for grant in grants for shown in _shown(grant.job)])


def _refusal(
    process: str, number: int, at_ns: int, job_id: str | None, error: BaseException
) -> Entry:
    """`fail` when nothing was applied for certain; a caller who left before the answer knows nothing."""
    definite = isinstance(error, HoldfastError) and not isinstance(error, Corrupt)
    if isinstance(error, Unavailable):
        definite = error.applied == "no"
    version = 0 if isinstance(error, NotFound) else getattr(error, "version", None)
    return Entry(
        process=process,
        number=number,
        at_ns=at_ns,
        type="fail" if definite else "info",
        shown=()
        if job_id is None or version is None or not definite
        else (Shown(job_id, version),),
        error=type(error).__name__,
    )


class LineFile:
    """A file of lines. Each is written at once, so that a process that is killed has kept it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._encode = msgspec.json.Encoder().encode

    def keep(self, entry: Entry) -> None:
        os.write(self._file, self._encode(entry) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read_lines(paths: Iterable[Path]) -> Iterator[Entry]:
    decoder = msgspec.json.Decoder(Entry)
    for path in paths:
        yield from decoder.decode_lines(path.read_bytes())
