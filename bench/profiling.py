"""Where a job's time goes in one process: the CPU of each step, exclusive of the steps inside it."""

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from typing import Any

import verbs
from holdfast.sdk.open import open_registry
from holdfast.stores.batch import Batch
from holdfast.stores.postgres.commit import PostgresCommit

STEPS: dict[str, list[tuple[type, str]]] = {
    "decide": [(Batch, "decide_by_id"), (Batch, "decide_due"), (Batch, "decide_ready")],
    "rows into jobs": [(PostgresCommit, "_load")],
    "jobs and events into rows": [(PostgresCommit, "_write")],
    "driver, reading": [(PostgresCommit, "_fetch")],
    "driver, writing": [(PostgresCommit, "_send")],
}
NAMES = (*STEPS, "verbs and line")


class Profile:
    """Adds up thread CPU by step. One task works at a time, so that a step's CPU is its own."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._stack: list[str] = ["verbs and line"]
        self._since = time.thread_time()

    def turn(self) -> None:
        now = time.thread_time()
        self.seconds[self._stack[-1]] += now - self._since
        self._since = now

    def enter(self, step: str) -> None:
        self.turn()
        self._stack.append(step)

    def leave(self) -> None:
        self.turn()
        self._stack.pop()

    def watch(self) -> None:
        for step, places in STEPS.items():
            for owner, name in places:
                call = getattr(owner, name)
                plain = name.startswith("decide")
                setattr(owner, name, (self._plain if plain else self._awaited)(step, call))

    def _plain(self, step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: object) -> Any:
            self.enter(step)
            try:
                return call(*given)
            finally:
                self.leave()

        return watched

    def _awaited(self, step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def watched(*given: object) -> Any:
            self.enter(step)
            try:
                return await call(*given)
            finally:
                self.leave()

        return watched


async def profile_enqueue(url: str, jobs: int) -> AsyncGenerator[Any, float]:
    registry = await open_registry(url)
    chunks = [verbs.requests(start, verbs.CHUNK) for start in range(0, jobs, verbs.CHUNK)]
    yield None
    profile = Profile()
    profile.watch()
    began = time.perf_counter()
    for chunk in chunks:
        await registry.enqueue_many(chunk, actor=verbs.ACTOR)
    yield _table(profile, jobs, time.perf_counter() - began)


async def profile_drain(url: str) -> AsyncGenerator[Any, float]:
    registry = await open_registry(url)
    yield None
    profile = Profile()
    profile.watch()
    began = time.perf_counter()
    jobs = await verbs.drain_all(registry)
    yield _table(profile, jobs, time.perf_counter() - began)


def _table(profile: Profile, jobs: int, seconds: float) -> dict[str, float]:
    """Microseconds per job of each step; what the process did not compute it waited."""
    profile.turn()
    used = {name: profile.seconds[name] / jobs * 1e6 for name in NAMES}
    return {**used, "waiting for the server": seconds / jobs * 1e6 - sum(used.values())}
