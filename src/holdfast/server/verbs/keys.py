"""The verbs of keys: create, list and revoke API keys."""

from holdfast.core.access import Key, Principal, Scope, within
from holdfast.core.errors import Denied
from holdfast.core.limits import KEY_NAME_CHARACTERS_MAX, clip
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.context import Context
from holdfast.server.verbs.access import actor, demand_everywhere
from holdfast.wire import asks
from holdfast.wire.answers import AllKeys, KeyMade, KeyRevoked
from holdfast.wire.mapping import EPOCH


class Keys:
    """What the holder of the scope `keys` may do."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry

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
        demand_everywhere(Scope.KEYS)
        return AllKeys(tuple(await self._registry.keys()))

    async def revoke_key(self, ask: asks.RevokeKey) -> KeyRevoked:
        demand_everywhere(Scope.KEYS)
        key = await self._registry.revoke_key(ask.key_id, actor=actor(ask.actor))
        self._context.keyring.forget()
        return KeyRevoked(key)


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
