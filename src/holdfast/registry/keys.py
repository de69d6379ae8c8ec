"""keys: create and revoke API keys. Both are recorded in the log, without secrets."""

import hmac
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from holdfast.core.access import Key, Scope, key_id_of, new_key
from holdfast.core.catalogue import KEY_CREATED, KEY_REVOKED, EventClass
from holdfast.core.errors import Conflict, Exhausted, NotFound, Unavailable
from holdfast.core.event import Event
from holdfast.core.limits import KEY_LIFE_DEFAULT, KEYS_ACTIVE_MAX, KEYS_MAX, check_actor, clip
from holdfast.registry.commit_queue import CommitQueue

KEY_TYPES = {"created": KEY_CREATED, "revoked": KEY_REVOKED}


async def create_key(
    commits: CommitQueue,
    *,
    name: str,
    scopes: Sequence[Scope],
    queues: Sequence[str] = ("*",),
    regions: Sequence[str] = (),
    life: timedelta | None = None,
    actor: str,
    op_id: str | None = None,
) -> tuple[Key, str]:
    """Create a key; its text is returned here and never again, and only once the log has the key. A repeat
    of the op_id by the same actor creates no second key: it is a `Conflict` that names the first.

    The limits are checked before the write: keys created at the same moment may exceed them.
    """
    now = await commits.store.now()
    key, text = new_key(
        await _id_bytes(commits, f"{check_actor(actor)}/{commits.op_id_or_new(op_id)}"),
        commits.ids.secret(),
        name=name,
        scopes=scopes,
        queues=queues,
        regions=regions,
        life=KEY_LIFE_DEFAULT if life is None else life,
        now=now,
        created_by=actor,
    )
    known = await commits.store.list_keys()
    if any(one.key_id == key.key_id for one in known):
        raise Conflict(
            f"Key {key.key_id} was created with this op_id, and its text was returned then. If it was lost,"
            f" revoke it (holdfast keys revoke {key.key_id}) and use another op_id."
        )
    _check_room(name, [one for one in known if one.active(now)])
    await commits.store.put_key(key)
    await _record(commits, key, "created", actor, now)
    return key, text


async def _id_bytes(commits: CommitQueue, op: str) -> bytes:
    """The bytes of a key's id: the same for the same op. Its text is random, and cannot be derived even by
    a reader of the store."""
    return hmac.digest(await commits.store.secret(), f"key/{op}".encode(), "sha256")


def _check_room(name: str, active: list[Key]) -> None:
    mine = [key.key_id for key in active if key.name == name]
    if len(mine) >= KEYS_ACTIVE_MAX:
        raise Exhausted(
            f"{name} has {len(mine)} active keys already: {', '.join(mine)}. Revoke one of them"
            f" first: holdfast keys revoke {mine[0]}"
        )
    if len(active) >= KEYS_MAX:
        raise Exhausted(f"{len(active):,} keys are active already. Revoke some that are not needed.")


async def revoke_key(commits: CommitQueue, key_id: str, *, actor: str) -> Key:
    """Revoke a key. A repeat records an event that a crash prevented, and changes nothing else.

    The whole text of a key is accepted in place of its id, so that no error repeats it.
    """
    check_actor(actor)
    key_id = key_id_of(key_id) or key_id
    key = next((one for one in await commits.store.list_keys() if one.key_id == key_id), None)
    if key is None:
        raise NotFound(f"There is no key {clip(key_id, 80)!r}.")
    now = await commits.store.now()
    if key.revoked_at is None:
        key = replace(key, revoked_at=now)
        await commits.store.put_key(key)
    await _record(commits, key, "revoked", actor, now)
    return key


async def _record(commits: CommitQueue, key: Key, what: str, actor: str, now: datetime) -> None:
    """Record the event, once however often this is called. Its slash and its type keep it apart from events
    that a caller may record."""
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
        await commits.store.record([event])
    except Unavailable as error:  # the key itself is written by now
        error.applied = "unknown"
        raise
