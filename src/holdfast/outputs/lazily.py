"""An output store that is opened when somebody first needs it: most jobs promise nothing."""

import asyncio
from pathlib import Path

from holdfast.outputs.opening import open_outputs
from holdfast.ports.outputs import Outputs


class LazyOutputs:
    """The output store at `url`, one for all who ask on this loop. If nobody chose it, it is in a folder
    that is there when somebody has made it (`folder`): until then there is none."""

    def __init__(self, url: str | None, *, folder: Path | None = None) -> None:
        self.url = url
        self._folder = folder
        self._opening = asyncio.Lock()
        self._opened: Outputs | None = None

    async def get(self, *, create: bool = False) -> Outputs | None:
        """The store, with `create` made if it is not there yet; None when there is no URL. What keeps it
        from being opened is raised, and it is tried again the next time."""
        if self._opened is None and self.url is not None:
            if self._folder is not None and not (create or self._folder.exists()):
                return None
            async with self._opening:
                if self._opened is None:
                    self._opened = await open_outputs(self.url, create=create)
        return self._opened

    async def close(self) -> None:
        outputs, self._opened = self._opened, None
        if outputs is not None:
            await outputs.close()
