"""The verbs of keys: create, list and revoke API keys."""

from holdfast.core.access import Key, Principal, Scope, may_grant
from holdfast.core.errors import Denied
from holdfast.core.limits import KEY_NAME_CHARACTERS_MAX, clip
from holdfast.server import admission
from holdfast.server.calls import current_principal
from holdfast.server.context import ServerContext
from holdfast.server.verbs.access import actor_of, require_scope_everywhere
from holdfast.wire import requests
from holdfast.wire.mapping import EPOCH
from holdfast.wire.responses import CreatedKey, KeyList, RevokedKey


class KeyVerbs:
    """What the holder of the scope `keys` may do."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._registry = context.registry

    async def create_key(self, request: requests.CreateKey) -> CreatedKey:
        principal = current_principal.get()
        admission.require_scope(principal, Scope.KEYS)
        queues = request.queues or principal.queues
        regions = request.regions or principal.regions
        if not may_grant(principal, _requested(request.name, request.scopes, queues, regions)):
            raise Denied("A key cannot make a key with more rights than its own.")
        _check_key_name(
            principal,
            request.name,
            [key for key in await self._registry.list_keys() if key.name == request.name],
        )
        key, text = await self._registry.create_key(
            name=request.name,
            scopes=request.scopes,
            queues=queues,
            regions=regions,
            life=request.life,
            actor=actor_of(request.actor),
            op_id=request.op_id,
        )
        self._context.keyring.invalidate()
        return CreatedKey(key, text)

    async def list_keys(self, _: requests.Empty) -> KeyList:
        require_scope_everywhere(Scope.KEYS)
        return KeyList(tuple(await self._registry.list_keys()))

    async def revoke_key(self, request: requests.RevokeKey) -> RevokedKey:
        require_scope_everywhere(Scope.KEYS)
        key = await self._registry.revoke_key(request.key_id, actor=actor_of(request.actor))
        self._context.keyring.invalidate()
        return RevokedKey(key)


def _check_key_name(principal: Principal, name: str, namesakes: list[Key]) -> None:
    """Raise `Denied` unless the principal may make a key of this name, which shares the jobs and the task
    tokens of its namesakes. All queues share one namespace of keys: a key that does not reach every queue
    neither learns nor takes the names of others."""
    below = all(may_grant(principal, key) for key in namesakes)
    named = clip(name, KEY_NAME_CHARACTERS_MAX)
    if not admission.may_use_name(principal, name) and not (namesakes and below):
        raise Denied(
            f"This key does not reach every queue, and {named} is neither the name of a key that it may"
            " make, nor begins with a queue that it reaches.",
            advice="Begin the name with such a queue and a colon, and use no other colon.",
        )
    if not below:
        raise Denied(f"A key {named} has more rights than this key: choose another name.")


def _requested(
    name: str, scopes: tuple[Scope, ...], queues: tuple[str, ...], regions: tuple[str, ...]
) -> Key:
    """Return the key that is asked for, to compare its rights."""
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
