"""A result that is too large for the record of its job: the output store has it, or else the job's log."""

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from holdfast.core.catalogue import WorkerEventType
from holdfast.core.errors import HoldfastError, Invalid
from holdfast.core.limits import ATTRIBUTES_BYTES_MAX, RESULT_BYTES_MAX
from holdfast.core.spec import Json, check_json

if TYPE_CHECKING:
    from holdfast.runner.context import Context

IN_OUTPUTS = "holdfast:stored"
IN_LOG = "holdfast:logged"
TOO_LARGE = "holdfast:too_large"
EVENT = "holdfast.result"
"""The name of the events that have the parts of a result."""
LOGGED_BYTES_MAX = 64 * 1024 * 1024
"""The largest result that goes to the log."""
PART_BYTES_MAX = ATTRIBUTES_BYTES_MAX - 1024
_BEGINNING = 200


class StoredResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a result of so many `bytes` is: the object `path` of the output store `store`, whose address is
    `place`, or `parts` events of the job's log."""

    bytes: int
    sha256: str
    path: str | None = None
    store: str | None = None
    place: str | None = None
    parts: int | None = None


def where_stored(result: Json) -> str | None:
    """Return where a result is that is not in its record, for people; None for one that is."""
    if not isinstance(result, dict) or len(result) != 1:
        return None
    ((name, form),) = result.items()
    match name, form:
        case ("holdfast:stored", {"bytes": int(size), "place": str(place), "path": str(path)}):
            return f"{size:,} bytes, in {place}/{path}"
        case ("holdfast:logged", {"bytes": int(size)}):
            return f"{size:,} bytes, in the log of the job: client.result(…) reads it"
        case ("holdfast:too_large", {"bytes": int(size)}):
            return f"{size:,} bytes, too many to be stored without an output store"
    return None


def result_path(job_id: str, fencing_token: int) -> str:
    """Return the path of a result in the output store: each attempt has its own."""
    return f"returned/{job_id}/{fencing_token}.json"


async def store_result(document: bytes, context: "Context") -> bytes:
    """Return the result for the record of the job: the document, or where it is stored if it is too large
    or too deep for the record."""
    try:
        check_json(document, "result", RESULT_BYTES_MAX)
    except Invalid:
        pass
    else:
        return document
    stored = StoredResult(bytes=len(document), sha256=sha256(document).hexdigest())
    fits_log = len(document) <= LOGGED_BYTES_MAX
    # Callers of a server can read the log there, and seldom have the worker's output store.
    if not (fits_log and context.behind_server):
        found = await _in_outputs(document, stored, context)
        if found is not None:
            return msgspec.json.encode({IN_OUTPUTS: found})
    if fits_log:
        return msgspec.json.encode({IN_LOG: _in_log(document, stored, context)})
    beginning = document[:_BEGINNING].decode(errors="replace")
    return msgspec.json.encode({TOO_LARGE: {"bytes": len(document), "beginning": beginning}})


async def _in_outputs(document: bytes, stored: StoredResult, context: "Context") -> StoredResult | None:
    """Write the result to the output store of this worker. None without one, or if it cannot be written:
    work that is done is not done again for its disk."""
    if context.outputs is None:
        return None
    path = result_path(context.job_id, context.fencing_token)
    try:
        outputs = await context.outputs.get(create=True)
        if outputs is None:
            return None
        await outputs.put(path, document)
    except (HoldfastError, OSError):
        return None
    return msgspec.structs.replace(stored, path=path, store=outputs.store_id, place=outputs.place)


def _in_log(document: bytes, stored: StoredResult, context: "Context") -> StoredResult:
    """Write the result to the log of the job, in parts. They are stored before the job ends, as all that an
    attempt has published."""
    parts = _parts(document.decode())
    for number, text in enumerate(parts):
        facts = {"part": number, "sha256": stored.sha256, "text": text}
        context.publish(WorkerEventType.CUSTOM, {"name": EVENT, "data": facts})
    return msgspec.structs.replace(stored, parts=len(parts))


def _parts(text: str) -> list[str]:
    """Cut a text into parts that fit into an event each."""
    if len(text) * 6 <= PART_BYTES_MAX or len(msgspec.json.encode(text)) <= PART_BYTES_MAX:
        return [text]
    if len(text) > PART_BYTES_MAX:
        size = PART_BYTES_MAX - len('""')
        return [part for at in range(0, len(text), size) for part in _parts(text[at : at + size])]
    middle = len(text) // 2
    return _parts(text[:middle]) + _parts(text[middle:])
