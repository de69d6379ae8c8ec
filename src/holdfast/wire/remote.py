"""The remote registry: the same verbs, done by a server."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from operator import attrgetter

from holdfast.core.access import Key, Scope
from holdfast.core.errors import Exhausted, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.core.event import Event, check_external
from holdfast.core.job import Job, Resource
from holdfast.core.limits import check_actor
from holdfast.core.state import State
from holdfast.ports import (
    Clock,
    Filter,
    Finding,
    HistoryPage,
    Ids,
    Page,
    Pruned,
    Slice,
    Verification,
)
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.link import CHORE_MS, Link
from holdfast.wire.mapping import duration, misread, moment, optional
from holdfast.wire.remote_judging import RemoteJudging
from holdfast.wire.remote_owning import chunks, one_each, there
from holdfast.wire.values import EVENT, FILTER, FINDING, JOB, KEY, RESOURCE, VERIFICATION

IDS_AT_ONCE = 200
AWAY_SECONDS = 1.0
RECONNECTS_MAX = 30
WAIT_SECONDS = 20.0
AWAIT_MS = 30_000


class RemoteRegistry(RemoteJudging):
    """The verbs over the wire."""

    def __init__(self, link: Link, clock: Clock, ids: Ids) -> None:
        super().__init__(link, ids)
        self._clock = clock
        self._mark: str | None = None
        self._changes = 0

    def take_unverified(self) -> list[str]:
        """Nothing: the server looks for what has ended there."""
        return []

    def describe(self) -> str:
        return f"a holdfast server at {' or '.join(self._link.addresses)}"

    # Looking.

    async def get(self, job_id: str) -> Job:
        [job] = await self.get_many([job_id])
        if job is None:
            raise NotFound(f"There is no job {job_id}.", job_id=job_id)
        return job

    async def get_many(self, job_ids: Sequence[str]) -> list[Job | None]:
        jobs: list[Job | None] = []
        for start in range(0, len(job_ids), IDS_AT_ONCE):
            jobs += await self._get(list(job_ids[start : start + IDS_AT_ONCE]))
        return jobs

    async def _get(self, job_ids: list[str]) -> list[Job | None]:
        """The jobs, by halves where they are too much for one answer."""
        try:
            asked = pb.GetJobsRequest(job_ids=job_ids)
            answer = await self._link.call(attrgetter("get_jobs"), asked)
        except Exhausted:
            if len(job_ids) == 1:
                raise
            half = len(job_ids) // 2
            return await self._get(job_ids[:half]) + await self._get(job_ids[half:])
        return [_found(one) for one in one_each(job_ids, answer.answers)]

    async def list_jobs(
        self,
        which: Filter = Filter(),
        *,
        after: str | None = None,
        limit: int = 100,
        newest: bool = False,
    ) -> Page:
        asked = pb.ListJobsRequest(
            which=FILTER.encode(which), after=after, limit=limit, newest=newest
        )
        answer = await self._link.call(attrgetter("list_jobs"), asked)
        return Page(tuple(map(JOB.read, answer.jobs)), optional(answer, "next"))

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        answer = await self._link.call(attrgetter("count_jobs"), pb.CountJobsRequest(queue=queue))
        try:
            return {State(state): count for state, count in answer.counts.items()}
        except ValueError as error:
            raise misread(str(error)) from error

    async def resource(self, key: str) -> Resource:
        answer = await self._link.call(attrgetter("get_resource"), pb.GetResourceRequest(key=key))
        return RESOURCE.read(answer)

    async def why(self, job_id: str) -> str:
        answer = await self._link.call(attrgetter("why"), pb.WhyRequest(job_id=job_id))
        return str(answer.text)

    async def history(self, job_id: str) -> list[Event]:
        events, cursor = list[Event](), None
        while True:
            page = await self.history_page(job_id, after=cursor)
            events += page.events
            cursor = page.next
            if cursor is None:
                return events

    async def history_page(
        self, job_id: str, *, after: str | None = None, limit: int = 1000
    ) -> HistoryPage:
        asked = pb.HistoryRequest(job_id=job_id, after=after, limit=limit)
        answer = await self._link.call(attrgetter("history"), asked)
        return HistoryPage(tuple(map(EVENT.read, answer.events)), optional(answer, "next"))

    async def log(
        self, job_id: str, *, after: str | None = None, limit: int = 1000, output: bool = True
    ) -> Slice:
        asked = pb.ReadLogRequest(
            job_id=job_id, after=after, limit=limit, without_output=not output
        )
        return _slice(await self._link.call(attrgetter("read_log"), asked))

    async def feed(self, *, after: str | None = None, limit: int = 1000) -> Slice:
        asked = pb.ReadFeedRequest(after=after, limit=limit)
        return _slice(await self._link.call(attrgetter("read_feed"), asked))

    async def tail(self) -> str:
        answer = await self._link.call(attrgetter("tail"), pb.TailRequest())
        return str(answer.cursor)

    async def now(self) -> datetime:
        answer = await self._link.call(attrgetter("now"), pb.NowRequest())
        try:
            return moment(there(answer.now))
        except (OverflowError, ValueError) as error:
            raise misread(str(error)) from error

    # Following.

    async def watch(
        self, job_id: str | None = None, *, after: str | None = None
    ) -> AsyncGenerator[Event, None]:
        """Every event from the cursor on, each once. A stream that breaks is opened again where it was."""
        cursor, broken = after, 0
        while True:
            asked = pb.WatchRequest(job_id=job_id, after=cursor)
            try:
                async with aclosing(self._link.stream(attrgetter("watch"), asked)) as slices:
                    async for one in slices:
                        for event in one.events:
                            yield EVENT.read(event)
                        cursor, broken = one.cursor, 0
                return
            except Unavailable:
                broken += 1
                if broken > RECONNECTS_MAX:
                    raise
                await self._clock.sleep(AWAY_SECONDS)

    async def wait(self, job_id: str, *, timeout: float | None = None) -> Job:  # noqa: ASYNC109
        """The job once it has ended; `Unavailable` when that takes longer than `timeout`."""
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
            asked = pb.AwaitChangeRequest(
                mark=f"{job.version}.{job.published}",
                seconds=min(left, WAIT_SECONDS),
                job_id=job_id,
            )
            try:
                await self._link.call(attrgetter("await_change"), asked, timeout_ms=AWAIT_MS)
            except Unavailable:  # it is asked for again
                pass
            except Exhausted:  # too many wait there: look from time to time
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
        """A server that does not answer has nothing new; whoever asks it next will be told why."""
        seconds = min(timeout, WAIT_SECONDS)
        asked = pb.AwaitChangeRequest(seconds=seconds)
        if ready and self._claim is not None:
            asked.claim = self._claim
        elif since is not None and since != self._changes:
            return
        elif self._mark is not None:
            asked.mark = self._mark
        try:
            answer = await self._link.call(attrgetter("await_change"), asked, timeout_ms=AWAIT_MS)
        except HoldfastError:
            await self._clock.sleep(min(seconds, AWAY_SECONDS))
            return
        if asked.claim is None and answer.mark != self._mark:
            self._mark = answer.mark
            self._changes += 1

    # Keeping.

    async def record(self, events: Sequence[Event]) -> int:
        recorded = 0
        for some in chunks([EVENT.encode(check_external(event)) for event in events]):
            answer = await self._link.call(attrgetter("record"), pb.RecordRequest(events=some))
            recorded += answer.recorded
        return recorded

    async def expire(self, *, limit: int = 100) -> int:
        answer = await self._link.call(attrgetter("expire"), pb.ExpireRequest(limit=limit))
        return int(answer.expired)

    async def prune(
        self, *, older_than: timedelta, output_older_than: timedelta | None = None
    ) -> Pruned:
        asked = pb.PruneRequest(
            older_than=duration(older_than),
            output_older_than=None if output_older_than is None else duration(output_older_than),
        )
        answer = await self._link.call(attrgetter("prune"), asked, timeout_ms=CHORE_MS)
        return Pruned(answer.jobs, answer.events)

    async def verify(self) -> Verification:
        answer = await self._link.call(
            attrgetter("verify"), pb.VerifyRequest(), timeout_ms=CHORE_MS
        )
        return VERIFICATION.read(answer)

    async def examine(self) -> list[Finding]:
        answer = await self._link.call(
            attrgetter("examine"), pb.ExamineRequest(), timeout_ms=CHORE_MS
        )
        return list(map(FINDING.read, answer.findings))

    # Keys.

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
        if not queues:
            raise Invalid("Name at least one queue for the key; '*' is all of them.")
        asked = pb.CreateKeyRequest(
            name=name,
            scopes=list(map(str, scopes)),
            queues=list(queues),
            regions=list(regions),
            life=None if life is None else duration(life),
            actor=check_actor(actor),
            op_id=op_id or self._ids.new(),
        )
        answer = await self._link.call(attrgetter("create_key"), asked)
        return KEY.read(there(answer.key)), str(answer.text)

    async def keys(self) -> list[Key]:
        answer = await self._link.call(attrgetter("list_keys"), pb.ListKeysRequest())
        return list(map(KEY.read, answer.keys))

    async def revoke_key(self, key_id: str, *, actor: str) -> Key:
        asked = pb.RevokeKeyRequest(key_id=key_id, actor=check_actor(actor))
        answer = await self._link.call(attrgetter("revoke_key"), asked)
        return KEY.read(there(answer.key))

    async def close(self) -> None:
        await self._link.close()


def _found(one: pb.Answer) -> Job | None:
    match one.answer.value if one.answer else None:
        case pb.Job() as job:
            return JOB.read(job)
    return None


def _slice(one: pb.Slice) -> Slice:
    return Slice(tuple(map(EVENT.read, one.events)), one.cursor)
