"""A process on a PostgreSQL store: claimers on the record, racers for one job, or a frozen claimer.

It says `ready` and begins when it hears a line.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from holdfast.core.errors import Conflict, HoldfastError, Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.state import State
from holdfast.failpoint import arm
from holdfast.ports import Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.stores.postgres import commit
from holdfast.stores.postgres.store import PostgresStore
from holdfast.system import SystemIds
from holdfast.testing.history import Entry, Shown
from holdfast.testing.recorder import LineFile, recorded
from tests.load.history_process import SPEC, Load, say

T = TypeVar("T")

CLAIMERS, RACERS = 8, 8
RESENDS_MAX = 100
SECONDS_MAX = 400
EARLY_SECONDS = 0.1
LONG = timedelta(minutes=10)


class Resending(Load):
    """Whoever is not told whether it was done, sends the same again under the same op_id."""

    async def sent(self, call: Callable[[str], Awaitable[T]]) -> T | None:
        op_id = self.ids.new()
        for _ in range(RESENDS_MAX):
            try:
                return await call(op_id)
            except Unavailable:
                await asyncio.sleep(0.1 * self.chance.random())
        return None


async def heard() -> str:
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


def commits(*registries: LocalRegistry) -> str:
    """How many commits there were, and how many of them were undone and decided again."""
    stores = [r._store for r in registries if isinstance(r._store, PostgresStore)]
    return f"{sum(s.commits for s in stores)} {sum(s.retries for s in stores)}"


async def load(url: str, history: str, name: str, jobs: str, early: str) -> None:
    """Do everything to the same jobs, on the record, until told to finish; then all jobs end."""
    registry, lines = await open_local(url), LineFile(Path(history))
    recorder = recorded(registry, SystemIds(), lines.keep, process=name)
    shared = Resending(registry, recorder, name=name, jobs=int(jobs))
    say("ready")
    await heard()

    async def conduct() -> None:
        await heard()
        shared.finishing = True

    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        group.create_task(conduct())
        for n in range(CLAIMERS):
            mine = shared.jobs[n::CLAIMERS] if name == "p0" else []
            group.create_task(shared.claimer(f"{name}-{n}", mine))
        if early == "early":
            group.create_task(acknowledge_early(url, lines, name, shared))
    lines.close()
    say(commits(registry))
    await registry.close()


async def acknowledge_early(url: str, lines: LineFile, name: str, shared: Load) -> None:
    """For the control: say that a job is made, then try to make it, and not for long."""
    registry, process = await open_local(url), f"early-{name}"
    for n in itertools.count(1):
        if shared.finishing:
            break
        job_id, now_ns = f"{process}-{n}", time.monotonic_ns()
        call = {"verb": "enqueue", "op_id": job_id, "job_id": job_id}
        lines.keep(Entry(process=process, number=n, at_ns=now_ns, type="invoke", **call))  # type: ignore[arg-type]
        made = (Shown(job_id, 1, 0, State.QUEUED),)
        lines.keep(Entry(process=process, number=n, at_ns=now_ns + 1, type="ok", shown=made))
        with contextlib.suppress(TimeoutError, HoldfastError):
            async with asyncio.timeout(EARLY_SECONDS):
                await registry.enqueue(JobRequest(spec=SPEC, job_id=job_id), actor="user:load")
        await asyncio.sleep(EARLY_SECONDS)
    await registry.close()


async def race(url: str, name: str) -> None:
    """Claim the one job there is, or acquire it by its id, all racers at once, at every line heard.

    A racer that waits for a core between its reading and its writing has not lost to another: what is
    only late is not decided again here, so that what is counted are conflicts."""
    commit.WAIT_MAX = LONG
    registries = [await open_local(url) for _ in range(RACERS)]
    say("ready")
    while order := await heard():
        verb, job_id = order.split()
        turns = [turn(r, f"{name}-{n}", verb, job_id) for n, r in enumerate(registries)]
        won = [token for tokens in await asyncio.gather(*turns) for token in tokens]
        say(" ".join(map(str, won)))
    say(commits(*registries))
    for registry in registries:
        await registry.close()


async def turn(registry: LocalRegistry, owner: str, verb: str, job_id: str) -> list[int]:
    grants: list[Grant] = []
    if verb == "claim":
        grants = await registry.claim(["default"], owner=owner, lease=LONG)
    else:
        with contextlib.suppress(Conflict):
            grants = [await registry.acquire(job_id, owner=owner, lease=LONG)]
    for grant in grants:
        await registry.complete(grant, Success())
    return [grant.fencing_token for grant in grants]


async def freeze(url: str, passing: str) -> None:
    """Claim, and stop at this passing of `postgres.jobs_read`; thawed, tell what was claimed, and claim
    again."""
    registry = await open_local(url)
    passings = itertools.count(1)

    def hook(name: str) -> None:
        if name == "postgres.jobs_read" and next(passings) == int(passing):
            say("frozen")
            os.kill(os.getpid(), signal.SIGSTOP)

    say("ready")
    await heard()
    arm(hook)
    grants = await registry.claim(["default"], owner="frozen", op_id="claim-frozen")
    arm(None)
    say(" ".join(["claimed", *(grant.job_id for grant in grants)]))
    await registry.enqueue(JobRequest(spec=SPEC, job_id="afterwards"), actor="user:load")
    [grant] = await registry.claim(["default"], owner="thawed")
    say(f"went on with {(await registry.complete(grant, Success())).job_id}")
    await registry.close()


ROLES = {"load": load, "race": race, "freeze": freeze}

if __name__ == "__main__":
    role, *words = sys.argv[1:]
    asyncio.run(ROLES[role](*words))  # type: ignore[operator]
