"""Scenarios that pass every failpoint of a real process, and the workers that finish what is left.

Each scenario runs in a process of its own on a file of its own, up to the failpoint that kills it.
"""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import msgspec

from holdfast.core.job import Failure, Job, Progress
from holdfast.core.lifecycle import Success
from holdfast.core.outputs import File, OutputPromise
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, State
from holdfast.outputs.lazy import LazyOutputs
from holdfast.outputs.validator import Validator
from holdfast.ports import Grant, JobFilter, JobRequest, Registry
from holdfast.runner import RUNNER_ARGV
from holdfast.sdk.backup import backup, restore
from holdfast.sdk.open import open_registry
from holdfast.system import SystemClock, SystemIds, machine_name
from holdfast.worker import expiry
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.command_executor import CommandExecutor
from holdfast.worker.function_executor import FunctionExecutor
from holdfast.worker.processes import Processes
from holdfast.worker.recovery import recover
from holdfast.worker.spool import FileSpool
from holdfast.worker.validation import WorkerValidation
from holdfast.worker.worker import Worker
from tests import ROOT
from tests.load.claimer_process import ACTOR, LEASE, RETRY, Acknowledged, Task, enqueue, publish, record

expiry.EXPIRE_SECONDS = 0.2  # so that a busy worker sweeps within a scenario

PATIENCE_SECONDS = 30.0
HELD, LONG = timedelta(seconds=3), timedelta(seconds=60)
QUICK = "echo $$ >>pids; echo hello"
SLOW = "echo $$ >>pids; echo hello; sleep 1.4"


async def life(task: Task) -> None:
    """Make a file, and let jobs live and be pruned in it by every verb."""
    acknowledged = Acknowledged(task)
    registry = await open_registry(task.url)
    await enqueue(registry, acknowledged, "a", lock="disk")
    await enqueue(registry, acknowledged, "b", "c", "d", "e", "f", "g")
    await enqueue(registry, acknowledged, "h", "i", lock="disk")
    await record(registry, acknowledged, "fact")
    grants = await claim(registry, acknowledged, 4)
    await asyncio.gather(*(attempt(registry, acknowledged, grant) for grant in grants))
    acknowledged.done(await registry.cancel("g", actor=ACTOR))
    await asyncio.gather(*(enqueue(registry, acknowledged, name) for name in ("j", "k", "l")))
    await registry.expire()
    await prune(registry, acknowledged)
    await enqueue(registry, acknowledged, "m")
    acknowledged.done(await registry.enqueue(JobRequest(spec=Spec(retry=RETRY)), actor=ACTOR))
    for grant in await claim(registry, acknowledged, 3):
        acknowledged.done(await registry.heartbeat(grant))
    await registry.close()


async def claim(
    registry: Registry, acknowledged: Acknowledged, limit: int, lease: timedelta = HELD
) -> list[Grant]:
    grants = await registry.claim(["default"], owner="w", limit=limit, lease=lease)
    for grant in grants:
        acknowledged.add("claimed", grant.job_id, grant.fencing_token)
    return grants


async def attempt(registry: Registry, acknowledged: Acknowledged, grant: Grant) -> None:
    acknowledged.done(await registry.heartbeat(grant))
    await registry.heartbeat(grant, progress=Progress(done=1, total=2))
    await publish(registry, acknowledged, grant)
    if grant.job_id == "b":
        job = await registry.release(grant, reason="somebody else may have it")
    elif grant.job_id == "c":
        job = await registry.complete(grant, Failure(message="it hiccuped", code="TransientError"))
    else:
        job = await registry.complete(grant, Success())
    acknowledged.done(job)


async def prune(registry: Registry, acknowledged: Acknowledged) -> None:
    acknowledged.add("pruning")
    await registry.prune(older_than=timedelta(), output_older_than=timedelta(days=1))
    acknowledged.add("pruned")


class Reports:
    """Acknowledges what a worker says has ended."""

    def __init__(self, acknowledged: Acknowledged) -> None:
        self._acknowledged = acknowledged

    def started(self, grant: Grant) -> None:
        self._acknowledged.add("claimed", grant.job_id, grant.fencing_token)

    def ended(self, job: Job, seconds: float) -> None:
        self._acknowledged.done(job)

    def lost(self, grant: Grant, why: str) -> None:
        self._acknowledged.add("gave_up", grant.job_id)

    def trouble(self, why: str) -> None:
        raise AssertionError(why)

    def paused(self, seconds: float, why: str) -> None: ...

    def resumed(self) -> None: ...


