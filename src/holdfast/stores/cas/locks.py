"""Resource locks: held only while the holder's own record is leased, so none has to be released."""

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job import ResourceLock
from holdfast.failpoint import failpoint
from holdfast.ports import Ids, VersionToken
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import Document, DocumentStore, LoadedDocument, LockDocument


class LockState(Struct, frozen=True):
    """A lock as it was read. `suspect` is a holder whose claim may still be in progress."""

    resource: ResourceLock
    stored: LockDocument | None = None
    version: VersionToken | None = None
    suspect: LoadedDocument | None = None


class LockDocuments:
    """The lock objects. A lock is written before the claim that it is for, and names that write."""

    def __init__(self, documents: DocumentStore, ids: Ids) -> None:
        self._documents = documents
        self._ids = ids

    async def read(self, key: str, loaded: LoadedDocument | None = None) -> LockState:
        """Return the lock; `loaded` is the job that the caller works on, if any."""
        found = await self._documents.fetch(keys.lock(key), LockDocument)
        if found is None:
            return LockState(ResourceLock(key))
        lock, version = found
        if lock.holder is None:
            return LockState(ResourceLock(key, lock.token), lock, version)
        own = loaded is not None and lock.holder == loaded.job_id
        holder = loaded if own and loaded is not None else await self._documents.load(lock.holder)
        job = holder.record
        if job is not None and job.leased and job.spec.lock == key:
            return LockState(ResourceLock(key, lock.token, job.job_id), lock, version)
        # The write that the lock was taken for gives its job that serial. Once the job has it, the
        # write has landed or never will; before, it may be in progress.
        under_way = not own and holder.serial < lock.serial
        return LockState(ResourceLock(key, lock.token), lock, version, holder if under_way else None)

    async def take(self, state: LockState, taken: ResourceLock, loaded: LoadedDocument) -> bool:
        """Write the lock for the job's next write; return False when another process was faster."""
        suspect, stored = state.suspect, state.stored
        dead = suspect is None or stored is None or await self.fence(suspect, stored.serial)
        if not dead:
            return False
        failpoint("cas.suspect_fenced")
        # After a lost response the lock is found as taken for this job, and is taken once more.
        lock = LockDocument(taken.token, loaded.job_id, loaded.serial + 1)
        return await self._documents.put(keys.lock(taken.key), lock, state.version)

    async def fence(self, loaded: LoadedDocument, serial: int) -> bool:
        """Make sure that no write of this job that is in progress can land: all are conditional."""
        document = loaded.document or Document(serial=0, nonce="")
        fenced = replace(document, serial=max(serial, document.serial + 1), nonce=self._ids.new())
        return await self._documents.put(keys.state(loaded.job_id), fenced, loaded.version)

    async def clear(self, key: str, job_id: str) -> None:
        """Remove a holder that is about to be pruned; the token stays."""
        found = await self._documents.fetch(keys.lock(key), LockDocument)
        if found is not None and found[0].holder == job_id:
            cleared = replace(found[0], holder=None)
            await self._documents.put(keys.lock(key), cleared, found[1])
            failpoint("cas.lock_cleared")
