"""keys: make and revoke API keys. Both are told in the log, without anything that would open a door."""

import hmac
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from holdfast.core.access import Key, Scope, key_id_of, new_key
from holdfast.core.catalogue import KEY_CREATED, KEY_REVOKED, EventClass
from holdfast.core.errors import Conflict, Exhausted, NotFound, Unavailable
from holdfast.core.event import Event
from holdfast.core.limits import KEY_LIFE_DEFAULT, KEYS_ACTIVE_MAX, KEYS_MAX, check_actor, clip
from holdfast.registry.line import Line

KEY_TYPES = {"created": KEY_CREATED, "revoked": KEY_REVOKED}


async def create_key(
    line: Line,
    *,
    name: str,
    scopes: Sequence[Scope],
    queues: Sequence[str] = ("*",),
    regions: Sequence[str] = (),
    life: timedelta | None = None,
    actor: str,
    op_id: str | None = None,
) -> tuple[Key, str]:
    """Make a key; its text is told here and never again, and only when the log has it too. A repeat of
    the op_id, by the same actor, makes no second one: it is a `Conflict` that names the first.

    The limits are looked at before: of several made at the very same moment, one may be too many.
    """
    now = await line.store.now()
    key, text = new_key(
        await _chance(line, f"{check_actor(actor)}/{line.op(op_id)}"),
        line.ids.secret(),
        name=name,
        scopes=scopes,
        queues=queues,
        regions=regions,
        life=KEY_LIFE_DEFAULT if life is None else life,
        now=now,
        created_by=actor,
    )
    kept = await line.store.keys()
    if any(one.key_id == key.key_id for one in kept):
        raise Conflict(
            f"Key {key.key_id} was made by this op_id, and its text was told then. If it never came,"
            f" revoke it (holdfast keys revoke {key.key_id}) and ask under another op_id."
        )
    _check_room(name, [one for one in kept if one.active(now)])
    await line.store.put_key(key)
    await _tell(line, key, "created", actor, now)
    return key, text


async def _chance(line: Line, op: str) -> bytes:
    """The bytes a key's id is made of: the same for the same op. Its text is not: nobody can make that
    again, not even who reads the store."""
    return hmac.digest(await line.store.secret(), f"key/{op}".encode(), "sha256")


def _check_room(name: str, active: list[Key]) -> None:
    mine = [key.key_id for key in active if key.name == name]
    if len(mine) >= KEYS_ACTIVE_MAX:
        raise Exhausted(
            f"{name} has {len(mine)} keys that count already: {', '.join(mine)}. Revoke one of them"
            f" first: holdfast keys revoke {mine[0]}"
        )
    if len(active) >= KEYS_MAX:
        raise Exhausted(f"{len(active):,} keys count already. Revoke some that nobody needs.")


async def revoke_key(line: Line, key_id: str, *, actor: str) -> Key:
    """Let a key count no more. A repeat completes what a crash left untold, and changes nothing else.

    A key's whole text names it as well, so that none is ever repeated in an error.
    """
    check_actor(actor)
    key_id = key_id_of(key_id) or key_id
    key = next((kept for kept in await line.store.keys() if kept.key_id == key_id), None)
    if key is None:
        raise NotFound(f"There is no key {clip(key_id, 80)!r}.")
    now = await line.store.now()
    if key.revoked_at is None:
        key = replace(key, revoked_at=now)
        await line.store.put_key(key)
    await _tell(line, key, "revoked", actor, now)
    return key


async def _tell(line: Line, key: Key, what: str, actor: str, now: datetime) -> None:
    """Record it. The same key made or revoked is one event, however often it is told, and with its slash
    and its type none that a caller could have recorded."""
    event = Event(
        event_type=KEY_TYPES[what],
        event_class=EventClass.EXTERNAL,
        occurred_at=key.revoked_at or key.created_at,
        received_at=now,
        given_id=f"key/{key.key_id}/{what}",
        actor=actor,
        attributes={
            "name": key.name,
            "key_id": key.key_id,
            "scopes": list(key.scopes),
            "queues": list(key.queues),
            "regions": list(key.regions),
        },
    )
    try:
        await line.store.record([event])
    except Unavailable as error:  # the key itself is written by now
        error.applied = "unknown"
        raise
