"""What tests of outputs may ask for."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.outputs.directory import DirectoryOutputs
from tests.outputs.directory_store import open_directory
from tests.outputs.outputs_world import OutputsWorld, open_outputs_world


@pytest.fixture
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OutputsWorld]:
    """A registry and an output store: in memory and in a directory, unless a test names others
    (`parametrize("world", MATRIX, ids="-".join, indirect=True)`)."""
    registry, place = getattr(request, "param", ("memory", "directory"))
    async with open_outputs_world(registry, place, tmp_path) as world:
        yield world


@pytest.fixture
async def outputs(tmp_path: Path) -> AsyncIterator[DirectoryOutputs]:
    """An empty output store in a directory."""
    async with open_directory(tmp_path / "o") as outputs:
        yield outputs
