"""What the registry says about a token: asked every time, or remembered for a few seconds."""

import asyncio

from msgspec import Struct

from holdfast.core.errors import Fenced, Invalid
from holdfast.fencing.fence import Fence
from holdfast.ports import Clock, Registry
from holdfast.system import SystemClock

MAX_AGE_SECONDS = 5.0
THRESHOLD = 5
JOBS_MAX = 100_000
ASKED_AT_ONCE = 500


class Standing(Struct, frozen=True, gc=False):
    """Where a job stands: tokens below `epoch` are stale for ever, and `epoch` itself may act if
    somebody holds the job. While nobody does, it is the one after the last."""

    epoch: int
    held: bool
    lock: str | None


def standing(token: int, held: bool, lock: str | None) -> Standing:
    """Where a job stands whose last grant has this token."""
    return Standing(token if held else token + 1, held, lock)


def judge(fence: Fence, found: Standing) -> None:
    """Raise `Fenced` unless the fence is the one that may act."""
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


class Authoritative:
    """Asks the registry for every write. What is asked while an answer is under way shares the next
    question, which is always asked after the write has arrived. For one event loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: dict[str, asyncio.Future[Standing]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def check(self, fence: Fence) -> None:
        judge(fence, await self.ask(fence.job_id))

    async def ask(self, job_id: str) -> Standing:
        """Where the job stands, read after this was called; `Fenced` for a job that is not there."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._move(loop)
        answer = self._next.get(job_id)
        if answer is None:
            answer = self._next[job_id] = loop.create_future()
        if self._asking is None or self._asking.done():
            self._asking = loop.create_task(self._ask())
        return await asyncio.shield(answer)

    def _move(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            raise Invalid("A guard belongs to one event loop: give each loop its own.")
        self._loop, self._next, self._asking = loop, {}, None

    async def _ask(self) -> None:
        try:
            while self._next:
                await self._ask_once()
        finally:
            for answer in self._next.values():
                answer.cancel()
            self._next = {}

    async def _ask_once(self) -> None:
        ids = list(self._next)[:ASKED_AT_ONCE]
        answers = [self._next.pop(job_id) for job_id in ids]
        try:
            jobs = await self._registry.get_many(ids)
        except BaseException as error:
            for answer in answers:
                _refuse(answer, error)
            if not isinstance(error, Exception):
                raise
            return
        for job_id, job, answer in zip(ids, jobs, answers, strict=True):
            if job is None:
                _refuse(answer, Fenced(f"There is no job {job_id} here.", job_id=job_id))
            else:
                answer.set_result(standing(job.fencing_token, job.leased, job.spec.lock))


def _refuse(answer: "asyncio.Future[Standing]", error: BaseException) -> None:
    if isinstance(error, Exception):
        answer.set_exception(error)
        answer.exception()  # whoever asked may have left: then nobody has to hear it
    else:
        answer.cancel()


class Cached:
    """Remembers answers for `max_age` seconds.

    A token that is the remembered one passes at once. One more than `threshold` below is refused at
    once, also by an old answer: tokens only rise. About any other the registry is asked. So a token
    that was stale for longer than `max_age` is refused for certain; a younger one may pass, and then
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
        self.asking = Authoritative(registry)
        self._max_age = max_age
        self._threshold = threshold
        self._limit = limit
        self._clock = clock or SystemClock()
        self._known: dict[str, tuple[Standing, float]] = {}
        self._since = float("-inf")

    async def check(self, fence: Fence) -> None:
        found, since = self._known.get(fence.job_id, (None, 0.0))
        now = self._clock.monotonic()
        if found is not None and found.lock == fence.lock:
            if fence.token < found.epoch - self._threshold:
                raise outdated(fence, found.epoch)
            if fence.token == found.epoch and found.held and now - since <= self._max_age:
                return
        found = await self.asking.ask(fence.job_id)
        judge(fence, self.learn(fence.job_id, found, now))

    def learn(self, job_id: str, found: Standing, since: float) -> Standing:
        """Remember where a job stood at that time; epochs only rise. Answers what is known now."""
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
        """Take nothing for known that was asked before now."""
        self._known.clear()
        self._since = self._clock.monotonic()

    def hear(self, job_id: str, epoch: int) -> None:
        """Tokens of a job below `epoch` are stale from now on. Who may write is asked about: whoever
        tells this may tell it late."""
        known = self._known.get(job_id)
        if known is not None and epoch > known[0].epoch:
            self._known[job_id] = (Standing(epoch, False, known[0].lock), known[1])
