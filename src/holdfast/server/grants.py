"""Grants on the wire: the owner proves a grant by its task token, which no other key can use."""

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
from holdfast.core.task_token import SealedGrant
from holdfast.ports import Clock, Grant
from holdfast.registry.local import LocalRegistry
from holdfast.server.admission import require_scope
from holdfast.server.call_records import record_owner
from holdfast.server.calls import Unauthenticated, check_key, client_gone, current_principal
from holdfast.server.keyring import Keyring
from holdfast.wire.mapping import EPOCH

UNDELIVERED = "the client disconnected before the grant was sent"

LOOP_TURNS = 5
"""Turns of the event loop within which the server notices that a client has disconnected."""


class Grants:
    """Makes task tokens of grants and grants of task tokens. A grant that was not delivered is released."""

    def __init__(self, registry: LocalRegistry, clock: Clock, keyring: Keyring) -> None:
        self._registry = registry
        self._clock = clock
        self._keyring = keyring
        self._returning: dict[asyncio.Task[None], None] = {}

    async def seal(self, grants: Sequence[Grant]) -> list[Grant]:
        """Return the grants, each with its task token."""
        holder = _holder()
        return [
            replace(grant, task_token=await self._registry.seal_task_token(grant, holder)) for grant in grants
        ]

    async def open(self, task_token: str) -> Grant:
        """Return the grant that a token proves; `NotFound` for a token that is not the caller's. The key is
        checked again: a stream of messages may be hours old."""
        await check_key(self._keyring)
        principal = current_principal.get()
        require_scope(principal, Scope.WORK)
        claimed = await self._registry.unseal_task_token(task_token, _holder())
        if not principal.may(Scope.WORK, claimed.queue, claimed.region):
            raise NotFound("The task token is unknown or expired.")
        grant = grant_of(claimed, task_token)
        if await self._registry.seal_task_token(grant, _holder()) != task_token:
            raise NotFound("The task token is unknown or expired.")
        return record_owner(grant)

    async def deliver(self, claim: Coroutine[Any, Any, list[Grant]], *, named: bool) -> list[Grant]:
        """Return what a claim gets. When its client disconnects meanwhile, the grants are released at once,
        unless the claim is `named` (by an op_id): its client repeats it, and may have done so already."""
        claiming = asyncio.ensure_future(claim)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            if not named:
                self._later(lambda: self._give_back_of(claiming))
            raise

    async def client_left(self) -> bool:
        """Whether the client has disconnected, as far as can be known now."""
        for _turn in range(LOOP_TURNS):
            await self._clock.sleep(0)
        return client_gone.get()()

    async def hand_over(self, grants: Sequence[Grant], *, named: bool) -> list[Grant]:
        """Return the grants, each with its task token. They are released if the client has disconnected by
        now, or its key is no longer valid: then the claim cannot be repeated under its op_id."""
        there = not grants
        try:
            sealed = await self.seal(grants)
            await check_key(self._keyring)
            there = there or not await self.client_left()
        except Unauthenticated:
            named = False
            raise
        finally:
            if not there:
                self.release_undelivered(grants, named=named)
        return sealed

    def release_undelivered(self, grants: Sequence[Grant], *, named: bool) -> None:
        """Release grants that no client has received, so that they cost no attempt. Those of a named claim
        are kept for its repeat, or until their leases end."""
        if grants and not named:
            self._later(lambda: self._give_back(grants))

    async def close(self) -> None:
        """Wait until all undelivered grants are released."""
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
            with suppress(HoldfastError):  # the job is claimable again when its lease ends
                await self._registry.release(grant, reason=UNDELIVERED, undelivered=True)


def bound_op_id(op_id: str | None) -> str | None:
    """Return the op_id of a claim as it is stored: no other key can repeat the claim with it."""
    if op_id is None or not _holder():
        return op_id
    mine = f"{_holder()}/{check_id(op_id, 'op_id')}"
    return blake2b(mine.encode(), digest_size=16).hexdigest()


def _holder() -> str:
    principal = current_principal.get()
    return "" if principal.key_id is None else principal.name


def grant_of(claimed: SealedGrant, task_token: str | None = None) -> Grant:
    """Return the grant as far as a token contains it: enough for every verb of an owner."""
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
