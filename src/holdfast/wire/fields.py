"""Types of fields that requests and REST forms share: their limits, and the texts that describe them in
the OpenAPI document. A value that is out of limits is refused where JSON is decoded."""

from datetime import timedelta
from typing import Annotated, TypeAlias

from msgspec import Meta

from holdfast.core.cursor import CURSOR_CHARACTERS_MAX
from holdfast.core.limits import (
    ID_CHARACTERS_MAX,
    LABEL_CHARACTERS_MAX,
    MESSAGE_CHARACTERS_MAX,
    NUMBER_MAX,
    PAGE_ITEMS_MAX,
    WORK_SECONDS_MAX,
)
from holdfast.core.short_ids import SHORT_ID_CHARACTERS_MIN
from holdfast.core.task_token import TASK_TOKEN_CHARACTERS_MAX

OWNER_PATTERN = r"^[A-Za-z0-9._:-]+(@[A-Za-z0-9._:-]+)?$"
ID_PATTERN = r"^[A-Za-z0-9._:-]*[A-Za-z0-9_:-][A-Za-z0-9._:-]*$"
GLOB_PATTERN = r"^[A-Za-z0-9._:*-]+$"
LEASE_PATTERN = (
    r"^(P1D|PT24H|PT([1-9]|1[0-9]|2[0-3])H([1-5]?[0-9]M)?|PT[1-9][0-9]{0,2}M"
    r"|PT([1-9][0-9]{0,3}|[1-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2})(\.[0-9]{1,6})?S)$"
)
INTERVAL_PATTERN = (
    r"^(PT8H|PT[1-7]H([1-5]?[0-9]M)?|PT([1-9][0-9]?|[1-3][0-9]{2}|4[0-7][0-9])M"
    r"|PT([1-9][0-9]{0,3}|1[0-9]{4}|2[0-7][0-9]{3})(\.[0-9]{1,6})?S)$"
)

Id: TypeAlias = Annotated[str, Meta(pattern=ID_PATTERN, max_length=ID_CHARACTERS_MAX, examples=["report-17"])]
Name: TypeAlias = Annotated[str, Meta(pattern=ID_PATTERN, max_length=ID_CHARACTERS_MAX)]
ShortId: TypeAlias = Annotated[
    str,
    Meta(
        pattern=ID_PATTERN,
        min_length=SHORT_ID_CHARACTERS_MIN,
        max_length=ID_CHARACTERS_MAX,
        description="The beginning of an id, or the end of a generated one.",
        examples=["ee12ab34"],
    ),
]
Owner: TypeAlias = Annotated[str, Meta(pattern=OWNER_PATTERN, max_length=LABEL_CHARACTERS_MAX)]
Glob: TypeAlias = Annotated[str, Meta(pattern=GLOB_PATTERN, max_length=ID_CHARACTERS_MAX)]
Actor: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^$|^(user|worker|system):[A-Za-z0-9._:@-]+$",
        max_length=100,
        description="Who acts, such as `user:ana`, where no key identifies the caller.",
    ),
]
ValidatorName: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^$|^(validator|user):[A-Za-z0-9._:@-]+$",
        max_length=100,
        description="Which validator acts, such as `validator:w-7`; with a key, a validator of that key.",
    ),
]
OpId: TypeAlias = Annotated[
    Id | None, Meta(description="Sent again, the request returns the original response.")
]
Reason: TypeAlias = Annotated[
    str,
    Meta(pattern=r"^[^\x00]*$", max_length=MESSAGE_CHARACTERS_MAX, description="A text for display."),
]
Text: TypeAlias = Annotated[str, Meta(pattern=r"^[^\x00]*$", max_length=LABEL_CHARACTERS_MAX)]
TaskToken: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=TASK_TOKEN_CHARACTERS_MAX,
        description="The proof of a grant, as returned by acquire and claim.",
    ),
]
Duration: TypeAlias = Annotated[timedelta, Meta(examples=["PT90S"])]
Lease: TypeAlias = Annotated[timedelta, Meta(extra_json_schema={"pattern": LEASE_PATTERN})]
LeaseTime: TypeAlias = Annotated[
    Lease | None, Meta(description="From 1 second to 24 hours.", examples=["PT60S"])
]
HeartbeatInterval: TypeAlias = Annotated[
    Annotated[timedelta, Meta(extra_json_schema={"pattern": INTERVAL_PATTERN})] | None,
    Meta(
        description="How often the worker will renew the lease, which lasts three times as long.",
        examples=["PT20S"],
    ),
]
Cursor: TypeAlias = Annotated[
    Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:=-]+$", max_length=CURSOR_CHARACTERS_MAX)] | None,
    Meta(description="Where to continue: the `cursor` or `next` of the previous response."),
]
ExitCode: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
WholeNumber: TypeAlias = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
WorkSeconds: TypeAlias = Annotated[
    Annotated[float, Meta(ge=0, le=WORK_SECONDS_MAX)] | None,
    Meta(description="How long the work took, by its owner's clock."),
]
PageLimit: TypeAlias = Annotated[int, Meta(ge=1, le=PAGE_ITEMS_MAX)] | None
TailLines: TypeAlias = Annotated[
    WholeNumber | None, Meta(description="Begin at the last so many lines of output.", examples=[100])
]
AttemptNumber: TypeAlias = Annotated[
    Annotated[int, Meta(ge=1, le=NUMBER_MAX)] | None, Meta(description="Leave out what is of other attempts.")
]
OutputStream: TypeAlias = Annotated[
    Text | None,
    Meta(description="Leave out the output in other streams.", examples=["stdout"]),
]
WaitSeconds: TypeAlias = Annotated[
    float, Meta(ge=0, le=3600, description="How long to wait; a server waits at most 25 s.")
]
KeepsTimeout: TypeAlias = Annotated[
    bool,
    Meta(
        description="Whether the worker ends an attempt that exceeds the job's timeout; otherwise the"
        " registry does."
    ),
]
