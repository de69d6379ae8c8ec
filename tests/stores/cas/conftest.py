"""Fixtures for tests of the store of documents."""

import pytest

from tests.stores.cas.shared_objects import SharedObjects


@pytest.fixture
def shared() -> SharedObjects:
    """Empty objects in memory that any number of processes share."""
    return SharedObjects()
