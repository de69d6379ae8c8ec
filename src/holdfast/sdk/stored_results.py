"""Results that are not in the record of their job: read from the output store, or from the job's log."""

from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.errors import Conflict, Corrupt, HoldfastError, NotFound
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.outputs.lazy import LazyOutputs
from holdfast.ports import Registry
from holdfast.runner.stored_result import EVENT, IN_LOG, IN_OUTPUTS, TOO_LARGE, StoredResult

_PAGE = 50  # events of up to 64 kB each


class ResultAway(Conflict):
    """The job has succeeded, and this process cannot read its result."""

    advice = "Read the result where its store can be reached."


async def with_stored_result(job: Job, registry: Registry, outputs: LazyOutputs) -> Job:
    """Return the job with its result, if that is stored elsewhere."""
    result = job.result
    if not (isinstance(result, dict) and len(result) == 1):
        return job
    ((name, form),) = result.items()
    if name == TOO_LARGE:
        raise ResultAway(
            f"The result of job {job.job_id} has {form['bytes']:,} bytes: too many for its record and log,"
            " and its worker had no output store. Give the worker one, by HOLDFAST_OUTPUTS.",
            job_id=job.job_id,
        )
    if name not in (IN_OUTPUTS, IN_LOG):
        return job
    try:
        stored = msgspec.convert(form, StoredResult)
    except msgspec.ValidationError:
        return job  # a result of the handler's own, which only looks like ours
    if stored.path is not None and not stored.path.startswith(f"returned/{job.job_id}/"):
        return job  # no result names the file of another job
    document = await (_from_outputs if name == IN_OUTPUTS else _from_log)(job, stored, registry, outputs)
    if sha256(document).hexdigest() != stored.sha256:
        raise Corrupt(f"The stored result of job {job.job_id} is damaged.", job_id=job.job_id)
    return replace(job, result=msgspec.json.decode(document))


async def _from_outputs(job: Job, stored: StoredResult, _: Registry, outputs: LazyOutputs) -> bytes:
    path = stored.path or ""
    where = f"The result of job {job.job_id} ({stored.bytes:,} bytes) is in the output store {stored.place}"
    try:
        store = await outputs.get()
    except HoldfastError as error:
        raise ResultAway(
            f"{where}; that of this process (HOLDFAST_OUTPUTS, outputs=) cannot be opened: {error.message}",
            job_id=job.job_id,
        ) from error
    if store is None or store.store_id != stored.store:
        has = "has none" if store is None else f"has {store.place}"
        raise ResultAway(
            f"{where} as {stored.path}, and this process {has}. Give it the same one, by HOLDFAST_OUTPUTS or"
            " outputs=.",
            job_id=job.job_id,
        )
    document = await store.get(path)
    if document is None:
        raise NotFound(f"{where}, and {path} is not there any more.", job_id=job.job_id)
    return document


async def _from_log(job: Job, stored: StoredResult, registry: Registry, _: LazyOutputs) -> bytes:
    parts: dict[int, str] = {}
    cursor: str | None = None
    while True:
        page = await registry.logs(job.job_id, after=cursor, limit=_PAGE)
        for event in page.events:
            if (part := _part(event, stored)) is not None:
                parts[part["part"]] = part["text"]
        cursor = page.cursor
        if not page.events:
            break
    if len(parts) != stored.parts:
        raise NotFound(
            f"The result of job {job.job_id} ({stored.bytes:,} bytes) is not in its log any more.",
            job_id=job.job_id,
        )
    return "".join(parts[number] for number in sorted(parts)).encode()


def _part(event: Event, stored: StoredResult) -> dict[str, Any] | None:
    """Return the part of the result that an event has, if it has one."""
    if event.event_type != WorkerEventType.CUSTOM or event.attributes.get("name") != EVENT:
        return None
    data = event.attributes.get("data")
    return data if isinstance(data, dict) and data.get("sha256") == stored.sha256 else None
