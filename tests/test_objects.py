"""Every `VersionedStore` keeps the contract."""

from holdfast.objects.memory import MemoryObjects
from holdfast.ports import VersionedStore
from holdfast.testing.objects_contract import VersionedStoreContract


class TestMemoryObjects(VersionedStoreContract):
    async def open(self) -> VersionedStore:
        return MemoryObjects()
