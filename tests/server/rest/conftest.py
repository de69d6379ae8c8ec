"""Fixtures of the tests of REST."""

from collections.abc import Iterator

import pytest

from tests.server.rest.rest_registry import RestRegistry, open_rest_registry


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestRegistry]:
    """A server with an output store, over a store in memory whose time stands still, called by REST."""
    with open_rest_registry(tmp_path_factory.mktemp("outputs")) as registry:
        yield registry
