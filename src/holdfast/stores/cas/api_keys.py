"""API keys: one document each, without a log."""

from holdfast.core.access import Key
from holdfast.core.errors import Unavailable
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import Shelf, each

ATTEMPTS = 10


async def all_keys(shelf: Shelf) -> list[Key]:
    """Every key, the oldest first."""
    names = await shelf.objects.list_keys(keys.API_KEYS)
    found = await each(lambda name: shelf.fetch(name, Key), names)
    kept = [one[0] for one in found if one is not None]
    return sorted(kept, key=lambda key: (key.created_at, key.key_id))


async def put_key(shelf: Shelf, key: Key) -> None:
    """Keep the key, in the place of the one with its id."""
    name = keys.api_key(key.key_id)
    for _ in range(ATTEMPTS):
        found = await shelf.fetch(name, Key)
        if (found and found[0] == key) or await shelf.put(name, key, found[1] if found else None):
            return
    raise Unavailable(f"Key {key.key_id} changes too fast to be written; nothing was applied.")
