"""Grants on the wire: who holds one proves it by its task token, which no other key can use."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from holdfast.core.access import Scope
from holdfast.core.errors import HoldfastError, NotFound
from holdfast.core.job import Job, Lease
from holdfast.core.limits import check_id
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.core.task_token import Claimed
from holdfast.ports import Clock, Grant
from holdfast.registry.local import LocalRegistry
from holdfast.server.admission import demand
from holdfast.server.calls import Unknown, check_key, gone, who
from holdfast.server.keyring import Keyring
from holdfast.server.tracing import by_owner
from holdfast.wire.mapping import EPOCH

UNDELIVERED = "whoever asked for it was gone before it came"

TURNS = 5
"""Of the loop, in which it hears that somebody has left."""


class Grants:
    """Makes grants into tokens and tokens into grants. What nobody was there to take is given back."""

    def __init__(self, registry: LocalRegistry, clock: Clock, keyring: Keyring) -> None:
        self._registry = registry
        self._clock = clock
        self._keyring = keyring
        self._returning: dict[asyncio.Task[None], None] = {}

    async def seal(self, grants: Sequence[Grant]) -> list[Grant]:
        """The grants, each with its proof."""
        holder = _holder()
        return [
            replace(grant, task_token=await self._registry.task_token(grant, holder))
            for grant in grants
        ]

    async def open(self, task_token: str) -> Grant:
        """The grant that a token proves; `NotFound` for a token that is not the caller's. The key is looked
        at again: a stream of messages may be hours old."""
        await check_key(self._keyring)
        principal = who.get()
        demand(principal, Scope.WORK)
        claimed = await self._registry.claimed_by(task_token, _holder())
        if not principal.may(Scope.WORK, claimed.queue, claimed.region):
            raise NotFound("The task token is unknown or expired.")
        grant = grant_of(claimed, task_token)
        if await self._registry.task_token(grant, _holder()) != task_token:
            raise NotFound("The task token is unknown or expired.")
        return by_owner(grant)

    async def deliver(self, claim: Coroutine[Any, Any, list[Grant]], *, named: bool) -> list[Grant]:
        """What a claim gets. When its caller leaves meanwhile, what it gets is given back at once, unless
        the claim is `named` (by an op_id): who names one asks again, and may have been answered since."""
        claiming = asyncio.ensure_future(claim)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            if not named:
                self._later(lambda: self._give_back_of(claiming))
            raise

    async def left(self) -> bool:
        """Whether nobody is there any more to take what was granted, as far as can be known now."""
        for _turn in range(TURNS):
            await self._clock.sleep(0)
        return gone.get()()

    async def hand_over(self, grants: Sequence[Grant], *, named: bool) -> list[Grant]:
        """The grants, each with its proof; given back if whoever asked is gone by now, or its key counts no
        more: then nobody can ask again under the name of the claim."""
        there = not grants
        try:
            sealed = await self.seal(grants)
            await check_key(self._keyring)
            there = there or not await self.left()
        except Unknown:
            named = False
            raise
        finally:
            if not there:
                self.give_back(grants, named=named)
        return sealed

    def give_back(self, grants: Sequence[Grant], *, named: bool) -> None:
        """Nobody has seen these: let others have them, at once and at no cost. Those of a named claim
        are left to whoever asks again under its name, or to their leases."""
        if grants and not named:
            self._later(lambda: self._give_back(grants))

    async def close(self) -> None:
        """Wait until everything is given back."""
        while self._returning:
            await asyncio.gather(*self._returning, return_exceptions=True)

    def _later(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(work())
        self._returning[task] = None
        task.add_done_callback(lambda done: self._returning.pop(done, None))

    async def _give_back_of(self, claiming: "asyncio.Future[list[Grant]]") -> None:
        with suppress(HoldfastError):
            await self._give_back(await claiming)

    async def _give_back(self, grants: Sequence[Grant]) -> None:
        for grant in grants:
            with suppress(HoldfastError):  # it comes free with its lease
                await self._registry.release(grant, reason=UNDELIVERED, undelivered=True)


def bound(op_id: str | None) -> str | None:
    """The op_id of a claim as it is kept: no other key can ask for the same grants under it."""
    if op_id is None or not _holder():
        return op_id
    mine = f"{_holder()}/{check_id(op_id, 'op_id')}"
    return blake2b(mine.encode(), digest_size=16).hexdigest()


def _holder() -> str:
    principal = who.get()
    return "" if principal.key_id is None else principal.name


def grant_of(claimed: Claimed, task_token: str | None = None) -> Grant:
    """The grant as far as a token tells: enough for everything that an owner does."""
    lease = Lease(claimed.owner, EPOCH, timedelta(), EPOCH, EPOCH)
    spec = Spec(queue=claimed.queue, region=claimed.region)
    job = Job(claimed.job_id, spec, State.ASSIGNED, EPOCH, EPOCH, EPOCH, lease=lease)
    return Grant(
        job=job,
        fencing_token=claimed.fencing_token,
        attempt=claimed.attempt,
        lease_seconds=0.0,
        task_token=task_token,
    )
