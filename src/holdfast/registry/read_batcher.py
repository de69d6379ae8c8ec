"""The read batcher: concurrent reads of jobs share a call of the store."""

import asyncio
from collections import deque
from collections.abc import Sequence

from holdfast.core.job import Job
from holdfast.ports import Store

CALLS_MAX = 2
"""Calls of the store at once: one is under way while another is being processed."""

CALL_ITEMS = 100
"""Jobs that are read together for several callers; each may have a large payload."""


class ReadBatcher:
    """The queue of reads of jobs from the store.

    On an idle store a read goes at once. Reads that arrive while it is busy go together in the next call:
    64 clients that poll the state of a job get twice as many responses a second.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[_Read] = deque()
        self._calls = 0
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """Return the jobs as they are now or later."""
        if self._calls == CALLS_MAX:
            read = _Read(job_ids, asyncio.get_running_loop().create_future())
            self._waiting.append(read)
            return await read.future
        self._calls += 1
        try:
            return await self._store.get(job_ids)
        finally:
            self._next()

    def _next(self) -> None:
        """A call is over: start the next one with the waiting reads."""
        self._calls -= 1
        if batch := self._take():
            self._calls += 1
            task = asyncio.get_running_loop().create_task(self._run_batch(batch))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    def _take(self) -> "list[_Read]":
        batch: list[_Read] = []
        size = 0
        while self._waiting and (not batch or size + len(self._waiting[0].ids) <= CALL_ITEMS):
            read = self._waiting.popleft()
            if not read.future.done():  # else its caller has left
                batch.append(read)
                size += len(read.ids)
        return batch

    async def _run_batch(self, batch: "list[_Read]") -> None:
        try:
            await self._run(batch)
        except Exception:  # one read may be at fault: only its caller gets the error
            for read in batch:
                try:
                    await self._run([read])
                except Exception as error:
                    if not read.future.done():
                        read.future.set_exception(error)
        finally:
            self._next()

    async def _run(self, batch: "list[_Read]") -> None:
        wanted = dict.fromkeys(job_id for read in batch for job_id in read.ids)
        jobs = dict(zip(wanted, await self._store.get(list(wanted)), strict=True))
        for read in batch:
            if not read.future.done():
                read.future.set_result([jobs[job_id] for job_id in read.ids])


class _Read:
    """The jobs of one read, and the future of its result."""

    __slots__ = ("future", "ids")

    def __init__(self, ids: Sequence[str], future: "asyncio.Future[list[Job | None]]") -> None:
        self.ids = ids
        self.future = future
