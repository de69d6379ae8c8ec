"""Every store agrees with the pure core on random commands."""

import pytest
from hypothesis import HealthCheck, settings

from holdfast.testing.machine import StoreMachine
from tests.conftest import STORES
from tests.stores.postgres.running_server import newest_postgres_store

EFFORT = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class MemoryMachine(StoreMachine):
    opener = staticmethod(STORES["memory"])


class CasMachine(StoreMachine):
    opener = staticmethod(STORES["cas"])


class SqliteMachine(StoreMachine):
    opener = staticmethod(STORES["sqlite"])


class PostgresMachine(StoreMachine):
    opener = staticmethod(STORES["postgres"])


class NewestPostgresMachine(StoreMachine):
    opener = staticmethod(newest_postgres_store)


TestMemory = MemoryMachine.TestCase
TestCas = CasMachine.TestCase
TestSqlite = SqliteMachine.TestCase
TestPostgres = PostgresMachine.TestCase
TestNewestPostgres = NewestPostgresMachine.TestCase
pytest.mark.long(TestNewestPostgres)
for case in (TestMemory, TestCas, TestSqlite, TestPostgres, TestNewestPostgres):
    case.settings = EFFORT
del case  # or else it is collected, and the last of them runs twice
