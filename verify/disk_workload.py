"""Every verb once, on one store, by a client that keeps book of what it was told.

Each step runs under an op_id of its own, so that a look at the store says which steps it holds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import apsw
import msgspec

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import HoldfastError, Invalid, Unavailable
from holdfast.core.event import Event
from holdfast.core.job import Failure
from holdfast.core.lifecycle import Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, Request
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry

T = TypeVar("T")

STEP_SECONDS = 10.0
JOBS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "last")
OLD_JOBS = ("old", "older")
SPEC = Spec(
    payload=msgspec.Raw(b'"' + b"x" * 6_000 + b'"'),
    retry=Retry(max_failures=5, backoff=timedelta(0)),
)
TRANSIENT = Failure(message="the network hiccuped", code="TransientError")


@contextmanager
def small() -> Iterator[None]:
    """Checkpoint often, keep few pages and prune job by job: a short run has every kind of file call."""
    with (
        patch("holdfast.stores.sqlite.connection.CHECKPOINT_PAGES", 40),
        patch("holdfast.stores.sqlite.connection.CACHE_KIBIBYTES", 64),
        patch("holdfast.registry.prune.BATCH_ITEMS_MAX", 1),
    ):
        yield


class Workload:
    """The steps, what was answered to each (`acknowledged`, `no`, `unknown`), and what went wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, str] = {}
        self.troubles: list[str] = []
        self.messages: set[str] = set()
        self.registry: LocalRegistry | None = None
        self.told: Callable[[str, str], None] | None = None
        self._grants: dict[str, list[Grant]] = {}

    async def open(self) -> None:
        if self.registry is None:
            self.registry = await self._ask("open", lambda: open_registry(f"sqlite:///{self.path}"))

    async def run(self) -> None:
        """Do what has not been acknowledged yet, as far as what it builds on has."""
        await self.open()
        if self.registry is None:
            return
        registry = self.registry
        await self._step("enqueue-old", lambda: self._enqueue(*OLD_JOBS))
        await self._step("cancel-older", lambda: self._cancel("older"), after="enqueue-old")
        await self._step("cancel-old", lambda: self._cancel("old"), after="cancel-older")
        await self._step(
            "prune", lambda: registry.prune(older_than=timedelta(0)), after="cancel-old"
        )
        await self._step("enqueue", lambda: self._enqueue(*JOBS), after="prune")
        await self._step("claim", lambda: self._claim("claim", 4), after="enqueue")
        await self._step("heartbeat", self._heartbeat, after="claim")
        await self._step("publish", self._publish, after="claim")
        await self._step("complete", self._complete, after="claim")
        await self._step("retry", self._retry, after="claim")
        await self._step("cancel-last", lambda: self._cancel("last"), after="enqueue")
        await self._step("claim-again", lambda: self._claim("claim-again", 2), after="retry")
        await self._step("release", self._release, after="claim-again")
        await self._step("read", self._read, after="release")

    async def close(self) -> None:
        if self.registry is not None:
            registry, self.registry = self.registry, None
            await self._ask("close", registry.close)

    async def _step(
        self, name: str, call: Callable[[], Awaitable[object]], after: str | None = None
    ) -> None:
        ready = after is None or self.answers.get(after) == "acknowledged"
        if ready and self.answers.get(name) != "acknowledged":
            await self._ask(name, call)

    async def _ask(self, name: str, call: Callable[[], Awaitable[T]]) -> T | None:
        answer: T | None = None
        if self.told:
            self.told(name, "unknown")
        try:
            async with asyncio.timeout(STEP_SECONDS):
                answer = await call()
        except Unavailable as error:
            self.answers[name] = error.applied
            self.messages.add(error.message.replace(str(self.path), "PATH"))
        except TimeoutError:
            self.answers[name] = "unknown"
            self.troubles.append(f"{name} hung for {STEP_SECONDS:.0f} s")
        except HoldfastError as error:
            self.answers[name] = "no"
            if not (name == "open" and isinstance(error, Invalid)):
                self.troubles.append(f"{name} raised {type(error).__name__}: {error.message}")
        except Exception as error:
            self.answers[name] = "unknown"
            self.troubles.append(f"{name} let out {error!r}")
        else:
            self.answers[name] = "acknowledged"
        if self.told:
            self.told(name, self.answers[name])
        return answer

    @property
    def _open_registry(self) -> LocalRegistry:
        assert self.registry is not None
        return self.registry

    async def _enqueue(self, *job_ids: str) -> None:
        requests = [Request(spec=SPEC, job_id=job_id) for job_id in job_ids]
        await self._open_registry.enqueue_many(requests, actor="user:ana")

    async def _cancel(self, job_id: str) -> None:
        await self._open_registry.cancel(job_id, actor="user:ana", op_id=f"cancel-{job_id}")

    async def _claim(self, op_id: str, limit: int) -> None:
        self._grants[op_id] = await self._open_registry.claim(
            ["default"], owner="w-1", limit=limit, op_id=op_id
        )
        if len(self._grants[op_id]) != limit:
            self.troubles.append(f"{op_id} got {len(self._grants[op_id])} grants of {limit}")

    async def _heartbeat(self) -> None:
        await self._open_registry.heartbeat(self._grants["claim"][0], checkpoint="heartbeat")

    async def _publish(self) -> None:
        now = await self._open_registry.now()
        events = [
            Event(
                event_type=WorkerEventType.OUTPUT,
                event_class=EventClass.WORKER,
                occurred_at=now,
                sequence=n,
                stream="stdout",
                data=b"publish " * 500,
            )
            for n in (1, 2, 3)
        ]
        await self._open_registry.publish(self._grants["claim"][0], events)

    async def _complete(self) -> None:
        await self._open_registry.complete(
            self._grants["claim"][1], Success(result={"said": "x" * 5_000}), op_id="complete"
        )

    async def _retry(self) -> None:
        await self._open_registry.complete(self._grants["claim"][2], TRANSIENT, op_id="retry")

    async def _release(self) -> None:
        await self._open_registry.release(self._grants["claim-again"][1], op_id="release")

    async def _read(self) -> None:
        """A look at the store is right, or refused."""
        self.troubles += differences(self.answers, await holds(self._open_registry))


