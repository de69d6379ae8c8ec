"""The ownership of jobs, kept up to date by the events of the registry."""

import asyncio
import logging
from types import TracebackType

from holdfast.core.catalogue import TRANSITION_TYPES
from holdfast.core.errors import Conflict, HoldfastError, Invalid
from holdfast.core.event import Event
from holdfast.core.state import LEASED
from holdfast.fencing.authority import JOBS_MAX, MAX_AGE_SECONDS, CachedAuthority
from holdfast.fencing.fence import Fence
from holdfast.ports import Clock, Registry
from holdfast.system import SystemClock

BEAT_SECONDS = 1.0
SILENCE_SECONDS = 3.0
PAGE = 1000

_log = logging.getLogger("holdfast.fencing")


class SubscribedAuthority:
    """Queries the registry once for each grant, and learns its end from events, usually within ms.

        async with SubscribedAuthority(registry) as authority:
            guard = Guard(authority)

    The events are read at least every `beat` seconds. If they could not be read for `silence` seconds,
    because the store or this process stood still, the registry is queried for every write until they
    can. A query counts for `max_age` seconds at most, whatever the events say, because events may be
    delayed unnoticed (on PostgreSQL, by a long transaction). For one event loop.
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
            raise Invalid(f"beat is more than 0 seconds and less than silence: not {beat}, {silence}.")
        self._registry = registry
        self._silence = silence
        self._beat = beat
        self._clock = clock or SystemClock()
        self._cached = CachedAuthority(registry, max_age=max_age, threshold=0, limit=limit, clock=self._clock)
        self._read_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "SubscribedAuthority":
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
            self._task = self._read_at = None

    @property
    def silent(self) -> bool:
        """Whether the events could not be read lately, so that every write is queried."""
        return self._read_at is None or self._clock.monotonic() - self._read_at > self._silence

    async def check(self, fence: Fence) -> None:
        if self.silent:
            await self._cached.registry_authority.check(fence)
        else:
            await self._cached.check(fence)

    async def _follow(self) -> None:
        while True:
            try:
                await self._read_events()
            except HoldfastError:  # the store is away, or was restored: begin again where it is now
                await self._clock.sleep(self._beat)
            except Exception:
                _log.exception(
                    "The events cannot be read; the registry is queried for every write until they can."
                )
                await self._clock.sleep(self._beat)

    async def _read_events(self) -> None:
        cursor = await self._registry.tail()
        self._cached.forget()  # events before the tail are not read
        while True:
            mark = self._registry.change_mark()
            began = self._clock.monotonic()
            page = await self._registry.events(after=cursor, limit=PAGE)
            for event in page.events:
                self._apply(event)
            cursor = page.cursor
            if len(page.events) < PAGE:
                self._read_at = began
            if not page.events:  # a page may be short and not the last: events can be large
                await self._registry.changes(since=mark, timeout=self._beat)

    def _apply(self, event: Event) -> None:
        job_id, token = event.job_id, event.fencing_token
        if job_id is not None and token is not None and event.event_type in TRANSITION_TYPES:
            self._cached.raise_epoch(job_id, token + (event.to_state not in LEASED))
