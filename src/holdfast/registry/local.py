"""The local registry: the verbs, bound to one store. It has no rules and no state of its own."""

from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.core import cursor as core_cursor
from holdfast.core.access import Key
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Command, commands
from holdfast.core.limits import BATCH_ITEMS_MAX, check_actor, clip
from holdfast.core.state import State
from holdfast.core.task_token import SealedGrant, seal, unseal
from holdfast.ports import Census, Finding, Grant, Ids, Registry, Store
from holdfast.registry.claim import acquire, claim
from holdfast.registry.commit_queue import CommitQueue
from holdfast.registry.complete import complete, complete_many
from holdfast.registry.counters import JobCounters
from holdfast.registry.enqueue import enqueue, enqueue_many
from holdfast.registry.expire import expire
from holdfast.registry.handoff import handoff
from holdfast.registry.heartbeat import heartbeat
from holdfast.registry.keys import create_key, revoke_key
from holdfast.registry.logs import logs
from holdfast.registry.prune import prune
from holdfast.registry.publish import publish, refuse_publish
from holdfast.registry.query import (
    events,
    history,
    history_page,
    list_jobs,
    status,
    status_many,
    why,
)
from holdfast.registry.record import record
from holdfast.registry.replay import replay, replays
from holdfast.registry.resume import resume
from holdfast.registry.validation import complete_validation, report_validation
from holdfast.registry.verify import verify
from holdfast.registry.watch import wait, watch
from holdfast.registry.workers import announce, queues, workers

P = ParamSpec("P")
R = TypeVar("R")


def bind(
    verb: Callable[Concatenate[CommitQueue, P], R],
) -> Callable[Concatenate["LocalRegistry", P], R]:
    """Return the method that calls this verb. Its parameters and defaults are those of the function, so
    that they are written once; it is made with the class and costs 0.1 us a call."""

    @wraps(verb)
    def method(self: "LocalRegistry", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return verb(self._commits, *args, **kwargs)

    return method


def command(
    port_method: Callable[Concatenate[Registry, P], Coroutine[Any, Any, Job]],
    kind: Callable[..., Command],
) -> Callable[Concatenate["LocalRegistry", P], Coroutine[Any, Any, Job]]:
    """Return the method of a verb that is one command on one job: its arguments are the fields of the
    command. An owner's grant becomes its token and its name as the actor; texts are clipped."""
    bind_arguments = signature(port_method).bind

    @wraps(port_method)
    async def method(self: "LocalRegistry", /, *args: P.args, **kwargs: P.kwargs) -> Job:
        given = bind_arguments(self, *args, **kwargs).arguments
        del given["self"]
        op_id = self._commits.op_id_or_new(given.pop("op_id", None))
        if "grant" in given:
            grant: Grant = given.pop("grant")
            job_id, token = grant.job_id, grant.fencing_token
            fields = {"token": token, "actor": f"worker:{grant.job.owner}"}
        else:
            job_id, fields = given.pop("job_id"), {"actor": check_actor(given.pop("actor"))}
        for name, value in given.items():
            fields[name] = clip(value) if isinstance(value, str) else value
        return await self._commits.execute(job_id, kind(op_id=op_id, **fields))

    return method


class LocalRegistry:
    """The verbs over a store in this process."""

    enqueue = bind(enqueue)
    enqueue_many = bind(enqueue_many)
    handoff = bind(handoff)
    claim = bind(claim)
    acquire = bind(acquire)
    heartbeat = bind(heartbeat)
    publish = bind(publish)
    refuse_publish = bind(refuse_publish)
    aggregate = command(Registry.aggregate, commands.Aggregate)
    complete = bind(complete)
    complete_many = bind(complete_many)
    release = command(Registry.release, commands.Release)
    cancel = command(Registry.cancel, commands.Cancel)
    expire = bind(expire)
    report_validation = bind(report_validation)
    complete_validation = bind(complete_validation)
    resume = bind(resume)
    replay = bind(replay)
    replays = bind(replays)
    record = bind(record)
    status = bind(status)
    status_many = bind(status_many)
    list_jobs = bind(list_jobs)
    history = bind(history)
    history_page = bind(history_page)
    logs = bind(logs)
    events = bind(events)
    watch = bind(watch)
    wait = bind(wait)
    why = bind(why)
    announce = bind(announce)
    workers = bind(workers)
    queues = bind(queues)
    verify = bind(verify)
    prune = bind(prune)
    create_key = bind(create_key)
    revoke_key = bind(revoke_key)

    def __init__(self, store: Store, ids: Ids) -> None:
        self._commits = CommitQueue(store, ids)
        self._store = store

    @property
    def calls_at_once(self) -> int:
        return BATCH_ITEMS_MAX

    @property
    def counters(self) -> JobCounters:
        """The counters of this process: what happened to jobs by kind, and the commits."""
        return self._commits.counters

    def start_counting(self) -> None:
        """Count what happens to jobs by kind, from now on: 2 us a job."""
        self._commits.counting = True

    def take_unvalidated(self) -> list[str]:
        taken = list(self._commits.unvalidated)
        self._commits.unvalidated.clear()
        return taken

    def describe(self) -> str:
        return self._store.describe()

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        return await self._store.counts(queue)

    async def census(self, limit: int) -> Census:
        return await self._store.census(limit)

    async def locks(self, key: str) -> ResourceLock:
        return await self._store.locks(key)

    async def tail(self) -> str:
        return await self._store.tail()

    async def doctor(self) -> list[Finding]:
        return await self._store.doctor()

    async def list_keys(self) -> list[Key]:
        return await self._store.list_keys()

    async def now(self) -> datetime:
        return await self._store.now()

    def change_mark(self, *, ready: bool = False) -> int:
        return self._store.change_mark(ready=ready)

    async def changes(
        self,
        *,
        since: int | None = None,
        timeout: float,  # noqa: ASYNC109
        ready: bool = False,
    ) -> None:
        mark = self._store.change_mark(ready=ready) if since is None else since
        await self._store.wait(mark, timeout, ready=ready)

    async def seal_task_token(self, grant: Grant, holder: str = "") -> str:
        """Return the opaque proof of this grant for one holder, for clients of a server."""
        spec = grant.job.spec
        owner = grant.job.owner or ""
        sealed = SealedGrant(grant.job_id, grant.attempt, grant.fencing_token, spec.queue, spec.region, owner)
        return seal(await self._store.secret(), sealed, holder)

    async def unseal_task_token(self, task_token: str, holder: str = "") -> SealedGrant:
        """Return the grant of a task token; raise `NotFound` if it was not sealed here for this holder."""
        return unseal(await self._store.secret(), task_token, holder)

    async def seal_cursor(self, cursor: str, *, holder: str) -> str:
        """Return the cursor sealed, so that only this holder can use it."""
        nonce = self._commits.ids.secret()
        return core_cursor.seal(await self._store.secret(), cursor, holder=holder, nonce=nonce)

    async def unseal_cursor(self, text: str, *, holder: str) -> str:
        """Return the cursor that was sealed for this holder, or raise `Invalid`."""
        return core_cursor.unseal(await self._store.secret(), text, holder=holder)

    async def close(self) -> None:
        await self._commits.close()
        await self._store.close()
