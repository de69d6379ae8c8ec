"""The fence: the token under which a write is made. It is sent with the write."""

import re

from msgspec import Struct

from holdfast.core.errors import Conflict, Fenced, Invalid
from holdfast.core.limits import NUMBER_MAX, check_id

HEADER = "Holdfast-Fence"
_ITEM = re.compile(r'[ \t]*(\d{1,19})((?:[ \t]*;[ \t]*[a-z]+="[^"\\]*")*)[ \t]*\Z', re.ASCII)
_PARAMETER = re.compile(r'([a-z]+)="([^"]*)"')
_NAMES = {"resource", "job", "lock"}


class Fence(Struct, frozen=True, kw_only=True):
    """Who writes to `resource`: the grant of `job_id` with this token.

    The token was counted by the job's lock if it has one, and by the job itself otherwise. Only tokens
    of one source can be compared.
    """

    resource: str
    token: int
    job_id: str
    lock: str | None = None

    @property
    def source(self) -> str:
        """What counts the tokens: the lock or the job."""
        return f"job:{self.job_id}" if self.lock is None else f"lock:{self.lock}"

    @property
    def header(self) -> str:
        """The value of the header `Holdfast-Fence`, which `parse` reads."""
        lock = "" if self.lock is None else f';lock="{self.lock}"'
        return f'{self.token};resource="{self.resource}";job="{self.job_id}"{lock}'

    @property
    def headers(self) -> dict[str, str]:
        """The header, for an HTTP client."""
        return {HEADER: self.header}


def check_fence(fence: Fence) -> Fence:
    """Return `fence`, or raise `Invalid`."""
    check_id(fence.resource, "resource")
    check_id(fence.job_id, "job_id")
    if fence.lock is not None:
        check_id(fence.lock, "lock")
    if type(fence.token) is not int or not 1 <= fence.token <= NUMBER_MAX:
        raise Invalid(f"A fencing token is a whole number from 1 on, not {fence.token!r:.80}.")
    return fence


def parse(header: str) -> Fence:
    """Return the fence in a `Holdfast-Fence` header; raise `Invalid` if it is not one."""
    item = _ITEM.match(header)
    pairs = _PARAMETER.findall(item[2]) if item else []
    given = dict(pairs)
    if item is None or len(given) < len(pairs) or not {"resource", "job"} <= given.keys() <= _NAMES:
        raise Invalid(
            f'{HEADER} is a token and what it is for, such as 7;resource="account-17";job="j-1",'
            f" not {header!r:.200}."
        )
    return check_fence(
        Fence(
            resource=given["resource"],
            token=int(item[1]),
            job_id=given["job"],
            lock=given.get("lock"),
        )
    )


class Mark(Struct, frozen=True, gc=False):
    """The highest token that a resource has seen, and its source."""

    source: str
    token: int


def admit(fence: Fence, mark: Mark | None) -> Mark:
    """Return the new mark of the resource; raise `Fenced` or `Conflict` if the write must not happen."""
    if mark is None:
        return Mark(fence.source, fence.token)
    if mark.source != fence.source:
        raise mixed(fence, mark.source)
    if fence.token < mark.token:
        raise stale(fence, mark.token)
    return mark if mark.token == fence.token else Mark(fence.source, fence.token)


def stale(fence: Fence, seen: int) -> Fenced:
    return Fenced(
        f"Token {fence.token} is stale: {fence.resource} has seen token {seen}.",
        job_id=fence.job_id,
    )


def mixed(fence: Fence, source: str) -> Conflict:
    return Conflict(
        f"{fence.resource} has seen tokens of {source}, and this one is of {fence.source}: they have no"
        " order. Give all jobs that write to it one lock, such as @app.job(lock=...).",
        job_id=fence.job_id,
    )
