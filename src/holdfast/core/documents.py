"""Values as JSON documents, with the field names of the core: every field, null when empty."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core.access import Key
from holdfast.core.event import Event, with_given_id
from holdfast.core.job import Job


def document(value: Any) -> Any:  # noqa: ANN401
    """Return the JSON document of a value. The digest of a key is left out."""
    special = _SPECIAL.get(type(value))
    if special is not None:
        return special(value)
    if isinstance(value, Struct):
        return _fields(value)
    if isinstance(value, tuple | list):
        return [document(one) for one in value]
    return value


def job_document(job: Job) -> dict[str, object]:
    """Return the whole record, with the derived `owner` and `due_at`."""
    return {**_fields(job), "owner": job.owner, "due_at": job.due_at}


def event_document(event: Event) -> dict[str, object]:
    """Return the whole event, its `event_id` first; `data` is base64."""
    given = with_given_id(event)
    return {"event_id": given.event_id, **_fields(given)}


def _key_document(key: Key) -> dict[str, object]:
    return {name: one for name, one in _fields(key).items() if name != "digest"}


def _fields(value: Struct) -> dict[str, object]:
    return {name: document(getattr(value, name)) for name in value.__struct_fields__}


def _raw(value: msgspec.Raw) -> msgspec.Raw:
    """Return JSON as it was given, on one line. Decoding and encoding it would take fifty times as long."""
    text = bytes(value)
    if b"\n" in text or b"\r" in text:
        return msgspec.Raw(msgspec.json.format(text, indent=-1))
    return value


_SPECIAL: dict[type, Callable[[Any], Any]] = {
    str: lambda value: value,
    Job: job_document,
    Event: event_document,
    Key: _key_document,
    msgspec.Raw: _raw,
}
