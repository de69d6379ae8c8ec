"""Every store agrees with the pure core on random commands."""

from hypothesis import HealthCheck, settings

from conftest import STORES
from holdfast.testing.machine import StoreMachine

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


TestMemory = MemoryMachine.TestCase
TestCas = CasMachine.TestCase
TestSqlite = SqliteMachine.TestCase
for case in (TestMemory, TestCas, TestSqlite):
    case.settings = EFFORT
