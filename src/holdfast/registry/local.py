"""The local registry: the verbs, bound to one store. It holds no rule and no state of its own."""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta

from holdfast.core import cursor as core_cursor
from holdfast.core.access import Key, Scope
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Job, Progress, Resource
from holdfast.core.lifecycle import HandoffStep, Outcome
from holdfast.core.outputs import Found, Output, Promise
from holdfast.core.spec import Json
from holdfast.core.state import State
from holdfast.core.task_token import Claimed, seal, unseal
from holdfast.ports import (
    Census,
    Completion,
    Filter,
    Finding,
    Grant,
    HistoryPage,
    Ids,
    Page,
    Pruned,
    Request,
    Slice,
    Store,
    Verification,
)
from holdfast.registry import (
    cancel,
    claim,
    complete,
    enqueue,
    expire,
    handoff,
    heartbeat,
    judge,
    keys,
    prune,
    publish,
    query,
    record,
    release,
    replay,
    resume,
    verify,
    watch,
)
from holdfast.registry.counted import Counted
from holdfast.registry.line import Line
from holdfast.registry.reads import Reads
from holdfast.registry.requests import created_of


class LocalRegistry:
    """The verbs over a store in this process."""

    def __init__(self, store: Store, ids: Ids) -> None:
        self._line = Line(store, ids)
        self._store = store
        self._reads = Reads(store)

    @property
    def counted(self) -> Counted:
        """How often what happened, in this process: to jobs by their kind, and in the line."""
        return self._line.counted

    def count(self) -> None:
        """Count what happens to jobs by their kind, from now on: for whoever tells it, at 2 us a job."""
        self._line.counting = True

    def take_unverified(self) -> list[str]:
        taken = list(self._line.unverified)
        self._line.unverified.clear()
        return taken

    def describe(self) -> str:
        return self._store.describe()

    async def examine(self) -> list[Finding]:
        return await self._store.examine()

    async def enqueue(self, request: Request, *, actor: str, connection: object = None) -> Job:
        [job] = await enqueue.enqueue(self._line, [request], actor=actor, connection=connection)
        return job

    async def enqueue_many(
        self, requests: Sequence[Request], *, actor: str, connection: object = None
    ) -> list[Job]:
        return await enqueue.enqueue(self._line, requests, actor=actor, connection=connection)

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
        return await handoff.handoff(
            self._line, job_id, step, actor=actor, op_id=op_id, handle=handle, error=error
        )

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
        plain: bool = False,
        timed: bool = False,
    ) -> list[Grant]:
        """As the port says; `plain` and `timed` are those of the command."""
        return await claim.claim(
            self._line,
            queues,
            owner=owner,
            limit=limit,
            op_id=op_id,
            kinds=kinds,
            lease=lease,
            heartbeat_interval=heartbeat_interval,
            region=region,
            executor=executor,
            plain=plain,
            timed=timed,
        )

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
        timed: bool = False,
    ) -> Grant:
        return await claim.acquire(
            self._line,
            job_id,
            owner=owner,
            op_id=op_id,
            lease=lease,
            heartbeat_interval=heartbeat_interval,
            region=region,
            executor=executor,
            create=created_of(create, job_id, self._line.ids, owner=owner),
            timed=timed,
        )

    async def heartbeat(
        self,
        grant: Grant,
        *,
        lease: timedelta | None = None,
        progress: Progress | None = None,
        checkpoint: Json = None,
    ) -> Job:
        return await heartbeat.heartbeat(
            self._line, grant, lease=lease, progress=progress, checkpoint=checkpoint
        )

    async def aggregate(self, grant: Grant, *, op_id: str | None = None) -> Job:
        return await heartbeat.aggregate(self._line, grant, op_id=op_id)

    async def publish(self, grant: Grant, events: Sequence[Event]) -> Job:
        return await publish.publish(self._line, grant, events)

    async def refuse(self, grant: Grant, reason: str) -> None:
        """Note on the job that something its owner published was refused before it came to `publish`."""
        await publish.refuse(self._line, grant, reason)

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
        return await complete.complete(self._line, done)

    async def complete_many(self, completions: Sequence[Completion]) -> list[Job | HoldfastError]:
        return await complete.complete_many(self._line, completions)

    async def release(
        self,
        grant: Grant,
        *,
        op_id: str | None = None,
        reason: str | None = None,
        delay: timedelta | None = None,
        undelivered: bool = False,
    ) -> Job:
        return await release.release(
            self._line, grant, op_id=op_id, reason=reason, delay=delay, undelivered=undelivered
        )

    async def cancel(
        self,
        job_id: str,
        *,
        actor: str,
        op_id: str | None = None,
        reason: str | None = None,
        hard: bool = False,
    ) -> Job:
        return await cancel.cancel(
            self._line, job_id, actor=actor, op_id=op_id, reason=reason, hard=hard
        )

    async def look(
        self,
        job_id: str,
        *,
        actor: str,
        version: int | None = None,
        done: int = 0,
        total: int = 0,
        trouble: str | None = None,
    ) -> Job:
        return await judge.look(
            self._line,
            job_id,
            actor=actor,
            version=version,
            done=done,
            total=total,
            trouble=trouble,
        )

    async def judge(
        self,
        job_id: str,
        found: Found = Found(),
        *,
        actor: str,
        op_id: str | None = None,
        evidence: Sequence[Output] = (),
        version: int | None = None,
        override: State | None = None,
        reason: str | None = None,
    ) -> Job:
        return await judge.judge(
            self._line,
            job_id,
            found,
            actor=actor,
            op_id=op_id,
            evidence=evidence,
            version=version,
            override=override,
            reason=reason,
        )

    async def resume(
        self,
        job_id: str,
        outputs: Promise,
        *,
        actor: str,
        resume_id: str | None = None,
        again: bool = False,
    ) -> Job:
        return await resume.resume(
            self._line, job_id, outputs, actor=actor, resume_id=resume_id, again=again
        )

    async def expire(self, *, limit: int = 100) -> int:
        return await expire.expire(self._line, limit=limit)

    async def replay(self, job_id: str, *, actor: str, replay_id: str | None = None) -> Job:
        return await replay.replay(self._line, job_id, actor=actor, replay_id=replay_id)

    async def record(self, events: Sequence[Event], *, reach: str | None = None) -> int:
        return await record.record(self._line, events, reach=reach)

    async def get(self, job_id: str) -> Job:
        return await self._line.get(job_id)

    async def get_many(self, job_ids: Sequence[str]) -> list[Job | None]:
        return await self._reads.get(job_ids)

    async def list_jobs(
        self,
        which: Filter = Filter(),
        *,
        after: str | None = None,
        limit: int = 100,
        newest: bool = False,
    ) -> Page:
        return await query.list_jobs(self._line, which, after=after, limit=limit, newest=newest)

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        return await self._store.counts(queue)

    async def census(self, limit: int) -> Census:
        return await self._store.census(limit)

    async def resource(self, key: str) -> Resource:
        return await self._store.resource(key)

    async def history(self, job_id: str) -> list[Event]:
        return await query.history(self._line, job_id)

    async def history_page(
        self, job_id: str, *, after: str | None = None, limit: int = 1000
    ) -> HistoryPage:
        return await query.history_page(self._line, job_id, after=after, limit=limit)

    async def log(
        self, job_id: str, *, after: str | None = None, limit: int = 1000, output: bool = True
    ) -> Slice:
        return await query.log(self._line, job_id, after=after, limit=limit, output=output)

    async def feed(self, *, after: str | None = None, limit: int = 1000) -> Slice:
        return await query.feed(self._line, after=after, limit=limit)

    async def tail(self) -> str:
        return await self._store.tail()

    def watch(
        self, job_id: str | None = None, *, after: str | None = None
    ) -> AsyncGenerator[Event, None]:
        return watch.watch(self._line, job_id, after=after)

    async def wait(self, job_id: str, *, timeout: float | None = None) -> Job:  # noqa: ASYNC109
        return await watch.wait(self._line, job_id, seconds=timeout)

    async def why(self, job_id: str, *, beside: bool = True) -> str:
        """As the port says; without `beside`, not how many others wait."""
        return await query.why(self._line, job_id, beside=beside)

    async def verify(self) -> Verification:
        return await verify.verify(self._line)

    async def prune(
        self, *, older_than: timedelta, output_older_than: timedelta | None = None
    ) -> Pruned:
        output = older_than if output_older_than is None else output_older_than
        return await prune.prune(self._line, older_than=older_than, output_older_than=output)

    async def task_token(self, grant: Grant, holder: str = "") -> str:
        """The opaque proof of this grant for one holder, for clients that speak over a wire."""
        spec = grant.job.spec
        owner = grant.job.owner or ""
        claimed = Claimed(
            grant.job_id, grant.attempt, grant.fencing_token, spec.queue, spec.region, owner
        )
        return seal(await self._store.secret(), claimed, holder)

    async def claimed_by(self, task_token: str, holder: str = "") -> Claimed:
        """The grant a task token stands for; `NotFound` for one we never made for this holder."""
        return unseal(await self._store.secret(), task_token, holder)

    async def seal_cursor(self, cursor: str, *, holder: str) -> str:
        """The cursor as nobody else can read it, for one holder."""
        nonce = self._line.ids.secret()
        return core_cursor.seal(await self._store.secret(), cursor, holder=holder, nonce=nonce)

    async def unseal_cursor(self, text: str, *, holder: str) -> str:
        """The cursor that was sealed for this holder, or `Invalid`."""
        return core_cursor.unseal(await self._store.secret(), text, holder=holder)

    async def create_key(
        self,
        *,
        name: str,
        scopes: Sequence[Scope],
        queues: Sequence[str] = ("*",),
        regions: Sequence[str] = (),
        life: timedelta | None = None,
        actor: str,
        op_id: str | None = None,
    ) -> tuple[Key, str]:
        return await keys.create_key(
            self._line,
            name=name,
            scopes=scopes,
            queues=queues,
            regions=regions,
            life=life,
            actor=actor,
            op_id=op_id,
        )

    async def keys(self) -> list[Key]:
        return await self._store.keys()

    async def revoke_key(self, key_id: str, *, actor: str) -> Key:
        return await keys.revoke_key(self._line, key_id, actor=actor)

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

    async def close(self) -> None:
        await self._line.close()
        await self._store.close()
