"""The keyring: which principal a key belongs to. Keys are read from the store and cached for seconds."""

import asyncio
from datetime import datetime, timedelta

from holdfast.core.access import ANONYMOUS, Key, Principal, key_accepts, key_id_of
from holdfast.core.errors import Unavailable
from holdfast.ports import Clock, Registry
from holdfast.wire.mapping import EPOCH

FRESH_SECONDS = 5.0
"""How long a revoked key may still be accepted."""

UNKNOWN_SECONDS = 1.0
"""How old the cached keys may be when a key is not among them."""
STALE_SECONDS = 60.0
"""How long cached keys are accepted while the store is unavailable."""


class Keyring:
    """Finds principals by their keys. Without keys every caller is `ANONYMOUS`: for development only."""

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
        """Return the principal of this header; None without a valid key."""
        if not self.required:
            return ANONYMOUS
        scheme, _, text = (authorization or "").partition(" ")
        key_id = key_id_of(text.strip()) if scheme.lower() == "bearer" else None
        if key_id is None:
            return None
        await self._read(UNKNOWN_SECONDS if key_id not in self._keys else FRESH_SECONDS)
        key = self._keys.get(key_id)
        if key is None or not key_accepts(key, text.strip(), self._now()):
            return None
        return key.principal

    async def is_valid(self, principal: Principal) -> bool:
        """Whether the key of an authenticated principal is still valid."""
        if not self.required:
            return True
        await self._read(FRESH_SECONDS)
        key = self._keys.get(principal.key_id or "")
        return key is not None and key.active(self._now())

    def invalidate(self) -> None:
        """Discard the cached keys: one was made or revoked here."""
        self._outdated = True
        self._reading = None  # the keys that are being read may be from before

    async def _read(self, seconds: float) -> None:
        """Read the keys, unless the cached ones are at most this old; concurrent callers share a read."""
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
        read_at, mine = self._clock.monotonic(), asyncio.current_task()
        keys, now = await self._registry.list_keys(), await self._registry.now()
        if self._reading is mine:
            self._keys = {key.key_id: key for key in keys}
            self._read_at, self._time, self._outdated = read_at, now, False

    def _now(self) -> datetime:
        """Return the store's time: it alone decides whether a key has expired."""
        return self._time + timedelta(seconds=self._clock.monotonic() - self._read_at)
