"""What tests of output stores in directories share."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.outputs.directory import DirectoryOutputs

Body = Callable[[DirectoryOutputs], Awaitable[None]]


def play(root: Path, body: Body) -> None:
    async def main() -> None:
        outputs = await DirectoryOutputs.open(root, create=True)
        try:
            await body(outputs)
        finally:
            await outputs.close()

    asyncio.run(main())


def drafts(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.name.startswith(".holdfast-")]
