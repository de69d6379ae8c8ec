"""The form of a request for the log of a job."""

from typing import Annotated

from msgspec import Meta, Struct

from holdfast.wire.fields import AttemptNumber, Cursor, Id, OutputStream, PageLimit, TailLines


class LogsForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read the events of a job, with all of its output or a part of it."""

    job_id: Id
    after: Cursor = None
    limit: PageLimit = None
    without_output: bool = False
    tail: TailLines = None
    since: Annotated[
        Annotated[str, Meta(max_length=40)] | None,
        Meta(
            description="Begin at the output that is no older than this, or was written then or later.",
            examples=["10m", "2026-11-19T16:00:00Z"],
        ),
    ] = None
    attempt: AttemptNumber = None
    stream: OutputStream = None
