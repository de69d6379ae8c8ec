"""Jobs and events as JSON with the field names of the core: every field, null when empty."""

from collections.abc import Mapping

import click
import msgspec
from msgspec import Struct

from holdfast.cli.safe import json_text
from holdfast.core.event import Event
from holdfast.core.job import Job


def job_document(job: Job) -> dict[str, object]:
    """The whole record, and what follows from it: `owner` and `due_at`."""
    return {**_fields(job), "owner": job.owner, "due_at": job.due_at}


def event_document(event: Event) -> dict[str, object]:
    """The whole event, its `event_id` first; `data` is base64."""
    return {"event_id": event.event_id, **_fields(event)}


def print_json(document: Mapping[str, object], *, indent: bool = True) -> None:
    """One JSON document: on one line, or spread for people."""
    click.echo(encode(document, indent=indent))


def encode(document: Mapping[str, object], *, indent: bool = False) -> str:
    encoded = msgspec.json.encode(document)
    return json_text(msgspec.json.format(encoded, indent=2) if indent else encoded)


def _fields(value: Struct) -> dict[str, object]:
    return {name: _whole(getattr(value, name)) for name in value.__struct_fields__}


def _whole(value: object) -> object:
    if isinstance(value, Struct):
        return _fields(value)
    if isinstance(value, msgspec.Raw):
        decoded: object = msgspec.json.decode(value)
        return decoded
    return value
