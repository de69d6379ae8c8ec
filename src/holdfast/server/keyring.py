"""The keyring: who a key says its bearer is. Keys are read from the store and remembered for seconds."""

import asyncio
from datetime import datetime, timedelta

from holdfast.core.access import ANYONE, Key, Principal, holds, key_id_of
from holdfast.core.errors import Unavailable
from holdfast.ports import Clock, Registry
from holdfast.wire.mapping import EPOCH

FRESH_SECONDS = 5.0
"""How long a revoked key may still be taken."""

AGAIN_SECONDS = 1.0
STALE_SECONDS = 60.0
"""How long keys are trusted while the store does not answer."""


class Keyring:
    """Knows principals by their keys. Without keys everybody is `ANYONE`: for development only."""

    def __init__(self, registry: Registry, clock: Clock, *, required: bool) -> None:
        self.required = required
        self._registry = registry
        self._clock = clock
        self._keys: dict[str, Key] = {}
        self._read_at = -STALE_SECONDS
        self._time = EPOCH
        self._outdated = True
        self._reading: asyncio.Task[None] | None = None

    async def principal(self, authorization: str | None) -> Principal | None:
        """Whose header this is; None when it is nobody's."""
        if not self.required:
            return ANYONE
        scheme, _, text = (authorization or "").partition(" ")
        key_id = key_id_of(text.strip()) if scheme.lower() == "bearer" else None
        if key_id is None:
            return None
        await self._read(AGAIN_SECONDS if key_id not in self._keys else FRESH_SECONDS)
        key = self._keys.get(key_id)
        if key is None or not holds(key, text.strip(), self._now()):
            return None
        return key.principal

    async def still(self, principal: Principal) -> bool:
        """Whether the key of somebody who is here already is still good."""
        if not self.required:
            return True
        await self._read(FRESH_SECONDS)
        key = self._keys.get(principal.key_id or "")
        return key is not None and key.active(self._now())

    def forget(self) -> None:
        """A key was made or revoked here: read them all before the next one is judged."""
        self._outdated = True
        self._reading = None  # what is being read may be from before

    async def _read(self, seconds: float) -> None:
        """Have the keys as they were so many seconds ago or later; read once for all who ask now."""
        if not self._outdated and self._clock.monotonic() - self._read_at <= seconds:
            return
        while True:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._refresh())
            try:
                await asyncio.shield(self._reading)
            except Unavailable:
                if self._clock.monotonic() - self._read_at > STALE_SECONDS:
                    raise
                return
            if not self._outdated:
                return

    async def _refresh(self) -> None:
        asked_at, mine = self._clock.monotonic(), asyncio.current_task()
        keys, now = await self._registry.keys(), await self._registry.now()
        if self._reading is mine:
            self._keys = {key.key_id: key for key in keys}
            self._read_at, self._time, self._outdated = asked_at, now, False

    def _now(self) -> datetime:
        """The store's time: the only one that decides."""
        return self._time + timedelta(seconds=self._clock.monotonic() - self._read_at)
