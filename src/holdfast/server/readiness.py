"""Readiness: whether a server can do its work now, and if not, why, and what to do."""

import asyncio
import logging

from msgspec import Struct

from holdfast.server.context import ServerContext

CHECK_SECONDS = 2.0
FRESH_SECONDS = 1.0

log = logging.getLogger("holdfast.server")


class Obstacle(Struct, frozen=True):
    """One reason why the server is not ready. It is public: nothing in it is secret."""

    what: str
    why: str
    do: str


STOPPING = Obstacle(
    "server",
    "It is shutting down.",
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
NO_VALID_KEY = Obstacle(
    "keys",
    "No key in the store is valid: every one is revoked or has expired.",
    "Make one where the server runs: `holdfast keys create NAME --may admin`.",
)


class Readiness:
    """Checks what a server needs, at most once a second, however often it is called."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._found: tuple[Obstacle, ...] = ()
        self._checked_at = -FRESH_SECONDS
        self._checking: asyncio.Task[None] | None = None

    async def obstacles(self) -> tuple[Obstacle, ...]:
        """Return every obstacle there is now; none when the server is ready."""
        if self._context.stopping.is_set():
            return (STOPPING,)
        if self._context.clock.monotonic() - self._checked_at >= FRESH_SECONDS:
            if self._checking is None or self._checking.done():
                self._checking = asyncio.create_task(self._check())
            await asyncio.shield(self._checking)
        return self._found

    async def _check(self) -> None:
        found = [one for one in (await self._store(), await self._keys()) if one is not None]
        self._found = tuple(found)
        self._checked_at = self._context.clock.monotonic()

    async def _store(self) -> Obstacle | None:
        """Read, and commit without a write: a file that was moved away can still be read."""
        registry = self._context.registry
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await registry.status_many(["readyz"])
                await registry.record([])
        except Exception as error:
            self._log(STORE, error)
            return STORE
        return None

    async def _keys(self) -> Obstacle | None:
        registry = self._context.registry
        if not self._context.keyring.required:
            return None
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                keys, now = await registry.list_keys(), await registry.now()
        except Exception as error:
            self._log(KEYS, error)
            return KEYS
        return None if any(key.active(now) for key in keys) else NO_VALID_KEY

    def _log(self, obstacle: Obstacle, error: Exception) -> None:
        """Log the reason, once while it lasts."""
        if obstacle not in self._found:
            log.warning("not ready: %s %s", obstacle.why, str(error) or "It took too long.")
