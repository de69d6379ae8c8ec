"""Claims that wait for jobs, and the checks that every claim passes.

Waiters that could get the same jobs stand in one queue. When a job may have become ready, the first of each
queue claims; one that gets something wakes the next two. So a thousand waiters cost as much as one.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b

from holdfast.core.access import Scope
from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.limits import check_id
from holdfast.ports import Clock, Grant, Registry
from holdfast.server import admission
from holdfast.server.calls import current_asgi_scope, current_principal
from holdfast.server.capacity import WaitLimit
from holdfast.server.limits import KINDS_PER_CLAIM_MAX, QUEUES_PER_CLAIM_MAX, WAITING_MAX
from holdfast.wire.requests import Claim

POLL_SECONDS = 1.0
"""How often a waiter claims without a notification: jobs also become ready because time passes."""

PAUSE_SECONDS = 0.002
STORE_DOWN_SECONDS = 1.0

ClaimAttempt = Callable[[], Awaitable[list[Grant]]]


class ClaimWaiters:
    """The waiting claims, by claim key: two claims with the same key could get the same jobs."""

    def __init__(self, registry: Registry, clock: Clock, stopping: asyncio.Event, waits: WaitLimit) -> None:
        self._registry = registry
        self._clock = clock
        self._stopping = stopping
        self._waits = waits
        self._queues: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._tried: dict[Hashable, tuple[int, int]] = {}
        """By claim key, as of the last attempt: the round of wake-ups, and the change mark."""
        self._round = 1
        self._waiting = 0
        self._waking: asyncio.Task[None] | None = None

    async def claim(self, key: Hashable, attempt: ClaimAttempt, seconds: float) -> list[Grant]:
        """Return what `attempt` gets; while that is nothing, repeat it when jobs may be ready."""
        until = self._clock.monotonic() + seconds
        self._record_attempt(key)
        grants = await self._attempt(key, attempt)
        if not grants and seconds > 0:
            async with self._waits.slot():
                grants = await self._attempt_until(until, key, attempt)
        if grants:
            self._wake(key, 2)  # where one was, there may be more
        return grants

    async def _attempt_until(self, until: float, key: Hashable, attempt: ClaimAttempt) -> list[Grant]:
        while (left := until - self._clock.monotonic()) > 0 and await self._turn(key, left):
            if grants := await self._attempt(key, attempt):
                return grants
        return []

    async def _attempt(self, key: Hashable, attempt: ClaimAttempt) -> list[Grant]:
        """Return what `attempt` gets. When it fails, the next waiter gets the turn."""
        try:
            return await attempt()
        except BaseException:
            self._wake(key, 1)
            raise

    async def wait_for_turn(self, key: Hashable, seconds: float) -> bool:
        """Wait until a job may be ready for this key; False after `seconds`, and when the server stops."""
        async with self._waits.slot():
            return await self._turn(key, seconds)

    async def _turn(self, key: Hashable, seconds: float) -> bool:
        if self._stopping.is_set():
            return False
        if self._tried.get(key, (0, 0))[0] < self._round:  # it missed a wake-up
            self._record_attempt(key)
            return True
        async with self._queued(key) as waiter:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await waiter
                    return not self._stopping.is_set()
        return False

    def waiting(self) -> int:
        """Return how many claims wait now."""
        return self._waiting

    def stop(self) -> None:
        """Wake all waiters: they return without a job."""
        for key in list(self._queues):
            self._wake(key, WAITING_MAX)

    def _record_attempt(self, key: Hashable) -> None:
        """Record that a claim of this key is about to see all that was committed by now."""
        if len(self._tried) >= WAITING_MAX:
            self._tried.clear()
        self._tried[key] = self._round, self._registry.change_mark(ready=True)

    @asynccontextmanager
    async def _queued(self, key: Hashable) -> AsyncIterator[asyncio.Future[None]]:
        waiter = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(key, deque())
        queue.append(waiter)
        self._waiting += 1
        if self._waking is None or self._waking.done():
            _, mark = self._tried.get(key, (0, 0))  # commits since then are still unseen
            self._waking = asyncio.create_task(self._wake_on_changes(mark))
        try:
            yield waiter
        finally:
            self._waiting -= 1
            if not waiter.done():
                queue.remove(waiter)
            if not queue and self._queues.get(key) is queue:
                del self._queues[key]

    def _wake(self, key: Hashable, count: int) -> None:
        queue = self._queues.get(key)
        while queue and count:
            waiter = queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    async def _wake_on_changes(self, mark: int) -> None:
        """Wake the first of every queue when a job may be ready for it, while any claim waits."""
        while self._waiting and not self._stopping.is_set():
            try:
                await self._registry.changes(since=mark, timeout=POLL_SECONDS, ready=True)
            except HoldfastError:  # the next claim raises it to its caller
                await self._clock.sleep(STORE_DOWN_SECONDS)
            mark = self._registry.change_mark(ready=True)
            self._round += 1
            for key in list(self._queues):
                self._record_attempt(key)
                self._wake(key, 1)
            await self._clock.sleep(PAUSE_SECONDS)


_PRODUCT = re.compile(rb"[A-Za-z0-9._-]{1,40}")
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{1,45}\Z")


def owner_of(given: str) -> str:
    """Return the owner of what the caller claims. With keys: the given name, an @ and the name of the key,
    or the name of the key alone; no name has an @ in it, so that no caller can pass for another. Without
    keys: the given name, or the client's program and address, such as connect-go:127.0.0.1:40312."""
    principal = current_principal.get()
    if principal.key_id is not None:
        mine = principal.name
        return mine if given in ("", mine) else f"{check_id(given, 'owner')}@{mine}"
    if given:
        return given
    scope = current_asgi_scope.get()
    product = _PRODUCT.match(dict(scope.get("headers", ())).get(b"user-agent", b""))
    name = product[0].decode() if product else principal.name
    host, port = scope.get("client") or ("", 0)
    return f"{name}:{host}:{port}" if _ADDRESS.match(host) else name


def check_claim(request: Claim) -> None:
    """Raise `Denied` unless the caller may claim from all these queues; `Invalid` for a malformed claim."""
    if not request.queues:
        raise Invalid("Name at least one queue to claim from.")
    if len(request.queues) > QUEUES_PER_CLAIM_MAX:
        raise Invalid(f"At most {QUEUES_PER_CLAIM_MAX} queues are named in one claim.")
    if len(request.kinds) > KINDS_PER_CLAIM_MAX:
        raise Invalid(f"At most {KINDS_PER_CLAIM_MAX} kinds are named in one claim.")
    for kind in request.kinds:
        check_id(kind, "kind")
    if request.region is not None:
        check_id(request.region, "region")
    if request.executor is not None:
        check_id(request.executor, "executor")
    for queue in request.queues:
        admission.check_queue(
            current_principal.get(), Scope.WORK, check_id(queue, "queue"), claim_region(request)
        )


def claim_region(request: Claim) -> str | None:
    """Return the region to claim from: the named one, else the only one that the caller's key reaches."""
    return admission.default_region(current_principal.get(), request.region)


def claim_key(request: Claim) -> bytes:
    """Return the claim key: claims with the same key could get the same jobs."""
    return claim_key_of(request.queues, request.kinds, claim_region(request), request.executor)


def claim_key_of(
    queues: Sequence[str], kinds: Sequence[str], region: str | None, executor: str | None
) -> bytes:
    """Return the claim key of these parts: 16 bytes, however long they are."""
    parts = repr((tuple(queues), tuple(kinds), region, executor))
    return blake2b(parts.encode(), digest_size=16).digest()
