"""What the registry says about a token, told by its feed as it happens."""

import asyncio
import logging
from types import TracebackType

from holdfast.core.catalogue import TRANSITION_TYPES
from holdfast.core.errors import Conflict, HoldfastError, Invalid
from holdfast.core.event import Event
from holdfast.core.state import LEASED
from holdfast.fencing.authority import JOBS_MAX, MAX_AGE_SECONDS, Cached
from holdfast.fencing.fence import Fence
from holdfast.ports import Clock, Registry
from holdfast.system import SystemClock

BEAT_SECONDS = 1.0
SILENCE_SECONDS = 3.0
PAGE = 1000

_log = logging.getLogger("holdfast.fencing")


class Subscribed:
    """Asks once about each grant, and is told by the feed when it ends, usually within milliseconds.

        async with Subscribed(registry) as authority:
            guard = Guard(authority)

    The feed is read at least every `beat` seconds, also when nothing happens. If it could not be read
    for `silence` seconds, because the store or this process stood still, every write is asked about
    until it can. An answer counts for `max_age` seconds whatever the feed says, because it may be held
    up without anyone seeing it (on PostgreSQL, by a long transaction). For one event loop.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        max_age: float = MAX_AGE_SECONDS,
        silence: float = SILENCE_SECONDS,
        beat: float = BEAT_SECONDS,
        limit: int = JOBS_MAX,
        clock: Clock | None = None,
    ) -> None:
        if not 0 < beat < silence:
            raise Invalid(
                f"beat is more than 0 seconds and less than silence: not {beat}, {silence}."
            )
        self._registry = registry
        self._silence = silence
        self._beat = beat
        self._clock = clock or SystemClock()
        self._cached = Cached(
            registry, max_age=max_age, threshold=0, limit=limit, clock=self._clock
        )
        self._heard: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Subscribed":
        if self._task is not None:
            raise Conflict("This subscription is open already.")
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = self._heard = None

    @property
    def silent(self) -> bool:
        """Whether the feed could not be read lately, so that every write is asked about."""
        return self._heard is None or self._clock.monotonic() - self._heard > self._silence

    async def check(self, fence: Fence) -> None:
        if self.silent:
            await self._cached.asking.check(fence)
        else:
            await self._cached.check(fence)

    async def _follow(self) -> None:
        while True:
            try:
                await self._listen()
            except HoldfastError:  # the store is away, or was restored: begin again where it is now
                await self._clock.sleep(self._beat)
            except Exception:
                _log.exception("The feed cannot be read; every write is asked about until it can.")
                await self._clock.sleep(self._beat)

    async def _listen(self) -> None:
        cursor = await self._registry.tail()
        self._cached.forget()  # what happened before the tail is not told
        while True:
            mark = self._registry.mark()
            began = self._clock.monotonic()
            page = await self._registry.feed(after=cursor, limit=PAGE)
            for event in page.events:
                self._hear(event)
            cursor = page.cursor
            if len(page.events) < PAGE:
                self._heard = began
            if not page.events:  # a page may be short and not the last: events can be large
                await self._registry.changed(since=mark, timeout=self._beat)

    def _hear(self, event: Event) -> None:
        job_id, token = event.job_id, event.fencing_token
        if job_id is not None and token is not None and event.event_type in TRANSITION_TYPES:
            self._cached.hear(job_id, token + (event.to_state not in LEASED))
