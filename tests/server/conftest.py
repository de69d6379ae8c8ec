"""Fixtures of the server's tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.server import keyring
from holdfast.server.context import ServerSettings
from tests.server.keyed_server import KeyedServer, open_keyed_server
from tests.server.outputs_server import OutputsServer, open_outputs_server
from tests.server.raw_http_client import ThreadedServer, threaded_server, unharmed
from tests.server.served_registry import ServedRegistry, open_served


@pytest.fixture
async def served() -> AsyncIterator[ServedRegistry]:
    """A registry and its server, over a store in memory whose time stands still; no claim waits."""
    async with open_served() as served:
        yield served


@pytest.fixture
async def keyed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KeyedServer]:
    """A server with keys, over a store in memory whose time stands still. It looks up a key that it does not
    know at once."""
    monkeypatch.setattr(keyring, "UNKNOWN_SECONDS", 0.0)
    async with open_keyed_server() as keyed:
        yield keyed


@pytest.fixture
async def with_outputs(tmp_path: Path) -> AsyncIterator[OutputsServer]:
    """A server with an output store in a directory, over a store in memory whose time stands still."""
    async with open_outputs_server(tmp_path) as with_outputs:
        yield with_outputs


@pytest.fixture(scope="module")
def shared_server() -> Iterator[ThreadedServer]:
    with threaded_server(ServerSettings(poll_seconds=0.05)) as server:
        yield server


@pytest.fixture
def server(shared_server: ThreadedServer, caplog: pytest.LogCaptureFixture) -> Iterator[ThreadedServer]:
    """A server in a thread, one for each file: no test may harm it, or make it log an error."""
    yield shared_server
    unharmed(shared_server, caplog)
