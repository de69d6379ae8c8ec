"""Resource locks: held only while the holder's own record is leased, so none has to be released."""

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job import Resource
from holdfast.failpoint import failpoint
from holdfast.ports import Ids, VersionToken
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import Document, Held, Lock, Shelf


class Looked(Struct, frozen=True):
    """A lock as it was found. `suspect` is a holder whose claim may still be under way."""

    resource: Resource
    stored: Lock | None = None
    version: VersionToken | None = None
    suspect: Held | None = None


class Locks:
    """The lock objects. One is written before the claim that it is for, and names that write."""

    def __init__(self, shelf: Shelf, ids: Ids) -> None:
        self._shelf = shelf
        self._ids = ids

    async def look(self, key: str, held: Held | None = None) -> Looked:
        """The lock, as it concerns the job in hand."""
        found = await self._shelf.fetch(keys.lock(key), Lock)
        if found is None:
            return Looked(Resource(key))
        lock, version = found
        if lock.holder is None:
            return Looked(Resource(key, lock.token), lock, version)
        own = held is not None and lock.holder == held.job_id
        holder = held if own and held is not None else await self._shelf.load(lock.holder)
        job = holder.record
        if job is not None and job.leased and job.spec.lock == key:
            return Looked(Resource(key, lock.token, job.job_id), lock, version)
        # The write that the lock was taken for gives its job that serial. Once the job has it, the
        # write has landed or never will; before, it may be under way.
        under_way = not own and holder.serial < lock.serial
        return Looked(Resource(key, lock.token), lock, version, holder if under_way else None)

    async def take(self, looked: Looked, taken: Resource, held: Held) -> bool:
        """Write the lock for the job's next write; False when somebody was faster."""
        suspect, stored = looked.suspect, looked.stored
        dead = suspect is None or stored is None or await self.fence(suspect, stored.serial)
        if not dead:
            return False
        failpoint("cas.suspect_fenced")
        # After a lost answer the lock is found as taken for this job, and is taken once more.
        lock = Lock(taken.token, held.job_id, held.serial + 1)
        return await self._shelf.put(keys.lock(taken.key), lock, looked.version)

    async def fence(self, held: Held, serial: int) -> bool:
        """Make sure that no write of this job that is under way can land: all are conditional."""
        document = held.document or Document(serial=0, nonce="")
        fenced = replace(document, serial=max(serial, document.serial + 1), nonce=self._ids.new())
        return await self._shelf.put(keys.state(held.job_id), fenced, held.version)

    async def clear(self, key: str, job_id: str) -> None:
        """Forget a holder that is about to be pruned; the token stays."""
        found = await self._shelf.fetch(keys.lock(key), Lock)
        if found is not None and found[0].holder == job_id:
            cleared = replace(found[0], holder=None)
            await self._shelf.put(keys.lock(key), cleared, found[1])
            failpoint("cas.lock_cleared")
