"""Ending tasks."""

import asyncio
from typing import Any


async def stop(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel these and wait until each has ended, whatever it ends with."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        if not task.done():
            ended = asyncio.Event()
            task.add_done_callback(lambda _, ended=ended: ended.set())  # type: ignore[misc]
            await ended.wait()
        if not task.cancelled():
            task.exception()
