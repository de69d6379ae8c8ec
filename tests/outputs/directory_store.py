"""Output stores in directories, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.outputs.directory import DirectoryOutputs


@asynccontextmanager
async def open_directory(root: Path) -> AsyncIterator[DirectoryOutputs]:
    """The output store in this directory, which is made if there is none."""
    outputs = await DirectoryOutputs.open(root, create=True)
    try:
        yield outputs
    finally:
        await outputs.close()


def drafts(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.name.startswith(".holdfast-")]
