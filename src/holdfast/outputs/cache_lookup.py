"""The lookup before a job is made: are all the outputs that it promises there already?"""

from pathlib import Path

from msgspec.structs import replace

from holdfast.core.derived_ids import derived_id
from holdfast.core.errors import Corrupt, Invalid, NotFound
from holdfast.core.limits import ID_CHARACTERS_MAX
from holdfast.core.outputs import OutputPromise, ValidationResult
from holdfast.core.process_spec import decode_process_spec
from holdfast.core.spec import COMMAND_KIND, Spec
from holdfast.outputs.resume_chain import ResumeChain
from holdfast.outputs.scan import OutputScan, ScanFailed, store_mismatch
from holdfast.ports import JobRequest, Outputs

_PREFIX = "cached-"


async def find_cached(
    spec: Spec, outputs: Outputs | None, *, machine: str | None, job_id: str, reuse: bool
) -> ValidationResult | None:
    """Return the result of the scan if all promised outputs are there; None if not, or if they cannot be
    seen. Raise `Invalid` if the manifest is not in the output store: the job could never be validated.

    An addressed output says what it was made from. A managed one never does: only the completion of its
    own job makes it count. A plain one counts by its checksum, or if the caller says so (`reuse`)."""
    promise = spec.outputs
    if promise is None or promise.names or store_mismatch(promise, outputs) is not None:
        return None
    family = _places(spec, promise, machine, asked=reuse)
    if family is None:
        return None
    scan = OutputScan(outputs, machine=machine, job_id=job_id, promise=promise)
    try:
        result = await scan.run(family, on_progress=lambda _: None, stop_at_first_missing=True)
    except ScanFailed as error:
        if isinstance(error.__cause__, NotFound):
            raise Invalid(f"There is no such manifest: {error} Store it first.") from error
        if isinstance(error.__cause__, Corrupt):
            raise error.__cause__ from error
        return None
    if result is None:
        return None
    return replace(result.found, reused=result.found.verified)


def _places(spec: Spec, promise: OutputPromise, machine: str | None, *, asked: bool) -> ResumeChain | None:
    """Return where the files would be, or None if files there do not count."""
    if not promise.files:
        return ResumeChain()
    known = asked or all(file.sha256 is not None for file in promise.files)
    if not known or machine is None or spec.kind != COMMAND_KIND:
        return None
    folder = decode_process_spec(spec.payload).cwd
    if folder is None or not Path(folder).is_absolute():
        return None
    return ResumeChain(places=(f"{machine}:{folder}",))


def cached_id(job_id: str) -> str:
    """Return the id of the job that records that the outputs of `job_id` are there already. It belongs to
    the same queue, so that no API key of another queue can take it."""
    queue, colon, name = job_id.rpartition(":")
    whole = f"{queue}{colon}{_PREFIX}{name}"
    return whole if len(whole) <= ID_CHARACTERS_MAX else _PREFIX + derived_id(job_id, "cached")


def requested_id(request: JobRequest) -> str | None:
    if request.job_id is not None or request.request_id is None:
        return request.job_id
    return derived_id(request.spec.queue, request.request_id)
