"""Every `VersionedStore` keeps the contract."""

from holdfast.objects.memory import MemoryObjects
from holdfast.ports import VersionedStore
from holdfast.testing.objects_contract import VersionedStoreContract


async def memory_objects() -> VersionedStore:
    return MemoryObjects()


class TestMemoryObjects(VersionedStoreContract):
    open = staticmethod(memory_objects)