async def commands(task: Task) -> None:
    """Submit commands and run them, in groups of processes under a supervisor."""
    acknowledged = Acknowledged(task)
    registry = await open_registry(task.url)
    for name, script in (("quick", QUICK), ("slow", SLOW), ("late", SLOW)):
        await enqueue(registry, acknowledged, name, payload=shell(task, script))
    pids = OutputPromise(files=(File("pids"),))
    await enqueue(registry, acknowledged, "leaves", payload=shell(task, QUICK), outputs=pids)
    await enqueue(registry, acknowledged, "add", kind="add", payload=msgspec.Raw(b'{"a":1,"b":2}'))
    await enqueue(registry, acknowledged, "shout", kind="shout", payload=msgspec.Raw(b"{}"))
    await run(task, registry, acknowledged)
    await registry.close()


def shell(task: Task, script: str) -> msgspec.Raw:
    return encode_process_spec(ProcessSpec(argv=("sh", "-c", script), cwd=task.folder))


async def run(task: Task, registry: Registry, acknowledged: Acknowledged) -> None:
    settings = WorkerSettings(owner="w", slots=2, lease=LEASE, drain=True)
    clock, ids = SystemClock(), SystemIds()
    root = Path(task.folder) / "spool"
    spool = FileSpool(root, ids.new())
    spool.set_store(task.url)
    processes = Processes(clock, inherited=[spool.lock])
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    functions = FunctionExecutor(
        processes,
        "tests.load.failpoint_app:app",
        runner_argv=RUNNER_ARGV,
        slots=2,
        env=env,
        url=task.url,
    )
    await functions.load()
    reports = Reports(acknowledged)
    worker = Worker(
        registry,
        settings,
        reports,
        clock=clock,
        ids=ids,
        executors=[CommandExecutor(processes, own=os.environ), functions],
        spool=spool,
        validation=WorkerValidation(
            registry,
            LazyOutputs(),
            reports,
            clock=clock,
            ids=ids,
            machine=machine_name(),
            name="w",
        ),
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        await recover(root, task.url, registry, clock=clock, ids=ids)
        await worker.run()
        validator = Validator(registry, None, machine=machine_name(), name="w")  # the one that died
        await judge(registry, acknowledged, validator)
    await processes.close()
    spool.close()


async def judge(registry: Registry, acknowledged: Acknowledged, validator: Validator) -> None:
    """Look for the outputs of what a dead worker has left, without waiting for it to look."""
    for job in (await registry.list_jobs(JobFilter(states=(State.VALIDATING,)))).jobs:
        acknowledged.done(await validator.validate(job))


async def safekeeping(task: Task) -> None:
    """Back a store up, and restore it over itself."""
    acknowledged = Acknowledged(task)
    registry = await open_registry(task.url)
    await enqueue(registry, acknowledged, "a", lock="disk")
    await enqueue(registry, acknowledged, "b", "c", "d")
    grant, *_ = await claim(registry, acknowledged, 3)
    await publish(registry, acknowledged, grant)
    acknowledged.done(await registry.complete(grant, Success()))
    await registry.close()
    copy = Path(task.folder) / "backup.db"
    await backup(task.url, copy)
    acknowledged.add("backed_up")
    await restore(copy, task.url, force=True)
    acknowledged.add("restored")


async def finish_life(task: Task) -> None:
    """Add a job, and do all that is left to do, as soon as it may be had."""
    acknowledged = Acknowledged(task)
    registry = await open_registry(task.url)
    await enqueue(registry, acknowledged, "heir")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while set(await registry.counts()) - ENDED:
            mark = registry.change_mark()
            grants = await claim(registry, acknowledged, 10, LONG)
            for grant in grants:
                acknowledged.done(await registry.complete(grant, Success()))
            if not grants:
                await registry.changes(since=mark, timeout=0.1)
    await registry.close()


async def finish_commands(task: Task) -> None:
    acknowledged = Acknowledged(task)
    registry = await open_registry(task.url)
    await enqueue(registry, acknowledged, "heir", payload=shell(task, QUICK))
    await run(task, registry, acknowledged)
    await registry.close()


async def finish_safekeeping(task: Task) -> None:
    """Restore again, from the backup if it was acknowledged; then do what is left."""
    folder = Path(task.folder)
    copy = folder / "backup.db"
    if "backed_up" not in (folder / "acknowledged").read_text(encoding="ascii").split():
        copy = folder / "again.db"
        await backup(task.url, copy)
    await restore(copy, task.url, force=True)
    Acknowledged(task).add("restored")
    await finish_life(task)
