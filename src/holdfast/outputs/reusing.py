"""Reusing: whether everything that a new job promises is there before it has begun."""

from pathlib import Path

from msgspec.structs import replace

from holdfast.core.command import decode_command
from holdfast.core.errors import Corrupt, Invalid, NotFound
from holdfast.core.limits import ID_CHARACTERS_MAX
from holdfast.core.naming import derived_id
from holdfast.core.outputs import Found, Promise
from holdfast.core.spec import COMMAND_KIND, Spec
from holdfast.outputs.examining import Examination, Unseen, elsewhere
from holdfast.outputs.family import Family
from holdfast.ports import Outputs, Request

_PREFIX = "cached-"


async def reusable(
    spec: Spec, outputs: Outputs | None, *, machine: str | None, job_id: str, asked: bool
) -> Found | None:
    """What was found, if that is everything, and None otherwise: also when we cannot see it. `Invalid`
    when the manifest is not in the output store, which nobody could ever judge the job by.

    Addressed outputs say what they were made from. Managed ones never do: only a job's own completion
    makes them count. Plain ones do by their checksum, or when somebody says so (`asked`)."""
    promise = spec.outputs
    if promise is None or promise.names or elsewhere(promise, outputs) is not None:
        return None
    family = _here(spec, promise, machine, asked=asked)
    if family is None:
        return None
    examination = Examination(outputs, machine=machine, job_id=job_id, promise=promise)
    try:
        examined = await examination.examine(family, tell=lambda _: None, whole=True)
    except Unseen as error:
        if isinstance(error.__cause__, NotFound):
            raise Invalid(f"There is no such manifest: {error} Keep it first.") from error
        if isinstance(error.__cause__, Corrupt):
            raise error.__cause__ from error
        return None
    if examined is None:
        return None
    return replace(examined.found, reused=examined.found.verified)


def _here(spec: Spec, promise: Promise, machine: str | None, *, asked: bool) -> Family | None:
    """Where the files would be, or None when they do not count."""
    if not promise.files:
        return Family()
    known = asked or all(file.sha256 is not None for file in promise.files)
    if not known or machine is None or spec.kind != COMMAND_KIND:
        return None
    folder = decode_command(spec.payload).cwd
    if folder is None or not Path(folder).is_absolute():
        return None
    return Family(places=(f"{machine}:{folder}",))


def cached_id(job_id: str) -> str:
    """The id of the job that says that what this one would make is there already: a name of the same
    queue, so that no key of another can take it."""
    queue, colon, name = job_id.rpartition(":")
    whole = f"{queue}{colon}{_PREFIX}{name}"
    return whole if len(whole) <= ID_CHARACTERS_MAX else _PREFIX + derived_id(job_id, "cached")


def asked_id(request: Request) -> str | None:
    """The id of the job that the request names, if it names one."""
    if request.job_id is not None or request.request_id is None:
        return request.job_id
    return derived_id(request.spec.queue, request.request_id)
