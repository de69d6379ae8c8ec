"""The ownership of jobs according to the registry: queried every time, or cached for seconds."""

import asyncio

from msgspec import Struct

from holdfast.core.errors import Fenced, Invalid
from holdfast.fencing.fence import Fence
from holdfast.ports import Clock, Registry
from holdfast.system import SystemClock

MAX_AGE_SECONDS = 5.0
THRESHOLD = 5
JOBS_MAX = 100_000
QUERY_JOBS_MAX = 500


class Ownership(Struct, frozen=True, gc=False):
    """Which tokens of a job are valid: those below `epoch` are stale forever, and `epoch` itself may write
    if the job is held. If it is not, `epoch` is the token after the last."""

    epoch: int
    held: bool
    lock: str | None


def ownership_of(token: int, held: bool, lock: str | None) -> Ownership:
    return Ownership(token if held else token + 1, held, lock)


def check_ownership(fence: Fence, found: Ownership) -> None:
    """Raise `Fenced` unless the fence is the one that may write."""
    if fence.lock != found.lock:
        holds = f"lock {found.lock}" if found.lock else "no lock"
        raise Fenced(
            f"Job {fence.job_id} has {holds}, not what its fence says ({fence.source}).",
            job_id=fence.job_id,
        )
    if fence.token < found.epoch:
        raise outdated(fence, found.epoch)
    if fence.token > found.epoch or not found.held:
        raise Fenced(
            f"Token {fence.token} was not granted: it holds nothing of job {fence.job_id}.",
            job_id=fence.job_id,
        )


def outdated(fence: Fence, epoch: int) -> Fenced:
    return Fenced(
        f"Token {fence.token} is stale: it no longer holds job {fence.job_id}, which takes tokens from"
        f" {epoch} on.",
        job_id=fence.job_id,
    )


class RegistryAuthority:
    """Queries the registry for every write. Checks that arrive during a query share the next one, so that
    every query begins after the writes it is for have arrived. For one event loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: dict[str, asyncio.Future[Ownership]] = {}
        self._querying: asyncio.Task[None] | None = None

    async def check(self, fence: Fence) -> None:
        check_ownership(fence, await self.ownership(fence.job_id))

    async def ownership(self, job_id: str) -> Ownership:
        """Return the ownership of the job, read after this call; raise `Fenced` for an unknown job."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._move(loop)
        waiter = self._next.get(job_id)
        if waiter is None:
            waiter = self._next[job_id] = loop.create_future()
        if self._querying is None or self._querying.done():
            self._querying = loop.create_task(self._query())
        return await asyncio.shield(waiter)

    def _move(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            raise Invalid("A guard belongs to one event loop: give each loop its own.")
        self._loop, self._next, self._querying = loop, {}, None

    async def _query(self) -> None:
        try:
            while self._next:
                await self._query_once()
        finally:
            for waiter in self._next.values():
                waiter.cancel()
            self._next = {}

    async def _query_once(self) -> None:
        ids = list(self._next)[:QUERY_JOBS_MAX]
        waiters = [self._next.pop(job_id) for job_id in ids]
        try:
            jobs = await self._registry.status_many(ids)
        except BaseException as error:
            for waiter in waiters:
                _refuse(waiter, error)
            if not isinstance(error, Exception):
                raise
            return
        for job_id, job, waiter in zip(ids, jobs, waiters, strict=True):
            if job is None:
                _refuse(waiter, Fenced(f"There is no job {job_id} here.", job_id=job_id))
            else:
                waiter.set_result(ownership_of(job.fencing_token, job.leased, job.spec.lock))


def _refuse(waiter: "asyncio.Future[Ownership]", error: BaseException) -> None:
    if isinstance(error, Exception):
        waiter.set_exception(error)
        waiter.exception()  # mark it as retrieved: the caller may be gone
    else:
        waiter.cancel()


class CachedAuthority:
    """Caches the ownership of jobs for `max_age` seconds.

    The cached token passes at once. A token more than `threshold` below it is refused at once, even if the
    cache entry is old: tokens only rise. For any other token the registry is queried. So a token that was
    stale for longer than `max_age` is certainly refused; one that became stale later may pass, and then
    the marks decide.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        max_age: float = MAX_AGE_SECONDS,
        threshold: int = THRESHOLD,
        limit: int = JOBS_MAX,
        clock: Clock | None = None,
    ) -> None:
        if not max_age > 0 or threshold < 0 or limit < 1:
            raise Invalid(
                "max_age is more than 0 seconds, threshold at least 0, limit at least 1:"
                f" not {max_age}, {threshold}, {limit}."
            )
        self.registry_authority = RegistryAuthority(registry)
        self._max_age = max_age
        self._threshold = threshold
        self._limit = limit
        self._clock = clock or SystemClock()
        self._known: dict[str, tuple[Ownership, float]] = {}
        self._since = float("-inf")

    async def check(self, fence: Fence) -> None:
        found, since = self._known.get(fence.job_id, (None, 0.0))
        now = self._clock.monotonic()
        if found is not None and found.lock == fence.lock:
            if fence.token < found.epoch - self._threshold:
                raise outdated(fence, found.epoch)
            if fence.token == found.epoch and found.held and now - since <= self._max_age:
                return
        found = await self.registry_authority.ownership(fence.job_id)
        check_ownership(fence, self.remember(fence.job_id, found, now))

    def remember(self, job_id: str, found: Ownership, since: float) -> Ownership:
        """Cache the ownership as of `since`; epochs only rise. Return what is known now."""
        if since < self._since:
            return found
        known = self._known.pop(job_id, None)
        if known is not None and known[0].epoch > found.epoch:
            found, since = known
        self._known[job_id] = (found, since)
        if len(self._known) > self._limit:
            del self._known[next(iter(self._known))]
        return found

    def forget(self) -> None:
        """Drop everything that was read before now."""
        self._known.clear()
        self._since = self._clock.monotonic()

    def raise_epoch(self, job_id: str, epoch: int) -> None:
        """Record that tokens of a job below `epoch` are stale. The next check queries the registry for the
        owner, because the caller may be late."""
        known = self._known.get(job_id)
        if known is not None and epoch > known[0].epoch:
            self._known[job_id] = (Ownership(epoch, False, known[0].lock), known[1])
