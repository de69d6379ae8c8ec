"""The local registry: the verbs, bound to one store. It holds no rule and no state of its own."""

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from holdfast.core import cursor as core_cursor
from holdfast.core.access import Key
from holdfast.core.job import Resource
from holdfast.core.state import State
from holdfast.core.task_token import Claimed, seal, unseal
from holdfast.ports import Census, Finding, Grant, Ids, Store
from holdfast.registry.cancel import cancel
from holdfast.registry.claim import acquire, claim
from holdfast.registry.complete import complete, complete_many
from holdfast.registry.counted import Counted
from holdfast.registry.enqueue import enqueue, enqueue_many
from holdfast.registry.expire import expire
from holdfast.registry.handoff import handoff
from holdfast.registry.heartbeat import aggregate, heartbeat
from holdfast.registry.judge import judge, look
from holdfast.registry.keys import create_key, revoke_key
from holdfast.registry.line import Line
from holdfast.registry.prune import prune
from holdfast.registry.publish import publish, refuse
from holdfast.registry.query import (
    feed,
    get,
    get_many,
    history,
    history_page,
    list_jobs,
    log,
    why,
)
from holdfast.registry.record import record
from holdfast.registry.release import release
from holdfast.registry.replay import replay
from holdfast.registry.resume import resume
from holdfast.registry.verify import verify
from holdfast.registry.watch import wait, watch

P = ParamSpec("P")
R = TypeVar("R")


def bind(verb: Callable[Concatenate[Line, P], R]) -> Callable[Concatenate["LocalRegistry", P], R]:
    """Return the method that calls this verb. Its parameters and defaults are those of the function, so
    that they are written once; it is made with the class and costs 0.1 us a call."""

    @wraps(verb)
    def method(self: "LocalRegistry", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return verb(self._line, *args, **kwargs)

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
    refuse = bind(refuse)
    aggregate = bind(aggregate)
    complete = bind(complete)
    complete_many = bind(complete_many)
    release = bind(release)
    cancel = bind(cancel)
    expire = bind(expire)
    look = bind(look)
    judge = bind(judge)
    resume = bind(resume)
    replay = bind(replay)
    record = bind(record)
    get = bind(get)
    get_many = bind(get_many)
    list_jobs = bind(list_jobs)
    history = bind(history)
    history_page = bind(history_page)
    log = bind(log)
    feed = bind(feed)
    watch = bind(watch)
    wait = bind(wait)
    why = bind(why)
    verify = bind(verify)
    prune = bind(prune)
    create_key = bind(create_key)
    revoke_key = bind(revoke_key)

    def __init__(self, store: Store, ids: Ids) -> None:
        self._line = Line(store, ids)
        self._store = store

    @property
    def counted(self) -> Counted:
        """The counters of this process: what happened to jobs by kind, and the commits."""
        return self._line.counted

    def count(self) -> None:
        """Count what happens to jobs by kind, from now on: 2 us a job."""
        self._line.counting = True

    def take_unverified(self) -> list[str]:
        taken = list(self._line.unverified)
        self._line.unverified.clear()
        return taken

    def describe(self) -> str:
        return self._store.describe()

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        return await self._store.counts(queue)

    async def census(self, limit: int) -> Census:
        return await self._store.census(limit)

    async def resource(self, key: str) -> Resource:
        return await self._store.resource(key)

    async def tail(self) -> str:
        return await self._store.tail()

    async def examine(self) -> list[Finding]:
        return await self._store.examine()

    async def keys(self) -> list[Key]:
        return await self._store.keys()

    async def now(self) -> datetime:
        return await self._store.now()

    def mark(self, *, ready: bool = False) -> int:
        return self._store.mark(ready=ready)

    async def changed(
        self,
        *,
        since: int | None = None,
        timeout: float,  # noqa: ASYNC109
        ready: bool = False,
    ) -> None:
        mark = self._store.mark(ready=ready) if since is None else since
        await self._store.wait(mark, timeout, ready=ready)

    async def task_token(self, grant: Grant, holder: str = "") -> str:
        """Return the opaque proof of this grant for one holder, for clients that speak over a wire."""
        spec = grant.job.spec
        owner = grant.job.owner or ""
        claimed = Claimed(
            grant.job_id, grant.attempt, grant.fencing_token, spec.queue, spec.region, owner
        )
        return seal(await self._store.secret(), claimed, holder)

    async def claimed_by(self, task_token: str, holder: str = "") -> Claimed:
        """Return the grant that a task token stands for; `NotFound` for one that was not made here for
        this holder."""
        return unseal(await self._store.secret(), task_token, holder)

    async def seal_cursor(self, cursor: str, *, holder: str) -> str:
        """Return the cursor sealed, so that only this holder can use it."""
        nonce = self._line.ids.secret()
        return core_cursor.seal(await self._store.secret(), cursor, holder=holder, nonce=nonce)

    async def unseal_cursor(self, text: str, *, holder: str) -> str:
        """Return the cursor that was sealed for this holder, or raise `Invalid`."""
        return core_cursor.unseal(await self._store.secret(), text, holder=holder)

    async def close(self) -> None:
        await self._line.close()
        await self._store.close()
