"""Every store keeps the contract."""

from conftest import cas_store, memory_store, sqlite_store
from holdfast.testing.store_contract import StoreContract


class TestMemory(StoreContract):
    open = staticmethod(memory_store)


class TestCas(StoreContract):
    open = staticmethod(cas_store)


class TestSqlite(StoreContract):
    open = staticmethod(sqlite_store)
