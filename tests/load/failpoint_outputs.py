"""A scenario with outputs: a job that leaves some by name and some of a study, and its validator."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.core.lifecycle import Success
from holdfast.core.manifest import encode_task, study
from holdfast.core.outputs import OutputPromise
from holdfast.core.state import ENDED, State
from holdfast.outputs.managed import commit
from holdfast.outputs.manifests import read_tasks, store_manifest
from holdfast.outputs.results import ResultAuthor, Results
from holdfast.outputs.url import open_outputs
from holdfast.outputs.validator import Validator
from holdfast.ports import Grant, Outputs, Registry
from holdfast.sdk.open import open_registry
from tests.load.claimer_process import LEASE, Acknowledged, Task, enqueue
from tests.load.failpoint_process import PATIENCE_SECONDS, claim, judge

NAME = "model.bin"
BUNDLE = "sha256:" + "ef" * 32


async def outputs(task: Task) -> None:
    """Promise outputs, leave them, and judge the job."""
    acknowledged, store = Acknowledged(task), await _store(task)
    registry = await open_registry(task.url)
    manifest, entries = await store_manifest(store, _lines())
    promise = OutputPromise(names=(NAME,), manifest=manifest, entries=entries, store=store.store_id)
    await enqueue(registry, acknowledged, "study", outputs=promise)
    await _do(task, registry, acknowledged, store)
    await registry.close()


async def finish_outputs(task: Task) -> None:
    """Do what is left as soon as it may be had: each job has all that it promised in the end."""
    acknowledged, store = Acknowledged(task), await _store(task)
    registry = await open_registry(task.url)
    await enqueue(registry, acknowledged, "heir")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while set(await registry.counts()) - ENDED:
            mark = registry.change_mark()
            if not await _do(task, registry, acknowledged, store):
                await registry.changes(since=mark, timeout=0.1)
    for job in (await registry.list_jobs()).jobs:
        assert job.state is State.SUCCEEDED, job
        assert job.spec.promised_outputs == (job.found.verified if job.found else 0), job
    await registry.close()


async def _do(task: Task, registry: Registry, acknowledged: Acknowledged, store: Outputs) -> bool:
    """Whether there was anything to do."""
    grants = await claim(registry, acknowledged, 10, LEASE)
    for grant in grants:
        acknowledged.done(await registry.heartbeat(grant))
        if grant.job.spec.outputs is not None:
            await _leave(task, store, grant)
        acknowledged.done(await registry.complete(grant, Success()))
    validator = Validator(registry, store, machine=None, name="v")
    await judge(registry, acknowledged, validator)
    return bool(grants)


async def _leave(task: Task, store: Outputs, grant: Grant) -> None:
    """What the job has promised: its file anew, and those results that are not there yet."""
    promise = grant.job.spec.outputs
    assert promise is not None
    await commit(store, grant.job_id, grant.fencing_token, NAME, _draft(task))
    results = Results(store)
    async for one in read_tasks(store, promise.manifest or ""):
        if await results.get(one) is None:
            writer = ResultAuthor(grant.job_id, grant.fencing_token)
            await results.put(one, {"a.csv": b"1"}, writer=writer)


def _draft(task: Task) -> Path:
    draft = Path(task.folder, "draft")
    draft.write_bytes(b"weights")
    return draft


async def _store(task: Task) -> Outputs:
    return await open_outputs(f"{task.folder}/outputs", create=True)


async def _lines() -> AsyncIterator[bytes]:
    for one in study(bundle=BUNDLE, entrypoint="a:b", parameter_sets=[{"n": 1}], replicates=3):
        yield encode_task(one)
