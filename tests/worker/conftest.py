"""What tests of the worker may ask for."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.worker.processes import Processes
from tests.worker.command_workers import CommandWorkers
from tests.worker.fake_host import FakeHost, open_host
from tests.worker.function_workers import STORES, FunctionWorkers, open_workers
from tests.worker.live_processes import open_processes


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    """The processes of a worker, under a supervisor of their own."""
    async with open_processes() as processes:
        yield processes


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    """The host of an executor of commands: a registry in memory, real processes, no renewed leases."""
    async with open_host(tmp_path) as host:
        yield host


@pytest.fixture
def command_workers(tmp_path: Path) -> CommandWorkers:
    """A SQLite file, commands submitted to it, and workers on it."""
    return CommandWorkers(tmp_path)


@pytest.fixture(params=STORES)
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FunctionWorkers]:
    """A store of each kind, the module's `APP`, and workers of that app."""
    with open_workers(request.param, tmp_path, request.module.APP) as workers:
        yield workers


@pytest.fixture
def sqlite_workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FunctionWorkers]:
    """The same on SQLite alone."""
    with open_workers("sqlite", tmp_path, request.module.APP) as workers:
        yield workers


@pytest.fixture(scope="module")
def shared_workers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FunctionWorkers]:
    """The same for all tests of a module, with one worker, `w-1`, of 50 slots."""
    with open_workers("sqlite", tmp_path_factory.mktemp("shared"), request.module.APP) as workers:
        workers.start("w-1", "-c", "50")
        yield workers
