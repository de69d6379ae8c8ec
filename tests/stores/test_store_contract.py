"""Every store keeps the contract."""

from holdfast.testing.store_contract import StoreContract
from tests.conftest import cas_store, memory_store, sqlite_store
from tests.stores.postgres.running_server import newest_postgres_store, postgres_store


class TestMemory(StoreContract):
    open = staticmethod(memory_store)


class TestCas(StoreContract):
    open = staticmethod(cas_store)


class TestSqlite(StoreContract):
    open = staticmethod(sqlite_store)


class TestPostgres(StoreContract):
    open = staticmethod(postgres_store)


class TestNewestPostgres(StoreContract):
    open = staticmethod(newest_postgres_store)
