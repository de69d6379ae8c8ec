"""The stubborn owner: it claims jobs, works on them and ends them, and never checks its lease.

Like a naive worker in another language it uses the verbs only, looks at no clock and goes on whatever it
is told. It runs in a process group of its own, so that it can be frozen at any instant. This module is
also the process that forks them: each line on stdin is a `Task`, answered by a pid.
"""

import asyncio
import ctypes
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.core.catalogue import EventClass, ReasonCode, WorkerEventType
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Failure, Progress
from holdfast.core.lifecycle import Outcome, Stopped, Success
from holdfast.ports import Grant, Registry
from holdfast.sdk.open import open_registry
from verify.zombie_record import DONE, GRANTED, UNAVAILABLE, WRITE, Act, Record
from verify.zombie_resources import LEDGERS, Careful, open_resources

QUEUE = "zombies"
LEASE = timedelta(seconds=1)
"""The shortest there is."""
IDLE_SECONDS = 0.1
TRIES_MAX = 50
_SET_DEATH_SIGNAL = 1


class Task(Struct, frozen=True, kw_only=True):
    """What an owner is to do, until the file `stop` is there. Without `check`, its ledger is broken."""

    name: str
    store: str
    resources: str
    record: str
    stop: str
    seed: int
    check: bool = True


def endings(grant: Grant, who: str) -> dict[str, Outcome]:
    """Every way to end a job, in the order in which the owner tries them."""
    return {
        "success": Success(result={"token": grant.fencing_token, "who": who}),
        "failure": Failure(message="the owner says that it failed"),
        "timeout": Failure(
            message="the owner says that it took too long",
            code="TimeUp",
            retryable=False,
            reason_code=ReasonCode.TIMEOUT,
        ),
        "cancelled": Stopped(reason="the owner says that it was told to stop"),
    }


class Owner:
    def __init__(self, task: Task, registry: Registry, ledgers: Careful) -> None:
        self._task = task
        self._registry = registry
        self._ledgers = ledgers
        self._record = Record(Path(task.record))
        self._chance = random.Random(f"{task.seed} {task.name}")
        self._numbers = count(1)

    async def run(self) -> None:
        while not self._is_over():
            began = time.monotonic()
            try:
                grants = await self._registry.claim([QUEUE], owner=self._task.name, lease=LEASE)
            except HoldfastError:  # the store was away; there is nothing to lose
                grants = []
            for grant in grants:
                self._note(GRANTED, grant, began)
                await self._work(grant)
            if not grants:
                await asyncio.sleep(IDLE_SECONDS)

    def _is_over(self) -> bool:
        return Path(self._task.stop).exists()

    async def _work(self, grant: Grant) -> None:
        await asyncio.sleep(self._chance.uniform(0, 0.15))
        for done in range(1, self._chance.randint(2, 4)):
            await self._write(grant)
            await self._report(grant, done)
            await asyncio.sleep(self._chance.uniform(0.05, 0.25))
        await self._write(grant)
        await self._end(grant)

    async def _write(self, grant: Grant) -> None:
        """The side effect."""
        for ledger in LEDGERS:

            async def write(who: str, ledger: str = ledger) -> None:
                await self._ledgers.write(ledger, grant, who)

            await self._try(WRITE, grant, write, form=ledger)

    async def _report(self, grant: Grant, done: int) -> None:
        line = Event(
            event_type=WorkerEventType.OUTPUT,
            event_class=EventClass.WORKER,
            occurred_at=datetime.now(UTC),
            sequence=done,
            stream="stdout",
            data=f"{self._task.name} has done {done}\n".encode(),
        )
        progress = Progress(done, 4)
        await self._try("heartbeat", grant, lambda _: self._registry.heartbeat(grant, progress=progress))
        await self._try("publish", grant, lambda _: self._registry.publish(grant, [line]))

    async def _end(self, grant: Grant) -> None:
        """End it as a success; told that this is not his to do, in any other way there is."""
        for form, outcome in endings(grant, self._task.name).items():

            async def complete(_: str, form: str = form, outcome: Outcome = outcome) -> None:
                op_id = f"{grant.job_id}-{grant.fencing_token}-{form}"
                await self._registry.complete(grant, outcome, op_id=op_id)

            if await self._try("complete", grant, complete, form=form):
                return
        await self._try("aggregate", grant, lambda _: self._registry.aggregate(grant))
        await self._try("release", grant, lambda _: self._registry.release(grant))

    async def _try(
        self, verb: str, grant: Grant, call: Callable[[str], Awaitable[object]], form: str = ""
    ) -> bool:
        """Whether it was done. While the other side is away, the same again."""
        for _ in range(TRIES_MAX):
            number, began = next(self._numbers), time.monotonic()
            answer = DONE
            try:
                await call(f"{self._task.name}#{number}")
            except HoldfastError as error:
                answer = type(error).__name__
            self._note(verb, grant, began, answer, form, number)
            if answer != UNAVAILABLE:
                return answer == DONE
            await asyncio.sleep(IDLE_SECONDS)
        raise RuntimeError(f"{verb}: nobody answered {TRIES_MAX} times")

    def _note(
        self,
        verb: str,
        grant: Grant,
        began: float,
        answer: str = DONE,
        form: str = "",
        number: int = 0,
    ) -> None:
        act = Act(
            who=self._task.name,
            verb=verb,
            began=began,
            ended=time.monotonic(),
            job=grant.job_id,
            token=grant.fencing_token,
            answer=answer,
            form=form,
            number=number,
        )
        self._record.write(act)


async def work(task: Task) -> None:
    registry = await open_registry(task.store)
    resources = open_resources(task.resources, check=task.check)
    await Owner(task, registry, Careful(resources, registry)).run()
    await resources.close()
    await registry.close()


def _child(task: Task, parent: int) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we could ask to die with it
        os._exit(1)
    with open(os.devnull, "r+b") as nothing:  # the pipes are the parent's, not ours to hold open
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    status = 1
    try:
        asyncio.run(work(task))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getpid()
    for line in sys.stdin:
        task = msgspec.json.decode(line, type=Task)
        if (pid := os.fork()) == 0:
            _child(task, parent)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
