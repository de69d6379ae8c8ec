"""API keys: one document each, without a log."""

from holdfast.core.access import Key
from holdfast.core.errors import Unavailable
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import DocumentStore, each

ATTEMPTS = 10


async def all_keys(documents: DocumentStore) -> list[Key]:
    """Return every key, the oldest first."""
    names = await documents.objects.list_keys(keys.API_KEYS)
    found = await each(lambda name: documents.fetch(name, Key), names)
    kept = [one[0] for one in found if one is not None]
    return sorted(kept, key=lambda key: (key.created_at, key.key_id))


async def put_key(documents: DocumentStore, key: Key) -> None:
    """Store the key; it replaces the one with its id."""
    name = keys.api_key(key.key_id)
    for _ in range(ATTEMPTS):
        found = await documents.fetch(name, Key)
        if (found and found[0] == key) or await documents.put(name, key, found[1] if found else None):
            return
    raise Unavailable(f"Key {key.key_id} changes too fast to be written; nothing was applied.")
