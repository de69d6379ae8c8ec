"""Fixtures for tests of the PostgreSQL store."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.stores.postgres.open_stores import OwnSchema
from tests.stores.postgres.running_server import MAJOR, server


@pytest.fixture
async def own() -> AsyncIterator[OwnSchema]:
    """A schema of the test's own on the server of this test process."""
    own = OwnSchema(server(MAJOR))
    async with AsyncExitStack() as own.ends:
        yield own
