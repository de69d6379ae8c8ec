"""Readiness: whether a server can do its work now, and if not, what is in the way and what to do."""

import asyncio
import logging

from msgspec import Struct

from holdfast.server.context import Context

LOOK_SECONDS = 2.0
FRESH_SECONDS = 1.0

log = logging.getLogger("holdfast.server")


class Obstacle(Struct, frozen=True):
    """One thing that is not ready. It is said to everybody: nothing in it is secret."""

    what: str
    why: str
    do: str


STOPPING = Obstacle(
    "server",
    "It is stopping.",
    "Send requests to another server, or wait until it is started again.",
)
STORE = Obstacle(
    "store",
    "The store does not answer, or cannot begin a write.",
    "See this server's log for the reason, and run `holdfast doctor` where the server runs.",
)
KEYS = Obstacle(
    "keys",
    "The keys cannot be read from the store.",
    "See this server's log for the reason, and run `holdfast keys list` where the server runs.",
)
NO_KEY = Obstacle(
    "keys",
    "No key in the store counts: every one is revoked or has expired.",
    "Make one where the server runs: `holdfast keys create NAME --may admin`.",
)


class Readiness:
    """Looks at what a server needs, once a second at most, however many ask."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._found: tuple[Obstacle, ...] = ()
        self._looked_at = -FRESH_SECONDS
        self._looking: asyncio.Task[None] | None = None

    async def obstacles(self) -> tuple[Obstacle, ...]:
        """Everything that is in the way now; nothing when it is ready."""
        if self._context.stopping.is_set():
            return (STOPPING,)
        if self._context.clock.monotonic() - self._looked_at >= FRESH_SECONDS:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look())
            await asyncio.shield(self._looking)
        return self._found

    async def _look(self) -> None:
        found = [one for one in (await self._store(), await self._keys()) if one is not None]
        self._found = tuple(found)
        self._looked_at = self._context.clock.monotonic()

    async def _store(self) -> Obstacle | None:
        """A read, and a commit that writes nothing: a file that was moved away can still be read."""
        registry = self._context.registry
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await registry.get_many(["readyz"])
                await registry.record([])
        except Exception as error:
            self._tell(STORE, error)
            return STORE
        return None

    async def _keys(self) -> Obstacle | None:
        registry = self._context.registry
        if not self._context.keyring.required:
            return None
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                keys, now = await registry.keys(), await registry.now()
        except Exception as error:
            self._tell(KEYS, error)
            return KEYS
        return None if any(key.active(now) for key in keys) else NO_KEY

    def _tell(self, obstacle: Obstacle, error: Exception) -> None:
        """Say why in the log, once while it lasts."""
        if obstacle not in self._found:
            log.warning("not ready: %s %s", obstacle.why, str(error) or "It took too long.")
