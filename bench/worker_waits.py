"""Waits: from an enqueue to the handler, from a start to the first job, from a kill to the next attempt."""

import asyncio
import random
import sys
import time
from dataclasses import dataclass

import verbs
import worker_app
from holdfast import AsyncClient, Handle, State
from worker_fleet import RUNNERS, NotMeasured, Worker, fleet
from worker_stores import Store

PAUSE_SECONDS = (0.02, 0.15)
SURVIVORS = 8
RESULT_SECONDS = 60.0


async def idle_latency(store: Store, jobs: int) -> verbs.Spread:
    """From before an enqueue here until the handler has begun, in a worker that has nothing to do."""
    chance = random.Random(20261115)
    async with fleet(await store.fresh(), store.folder / "latency") as (workshop, client):
        await workshop.start().ready(client)
        sent: list[tuple[float, Handle[float]]] = []
        for _ in range(jobs):
            await asyncio.sleep(chance.uniform(*PAUSE_SECONDS))
            now = time.monotonic()
            sent.append((now, await client.enqueue(worker_app.moment.call())))
        begun = [await handle.result_async(timeout=RESULT_SECONDS) for _, handle in sent]
    found = verbs.spread([end - now for (now, _), end in zip(sent, begun, strict=True)])
    print(f"{store.name}: idle latency p50 {found.p50:.2f} ms, p99 {found.p99:.2f}", file=sys.stderr)
    return found


async def start_up(store: Store, rounds: int) -> list[float]:
    """Seconds from the start of a worker to its first job, in order of length."""
    found = []
    for _ in range(rounds):
        async with fleet(await store.fresh(), store.folder / "start") as (workshop, client):
            handle = await client.enqueue(worker_app.moment.call())
            now = time.monotonic()
            found.append(await workshop.start().result(handle) - now)
    print(f"{store.name}: start-up {sorted(found)[rounds // 2]:.2f} s", file=sys.stderr)
    return sorted(found)


@dataclass(frozen=True)
class Recovery:
    """Seconds from the kill until the last job ran again: of those that had said something before, of
    which a spool knows, and of those that had not."""

    aloud: float
    silent: float


async def recovery(store: Store, how: str, lease: float) -> Recovery:
    """Kill -9 what runs some jobs, and see when they run again.

    `elsewhere` kills the whole worker, beside one that knows nothing of its spool; with `neighbour` the
    other one has the same spool; `restarted` starts another one after the kill; `runner` kills only the
    process in which the handlers run.
    """
    options = ("--lease", f"{lease:g}s")
    folder = store.folder / f"recovery-{how}"
    async with fleet(await store.fresh(), folder) as (workshop, client):
        spool = folder / "spool"
        first = workshop.start(*options, spool=spool)
        await first.ready(client)
        handles = await client.enqueue_many(
            worker_app.survive.call(aloud=n < SURVIVORS // 2) for n in range(SURVIVORS)
        )
        await _running(client, handles, first)
        if how in {"elsewhere", "neighbour"}:
            shared = spool if how == "neighbour" else None
            other = workshop.start(*options, spool=shared, queues=("default", "other"))
            await other.ready(client)
        killed = first.kill(*([RUNNERS] if how == "runner" else []))
        if how == "restarted":
            workshop.start(*options, spool=spool)
        patience = lease + RESULT_SECONDS
        begun = [await handle.result_async(timeout=patience) for handle in handles]
    waits = [moment - killed for moment in begun]
    found = Recovery(max(waits[: SURVIVORS // 2]), max(waits[SURVIVORS // 2 :]))
    words = f"with output after {found.aloud:.2f} s, without after {found.silent:.2f} s"
    print(f"{store.name}: {how}: running again {words}", file=sys.stderr)
    return found


async def _running(client: AsyncClient, handles: list[Handle[float]], worker: Worker) -> None:
    deadline = time.monotonic() + RESULT_SECONDS
    for handle in handles:
        while (await handle.refresh_async()).state is not State.RUNNING:
            worker.check()
            if time.monotonic() > deadline:
                raise NotMeasured(f"{await client.why(handle.job_id)}")
            await asyncio.sleep(0.05)
