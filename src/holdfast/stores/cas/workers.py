"""Workers that have announced themselves: one document each."""

from datetime import datetime

from holdfast.core.errors import Unavailable
from holdfast.core.workers import WorkerInfo, last_seen_first
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import DocumentStore, each

ATTEMPTS = 10


async def all_workers(documents: DocumentStore) -> list[WorkerInfo]:
    """Return every worker, the last seen first."""
    names = await documents.objects.list_keys(keys.WORKERS)
    found = await each(lambda name: documents.fetch(name, WorkerInfo), names)
    return last_seen_first(one[0] for one in found if one is not None)


async def put_worker(documents: DocumentStore, worker: WorkerInfo, forget_before: datetime) -> None:
    """Store the worker; it replaces the one of its name and instance. Only a new one, or one that is put
    again as it is, looks for those to forget: that reads them all."""
    key, found = keys.worker(worker.name, worker.instance), None
    for _ in range(ATTEMPTS):
        found = await documents.fetch(key, WorkerInfo)
        if await documents.put(key, worker, found[1] if found else None):
            break
    else:
        raise Unavailable(f"Worker {worker.name} changes too fast to be written; nothing was applied.")
    if found is None or found[0] == worker:
        known = await all_workers(documents)
        old = (one for one in known if one.seen_at < forget_before)
        await each(documents.discard, [keys.worker(one.name, one.instance) for one in old])
