"""The verbs, third part: facts from elsewhere, keeping the store, keys."""

from msgspec.structs import replace

from holdfast.core.access import Key, Principal, Scope, within
from holdfast.core.errors import Denied, Invalid
from holdfast.core.limits import BATCH_ITEMS_MAX, KEY_NAME_CHARACTERS_MAX, clip
from holdfast.ports import Pruned, Verification
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.context import Context
from holdfast.server.owning import actor
from holdfast.wire import asks
from holdfast.wire.answers import AllKeys, Examined, Expired, KeyMade, KeyRevoked, Recorded, Time
from holdfast.wire.mapping import EPOCH


class Keeping:
    """What concerns the store as a whole."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry

    async def record(self, ask: asks.Record) -> Recorded:
        principal = who.get()
        admission.demand(principal, Scope.SUBMIT, Scope.WORK, Scope.ADMIN)
        if len(ask.events) > BATCH_ITEMS_MAX:
            raise Invalid(f"At most {BATCH_ITEMS_MAX} events are recorded at once.")
        events = list(ask.events)
        named = list(dict.fromkeys(event.job_id for event in events if event.job_id))
        if principal.key_id is not None:
            for job_id, job in zip(named, await self._registry.get_many(named), strict=True):
                admission.find(principal, job, job_id)
            events = [replace(event, actor=principal.actor) for event in events]
        reach = None if principal.key_id is None else principal.reach
        return Recorded(await self._registry.record(events, reach=reach))

    async def expire(self, ask: asks.Expire) -> Expired:
        admission.demand(who.get(), Scope.WORK, Scope.ADMIN)
        limit = 100 if ask.limit is None else ask.limit
        expired = await self._registry.expire(limit=limit)
        return Expired(expired if who.get().everywhere else 0)  # they may be of any queue

    async def prune(self, ask: asks.Prune) -> Pruned:
        _keeper(Scope.ADMIN)
        return await self._registry.prune(
            older_than=ask.older_than, output_older_than=ask.output_older_than
        )

    async def verify(self, _: asks.Nothing) -> Verification:
        _keeper(Scope.ADMIN)
        verified = await self._registry.verify()
        await self._context.check_key()
        return verified

    async def examine(self, _: asks.Nothing) -> Examined:
        _keeper(Scope.ADMIN)
        examined = Examined(tuple(await self._registry.examine()))
        await self._context.check_key()
        return examined

    async def now(self, _: asks.Nothing) -> Time:
        return Time(await self._registry.now())

    async def create_key(self, ask: asks.CreateKey) -> KeyMade:
        principal = who.get()
        admission.demand(principal, Scope.KEYS)
        queues = ask.queues or principal.queues
        regions = ask.regions or principal.regions
        if not within(principal, _wanted(ask.name, ask.scopes, queues, regions)):
            raise Denied("A key cannot make one that may do more than itself.")
        _check_key_name(
            principal,
            ask.name,
            [key for key in await self._registry.keys() if key.name == ask.name],
        )
        key, text = await self._registry.create_key(
            name=ask.name,
            scopes=ask.scopes,
            queues=queues,
            regions=regions,
            life=ask.life,
            actor=actor(ask.actor),
            op_id=ask.op_id,
        )
        self._context.keyring.forget()
        return KeyMade(key, text)

    async def list_keys(self, _: asks.Nothing) -> AllKeys:
        _keeper(Scope.KEYS)
        return AllKeys(tuple(await self._registry.keys()))

    async def revoke_key(self, ask: asks.RevokeKey) -> KeyRevoked:
        _keeper(Scope.KEYS)
        key = await self._registry.revoke_key(ask.key_id, actor=actor(ask.actor))
        self._context.keyring.forget()
        return KeyRevoked(key)


def _keeper(scope: Scope) -> None:
    """The whole store is only for those who reach all of it."""
    admission.demand(who.get(), scope)
    if not who.get().everywhere:
        raise Denied("This key does not reach every queue and region.")


def _check_key_name(who: Principal, name: str, namesakes: list[Key]) -> None:
    """Raise `Denied` unless they may make a key of this name, which has the jobs and the task tokens of its
    namesakes. Names are one space for all queues: a key that does not reach them all learns and takes none
    of others."""
    below, named = all(within(who, key) for key in namesakes), clip(name, KEY_NAME_CHARACTERS_MAX)
    if not admission.owns_name(who, name) and not (namesakes and below):
        raise Denied(
            f"This key does not reach every queue, and {named} is neither the name of a key that it might"
            " make nor begins with a queue that it reaches.",
            advice="Begin the name with such a queue and a colon, and use no colon after it.",
        )
    if not below:
        raise Denied(f"{named} may do more than this key: make it another name.")


def _wanted(
    name: str, scopes: tuple[Scope, ...], queues: tuple[str, ...], regions: tuple[str, ...]
) -> Key:
    """The key somebody asks for, as far as it is decided by then."""
    return Key(
        key_id="",
        name=name,
        digest="",
        scopes=scopes,
        queues=queues,
        regions=regions,
        created_at=EPOCH,
        expires_at=EPOCH,
        created_by="",
    )
