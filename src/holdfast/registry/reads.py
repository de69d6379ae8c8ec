"""Reads: concurrent reads of jobs share a trip to the store."""

import asyncio
from collections import deque
from collections.abc import Sequence

from holdfast.core.job import Job
from holdfast.ports import Store

TRIPS_MAX = 2
"""Trips under way at once: one is on its way while another is answered."""

TRIP_ITEMS = 100
"""Jobs that are read together for several callers: each may have a large payload."""


class Reads:
    """Where reads of jobs queue up for the store.

    An idle store is asked at once. What arrives while it is busy goes together in the next trip: 64
    clients who ask for the state of a job get twice as many answers a second.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[_Asked] = deque()
        self._trips = 0
        self._going: dict[asyncio.Task[None], None] = {}

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """The jobs, as they are now or later."""
        if self._trips == TRIPS_MAX:
            asked = _Asked(job_ids, asyncio.get_running_loop().create_future())
            self._waiting.append(asked)
            return await asked.answer
        self._trips += 1
        try:
            return await self._store.get(job_ids)
        finally:
            self._next()

    def _next(self) -> None:
        """A trip is over: what waits by now goes on the next."""
        self._trips -= 1
        if batch := self._take():
            self._trips += 1
            task = asyncio.get_running_loop().create_task(self._go(batch))
            self._going[task] = None
            task.add_done_callback(self._going.pop)

    def _take(self) -> "list[_Asked]":
        batch: list[_Asked] = []
        size = 0
        while self._waiting and (not batch or size + len(self._waiting[0].ids) <= TRIP_ITEMS):
            asked = self._waiting.popleft()
            if not asked.answer.done():  # else its caller has left
                batch.append(asked)
                size += len(asked.ids)
        return batch

    async def _go(self, batch: "list[_Asked]") -> None:
        try:
            await self._answer(batch)
        except Exception:  # it may be one caller's fault, and is told to that one alone
            for asked in batch:
                try:
                    await self._answer([asked])
                except Exception as error:
                    if not asked.answer.done():
                        asked.answer.set_exception(error)
        finally:
            self._next()

    async def _answer(self, batch: "list[_Asked]") -> None:
        wanted = dict.fromkeys(job_id for asked in batch for job_id in asked.ids)
        jobs = dict(zip(wanted, await self._store.get(list(wanted)), strict=True))
        for asked in batch:
            if not asked.answer.done():
                asked.answer.set_result([jobs[job_id] for job_id in asked.ids])


class _Asked:
    """Which jobs a caller wants, and where its answer goes."""

    __slots__ = ("answer", "ids")

    def __init__(self, ids: Sequence[str], answer: "asyncio.Future[list[Job | None]]") -> None:
        self.ids = ids
        self.answer = answer
