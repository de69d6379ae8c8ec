"""The index of all jobs in creation order: listings, counts and the census."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial

from holdfast.core.job import job_bytes
from holdfast.core.short_ids import fits_short_id
from holdfast.core.state import State
from holdfast.ports import Census, JobFilter, JobPage
from holdfast.stores.cas import keys
from holdfast.stores.cas.documents import DocumentStore, LoadedDocument
from holdfast.stores.census import CensusBuilder
from holdfast.stores.filters import PageBuilder

INDEX_KEYS = 64


class JobIndex:
    """Reads the record of every index marker: fine for thousands of jobs, slow for millions."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def page(self, which: JobFilter, *, after: str | None, limit: int, newest: bool) -> JobPage:
        page = PageBuilder(which, limit)
        fits = partial(_fits, which.short_id)
        rows_in_order = self.walk_back(fits, before=after) if newest else self.walk(fits, after=after)
        async with aclosing(rows_in_order) as rows:
            async for key, loaded in rows:
                job = loaded.record
                if job is None:
                    continue
                if not page.take(key.removeprefix(keys.INDEX), job, job_bytes(job)):
                    return page.cut()
        return page.end(None)

    async def counts(self, queue: str | None) -> dict[State, int]:
        counts: dict[State, int] = {}
        async with aclosing(self.walk()) as rows:
            async for _, loaded in rows:
                job = loaded.record
                if job is not None and (queue is None or job.spec.queue == queue):
                    counts[job.state] = counts.get(job.state, 0) + 1
        return counts

    async def census(self, limit: int, retries: int) -> Census:
        counting = CensusBuilder()
        async with aclosing(self.walk()) as rows:
            async for _, loaded in rows:
                if loaded.record is not None:
                    counting.add([loaded.record])
        return counting.census(limit, retries=retries)

    async def walk(
        self, fits: Callable[[str], bool] = bool, *, after: str | None = None
    ) -> AsyncGenerator[tuple[str, LoadedDocument], None]:
        """Yield the index markers with the documents that were made under them, in creation order. Only the
        documents of markers that `fits` says so of are read."""
        behind = keys.INDEX + (after or "")
        objects = self._documents.objects
        while names := await objects.list_keys(keys.INDEX, after=behind, limit=INDEX_KEYS):
            behind = names[-1]
            for row in await self._rows(list(filter(fits, names))):
                yield row

    async def walk_back(
        self, fits: Callable[[str], bool], *, before: str | None
    ) -> AsyncGenerator[tuple[str, LoadedDocument], None]:
        """The same, newest first. Buckets list forwards only, so this lists all the markers."""
        names = list(filter(fits, await self._documents.objects.list_keys(keys.INDEX)))
        if before is not None:
            names = [name for name in names if name < keys.INDEX + before]
        while names:
            last, names = names[-INDEX_KEYS:], names[:-INDEX_KEYS]
            for row in await self._rows(last[::-1]):
                yield row

    async def _rows(self, names: list[str]) -> list[tuple[str, LoadedDocument]]:
        parts = [keys.index_parts(name) for name in names]
        loaded = await self._documents.load_many(job_id for _, job_id in parts)
        return [
            (name, one)
            for name, (order, _), one in zip(names, parts, loaded, strict=True)
            if one.document is not None and one.document.order == order
        ]


def _fits(short_id: str | None, name: str) -> bool:
    """Whether the id in the name of an index marker fits."""
    return short_id is None or fits_short_id(keys.index_parts(name)[1], short_id)
