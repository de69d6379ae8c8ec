"""Reads of jobs share trips to the store, and nobody waits for a timer or for another's mistake."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry import read_batcher
from holdfast.registry.local import LocalRegistry
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds


class SlowReads(MemoryStore):
    """A store that answers reads when it is told to, and says what was asked."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), SystemIds())
        self.trips: list[list[str]] = []
        self.open, self.open_later = asyncio.Event(), asyncio.Event()
        self.open_later.set()

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        self.trips.append(list(job_ids))
        await (self.open if len(self.trips) < 3 else self.open_later).wait()
        if "wrong" in job_ids:
            raise Invalid("There is something wrong with this id.")
        return await super().get(job_ids)


async def _open() -> tuple[SlowReads, LocalRegistry]:
    store = SlowReads()
    registry = LocalRegistry(store, SystemIds())
    requests = [JobRequest(spec=Spec(), job_id=f"j{n}") for n in range(6)]
    await registry.enqueue_many(requests, actor="user:ana")
    return store, registry


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_arrives_while_the_store_is_busy_goes_together() -> None:
    store, registry = await _open()
    asked = [["j0"], ["j1"], ["j2", "j3"], ["j3", "none"], []]
    calls = [asyncio.create_task(registry.status_many(ids)) for ids in asked]
    await _turns()
    assert store.trips == [["j0"], ["j1"]]
    store.open.set()

    answers = await asyncio.gather(*calls)

    assert store.trips[2:] == [["j2", "j3", "none"]]
    told = [[job and job.job_id for job in jobs] for jobs in answers]
    assert told == [["j0"], ["j1"], ["j2", "j3"], ["j3", None], []]


async def test_a_trip_has_so_many_jobs_and_one_who_wants_more_goes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_batcher, "CALL_ITEMS", 2)

    store, registry = await _open()
    asked = [["j0"], ["j1"], ["j2", "j3", "j4"], ["j0"], ["j1"], ["j5"]]
    calls = [asyncio.create_task(registry.status_many(ids)) for ids in asked]
    await _turns()
    store.open.set()

    await asyncio.gather(*calls)

    assert store.trips[2:] == [["j2", "j3", "j4"], ["j0", "j1"], ["j5"]]


async def test_a_read_that_fails_fails_for_its_caller_alone() -> None:
    store, registry = await _open()
    asked = [["j0"], ["j1"], ["j2"], ["wrong"], ["j3"]]
    calls = [asyncio.create_task(registry.status_many(ids)) for ids in asked]
    await _turns()
    store.open.set()

    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert isinstance(answers[3], Invalid)
    good = [answers[n] for n in (0, 1, 2, 4)]
    assert [[job.job_id for job in jobs] for jobs in good] == [["j0"], ["j1"], ["j2"], ["j3"]]  # type: ignore[union-attr]
    with pytest.raises(Invalid):
        await registry.status_many(["wrong"])
    assert await registry.status_many(["j0"])


@pytest.mark.parametrize("moment", ["waiting", "under way"])
@pytest.mark.parametrize("who", [0, 1])
async def test_who_leaves_holds_nobody_up(moment: str, who: int) -> None:
    store, registry = await _open()
    store.open_later.clear()
    first = [asyncio.create_task(registry.status_many([f"j{n}"])) for n in range(2)]
    await _turns()
    later = [asyncio.create_task(registry.status_many([one])) for one in ("j2", "wrong", "j4")]
    await _turns()
    if moment == "under way":
        store.open.set()
        await asyncio.gather(*first)
        await _turns()
    later[who].cancel()
    await _turns()
    store.open.set()
    store.open_later.set()

    answers = await asyncio.gather(*later, return_exceptions=True)

    assert isinstance(answers[who], asyncio.CancelledError)
    assert isinstance(answers[1], Invalid) or who == 1
    assert [job.job_id for job in answers[2]] == ["j4"]  # type: ignore[union-attr]
    assert await registry.status_many(["j5"])
