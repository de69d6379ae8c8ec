"""The load under a power cut: a process that writes as fast as it can, and tells what was acknowledged.

Every acknowledgement is one line on a pipe, written after the registry has answered, to somebody whose
memory is not on the disk that is cut.
"""

import asyncio
import os
import random
import select
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import apsw
import msgspec
from msgspec import Struct

from holdfast.core.catalogue import EventClass, WorkerEventType
from holdfast.core.errors import Conflict, HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import Success
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest, Registry
from holdfast.sdk.open import open_registry
from holdfast.stores.sqlite import connection as settings

SPEC = Spec(
    payload=msgspec.Raw(b'"' + b"x" * 500 + b'"'),
    retry=Retry(max_failures=5, backoff=timedelta(0)),
)
TRANSIENT = Failure(message="the network hiccuped", code="TransientError")
SUBMITTERS, WORKERS = 2, 3
LOAD_SECONDS_MAX = 20.0


class Line(Struct, frozen=True, array_like=True):
    """What was acknowledged: a job's version and state, or (`token`) a published line or a heartbeat.

    `kind` is `opened`, `job`, `line`, `beat`; or `trouble` or `crash`, with what happened in `job_id`.
    """

    kind: str
    job_id: str = ""
    number: int = 0
    state: str = ""
    token: int = 0


class Listener:
    """The end of the pipe that is not on the disk."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._rest = b""

    def hear(self, seconds: float) -> list[Line]:
        """What is told within this time; less when nobody is left to tell anything."""
        until = time.monotonic() + seconds
        told = [self._rest]
        while select.select([self._pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            told.append(os.read(self._pipe, 1 << 20))
            if not told[-1] or time.monotonic() > until:
                break
        *lines, self._rest = b"".join(told).split(b"\n")
        return [msgspec.json.decode(line, type=Line) for line in lines]


def fork(path: Path, name: str, pipe: int, *, synchronous: str, checkpoint_pages: int) -> int:
    """The pid of a new process under load, which is to be killed.

    What the store refuses it tells as `trouble`, and waits for its end; whatever else goes wrong it
    tells as a `crash`, and ends by itself. It never returns into the caller's code.
    """
    assert threading.active_count() == 1, "a fork keeps one thread, and the locks of all"
    pid = os.fork()
    if pid:
        return pid
    try:
        _set(synchronous, checkpoint_pages)
        asyncio.run(_load(path, name, lambda line: _write(pipe, line)))
        time.sleep(LOAD_SECONDS_MAX)
        _write(pipe, Line("crash", "it was not killed"))
    except BaseException as error:
        _write(pipe, Line("crash", repr(error)))
    finally:
        os._exit(1)


def end(pids: list[int]) -> list[str]:
    """Kill these; what is wrong with those who were not there any more to be killed."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    return [
        f"a process of the load ended by itself, with {os.waitstatus_to_exitcode(status)}"
        for status in statuses
        if status != signal.SIGKILL
    ]


def _set(synchronous: str, checkpoint_pages: int) -> None:
    """The harness's own switches: for this process, whatever the store itself asks for."""
    settings.CHECKPOINT_PAGES = checkpoint_pages
    prepare = settings._prepare

    def prepare_differently(connection: apsw.Connection) -> None:
        prepare(connection)
        connection.pragma("synchronous", synchronous)

    if synchronous != "FULL":
        settings._prepare = prepare_differently


def _write(pipe: int, line: Line) -> None:
    os.write(pipe, msgspec.json.encode(line) + b"\n")


async def _load(path: Path, name: str, tell: Callable[[Line], None]) -> None:
    try:
        async with asyncio.timeout(LOAD_SECONDS_MAX):
            registry = await open_registry(f"sqlite:///{path}")
            tell(Line("opened"))
            async with asyncio.TaskGroup() as group:
                for n in range(SUBMITTERS):
                    group.create_task(_submit(registry, random.Random(f"{name}-{n}"), tell))
                for n in range(WORKERS):
                    group.create_task(_work(registry, f"{name}-w{n}", tell))
    except* HoldfastError as errors:
        tell(Line("trouble", repr(errors.exceptions[0])))


async def _submit(registry: Registry, chance: random.Random, tell: Callable[[Line], None]) -> None:
    while True:
        requests = [JobRequest(spec=SPEC)] * chance.choice((1, 1, 5))
        jobs = await registry.enqueue_many(requests, actor="user:ana")
        for job in jobs:
            tell(job_line(job))
        if chance.random() < 0.2:
            try:
                tell(job_line(await registry.cancel(jobs[0].job_id, actor="user:ana", hard=True)))
            except Conflict:
                continue  # it has ended meanwhile


async def _work(registry: Registry, owner: str, tell: Callable[[Line], None]) -> None:
    chance = random.Random(owner)
    while True:
        for grant in await registry.claim(["default"], owner=owner, limit=2):
            tell(job_line(grant.job))
            try:
                await _attempt(registry, grant, chance, tell)
            except HoldfastError as error:
                if (await registry.status(grant.job_id)).state != "cancelled":
                    raise error


async def _attempt(
    registry: Registry, grant: Grant, chance: random.Random, tell: Callable[[Line], None]
) -> None:
    token = grant.fencing_token
    tell(job_line(await registry.heartbeat(grant)))
    await registry.heartbeat(grant, checkpoint=1)
    tell(Line("beat", grant.job_id, 1, token=token))
    await registry.publish(grant, [_output(await registry.now())])
    tell(Line("line", grant.job_id, 1, token=token))
    draw = chance.random()
    if draw < 0.1:
        tell(job_line(await registry.complete(grant, TRANSIENT)))
    elif draw < 0.2:
        tell(job_line(await registry.release(grant)))
    else:
        tell(job_line(await registry.complete(grant, Success())))


def _output(now: object) -> Event:
    return Event(
        event_type=WorkerEventType.OUTPUT,
        event_class=EventClass.WORKER,
        occurred_at=now,  # type: ignore[arg-type]
        sequence=1,
        stream="stdout",
        data=b"working " * 20,
    )


def job_line(job: Job) -> Line:
    return Line("job", job.job_id, job.version, job.state)
