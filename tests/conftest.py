"""What every test may ask for: a world on each store. In CI, a test that is skipped has failed."""

import os
import signal
from collections.abc import AsyncIterator, Generator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from holdfast.objects.memory import MemoryObjects
from holdfast.ports import Clock, Ids, Store
from holdfast.stores.cas.store import CasStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.world import Opener, World, open_world
from tests.server.running_server import served_world
from tests.stores.postgres.running_server import postgres_store

# A process that has spoken gRPC starts threads again in whatever it forks, and one in seven of these then
# ends by SIGABRT before its program begins. Nothing of ours forks and goes on: it need not.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, and no verdict on a machine that is busy with something else.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


async def memory_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return MemoryStore(clock, ids)


async def cas_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return CasStore(MemoryObjects(), clock, ids)


async def sqlite_store(folder: Path, clock: Clock, ids: Ids) -> Store:
    return await SqliteStore.open(folder / "jobs.db", ids=ids, clock=clock)


STORES: dict[str, Opener] = {
    "memory": memory_store,
    "cas": cas_store,
    "sqlite": sqlite_store,
    "postgres": postgres_store,
}

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected = hasattr(report, "wasxfail")
    return report if expected else unskipped(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return unskipped((yield))


def unskipped(report: Report) -> Report:
    """What a machine cannot show is no pass where everything is to be shown."""
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"SKIPPED IN CI, SO NOT SHOWN: {report.longreprtext}"
    return report


def open_on(name: str, folder: Path) -> AbstractAsyncContextManager[World]:
    """A fresh world on the store of this name, or at a `server`."""
    return served_world() if name == "server" else open_world(STORES[name], folder)


@pytest.fixture(params=[*STORES, "server"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A fresh store and its registry, once for each store, and once through a server."""
    async with open_on(request.param, tmp_path) as world:
        yield world
