"""The lines of `holdfast submit --from`: a command, or a JSON object, for each job."""

import shlex
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.spec import Spec, check_spec
from holdfast.ports import JobRequest


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """A job of a file; what is left out is as the options of the command say."""

    argv: Annotated[tuple[str, ...], Meta(min_length=1)]
    name: str | None = None
    cwd: str | None = None
    queue: str | None = None
    priority: int | None = None
    lock: str | None = None
    env: dict[str, str] = {}
    labels: dict[str, str] = {}


def requests_of(
    lines: Iterable[bytes], spec: Spec, command: ProcessSpec, request_id: str | None
) -> Iterator[JobRequest]:
    """Yield a job for each line; empty lines and those that begin with # have none. Raise `Invalid`, which
    names the line. With a `request_id`, the job of line 7 has it with -7: the same file again makes no other
    jobs."""
    for number, text in enumerate(lines, start=1):
        if not text.strip() or text.lstrip().startswith(b"#"):
            continue
        try:
            made = _spec(_line(text), spec, command)
        except (ValueError, Invalid) as error:
            message = error.message if isinstance(error, Invalid) else str(error)
            raise Invalid(f"Line {number}: {message}", advice="Nothing was submitted.") from error
        yield JobRequest(spec=made, request_id=None if request_id is None else f"{request_id}-{number}")


def _line(text: bytes) -> Line:
    if text.lstrip().startswith(b"{"):
        return msgspec.json.decode(text, type=Line)
    return Line(tuple(shlex.split(text.decode())))


def _spec(line: Line, spec: Spec, command: ProcessSpec) -> Spec:
    own = replace(command, argv=line.argv, env={**command.env, **line.env}, cwd=line.cwd or command.cwd)
    given = {
        name: value
        for name in ("name", "queue", "priority", "lock")
        if (value := getattr(line, name)) is not None
    }
    labels = {**spec.labels, **line.labels}
    return check_spec(replace(spec, payload=encode_process_spec(own), labels=labels, **given))
