"""The arguments of the port's methods as fields of requests, and what a method returns of a response."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from holdfast.core.errors import Invalid
from holdfast.core.limits import clip
from holdfast.core.spec import check_struct
from holdfast.ports import Grant, JobFilter
from holdfast.wire import requests


def task_token(grant: Grant) -> str:
    if grant.task_token is None:
        raise Invalid("This grant was made by another registry: it has no task token.")
    return grant.task_token


def _which(which: JobFilter) -> requests.ListFilter:
    fields = {name: getattr(which, name) for name in requests.ListFilter.__struct_fields__}
    return requests.ListFilter(**fields)


FIELDS: dict[str, tuple[str, Callable[[Any], object] | None]] = {
    "grant": ("task_token", task_token),
    "replay_id": ("op_id", None),
    "resume_id": ("op_id", None),
    "reason": ("reason", clip),
    "error": ("error", clip),
    "trouble": ("trouble", clip),
    "handle": ("handle", lambda handle: {name: str(text) for name, text in handle.items()}),
    "progress": ("progress", check_struct),
    "found": ("found", check_struct),
    "evidence": ("evidence", lambda evidence: tuple(map(check_struct, evidence))),
    "outputs": ("promise", check_struct),
    "which": ("which", _which),
    "output": ("without_output", lambda output: not output),
}
"""The field of the request that an argument becomes, and its conversion; else the field of the same
name."""


def only_field(response: type[Struct]) -> Callable[[Any], Any]:
    """Return a function that takes the one field of a response (a list for a tuple), or all of it."""
    if len(response.__struct_fields__) != 1:
        return lambda value: value
    [field] = response.__struct_fields__

    def take(value: Struct) -> Any:  # noqa: ANN401
        found = getattr(value, field)
        return list(found) if isinstance(found, tuple) else found

    return take