STEPS = (
    "enqueue-old",
    "cancel-older",
    "cancel-old",
    "prune",
    "enqueue",
    "claim",
    "heartbeat",
    "publish",
    "complete",
    "retry",
    "cancel-last",
    "claim-again",
    "release",
)
"""The steps that write, in order."""


async def holds(registry: LocalRegistry) -> set[str]:
    """The steps this store holds. One held in part shows as its name and what is there of it."""
    jobs = {job.job_id: job for job in (await registry.list_jobs(limit=1000)).jobs}
    held: set[str] = set()
    for job_id in jobs:
        held |= {event.op_id for event in await registry.history(job_id) if event.op_id}
    held &= set(STEPS)
    for step, made in (("enqueue", JOBS), ("enqueue-old", OLD_JOBS)):
        there = [job_id for job_id in made if job_id in jobs]
        if there:
            held.add(step if len(there) == len(made) else f"{step} in part: {there}")
    first = jobs.get(JOBS[0])
    if first and first.checkpoint == "heartbeat":
        held.add("heartbeat")
    if first and first.published:
        lines = [e for e in (await registry.log(JOBS[0])).events if e.data]
        held.add("publish" if len(lines) == 3 else f"publish in part: {len(lines)}")
    return held


def differences(answers: dict[str, str], held: set[str]) -> list[str]:
    """Where what was answered and what is there contradict each other."""
    old = {step for step in held if "-old" in step}
    pruned = answers.get("prune", "no")
    asked = answers if pruned == "no" else {s: a for s, a in answers.items() if "-old" not in s}
    found = [step for step in sorted(held - old) if " in part" in step]
    if old and pruned == "acknowledged":
        found.append(f"prune was acknowledged, but there is {sorted(old)}")
    for step in STEPS:
        if asked.get(step) == "acknowledged" and step not in {*held, "prune"}:
            found.append(f"{step} was acknowledged, but is not there")
        if asked.get(step) == "no" and step in held:
            found.append(f"{step} was said not to be applied, but is there")
    if pruned == "no" and any(" in part" in step for step in old):
        found.append(f"nothing was said to be pruned, but there is {sorted(old)}")
    return found


async def contradictions(path: Path, answers: dict[str, str]) -> list[str]:
    """Open the file as if anew: what is wrong with it, and with what was answered about it."""
    found: list[str] = []
    try:
        registry = await open_registry(f"sqlite:///{path}")
        try:
            found += differences(answers, await holds(registry))
            verification = await registry.verify()
            if not verification.equal:
                found.append(f"log and state differ: {verification.mismatches}")
        finally:
            await registry.close()
    except Exception as error:  # whatever it is, this store cannot be used
        found.append(f"the store cannot be used: {error!r}")
    connection = apsw.Connection(str(path))
    try:
        if (answer := connection.pragma("integrity_check")) != "ok":
            found.append(f"integrity_check: {answer}")
    except apsw.Error as error:
        found.append(f"integrity_check: {error!r}")
    finally:
        connection.close()
    return found
