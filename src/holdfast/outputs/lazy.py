"""An output store that is opened when it is first needed: most jobs promise no outputs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from holdfast.core.errors import Unavailable
from holdfast.ports.outputs import Outputs

OpenOutputs: TypeAlias = Callable[[bool], Awaitable[Outputs | None]]
"""Opens the output store, with True also creates it if it does not exist; None: there is no store."""


async def no_outputs(_: bool) -> Outputs | None:
    """The `Opening` of a process without an output store."""
    return None


class LazyOutputs:
    """One output store, shared by every caller on this event loop. `url` is its address, if it has one."""

    def __init__(self, opening: OpenOutputs = no_outputs, *, url: str | None = None) -> None:
        self.url = url
        self._open = opening
        self._opening = asyncio.Lock()
        self._opened: Outputs | None = None
        self._replaced: list[Outputs] = []

    async def get(self, *, create: bool = False) -> Outputs | None:
        """Return the store, with `create` created if it does not exist; None when there is none.

        An error of opening is raised, and the next call tries again.
        """
        if self._opened is None:
            async with self._opening:
                if self._opened is None:
                    self._opened = await self._open(create)
        return self._opened

    async def get_same(self) -> Outputs | None:
        """As `get`, but raise `Unavailable` if another store is in the place of the opened one now; the
        next call opens that store."""
        outputs = await self.get()
        if outputs is not None:
            try:
                await outputs.check_available()
            except Unavailable:
                # Closed with the others at the end: a validation may still be reading from it.
                self._replaced.append(outputs)
                self._opened = None
                raise
        return outputs

    async def close(self) -> None:
        if self._opened is not None:
            self._replaced.append(self._opened)
        closing, self._replaced, self._opened = self._replaced, [], None
        for outputs in closing:
            await outputs.close()
