"""The guard: a service calls it before it accepts a write."""

from typing import Protocol

from holdfast.core.errors import Invalid
from holdfast.fencing.fence import Fence, Mark, admit, check_fence

MARKS_MAX = 100_000


class Authority(Protocol):
    """What is known about the owner of a job. It may be out of date: it never replaces the marks."""

    async def check(self, fence: Fence) -> None:
        """Raise `Fenced` if the token does not own its job, as far as is known here."""
        ...


class Marks(Protocol):
    """The highest token seen at each resource."""

    async def admit(self, fence: Fence) -> None:
        """Remember the token, or raise `Fenced` for one below what was seen, and `Conflict` for one
        that cannot be compared with it. One step: no other token comes in between."""
        ...


class MemoryMarks:
    """Marks of one process. Beyond `limit`, the mark of the resource written to longest ago is dropped."""

    def __init__(self, *, limit: int = MARKS_MAX) -> None:
        if limit < 1:
            raise Invalid(f"A guard remembers at least one mark, not {limit}.")
        self._limit = limit
        self._marks: dict[str, Mark] = {}

    async def admit(self, fence: Fence) -> None:
        mark = admit(fence, self._marks.get(fence.resource))
        self._marks.pop(fence.resource, None)
        self._marks[fence.resource] = mark
        if len(self._marks) > self._limit:
            del self._marks[next(iter(self._marks))]


class Guard:
    """Accepts a write that the authority does not refuse and that the mark of the resource admits.

        guard = Guard(CachedAuthority(registry))
        await guard.check(fence)

    A check is not a write: between the two another owner may write. Where the resource can, let it
    compare the token in the write itself: see `holdfast.fencing.postgres` and its neighbours.
    """

    def __init__(self, authority: Authority | None = None, marks: Marks | None = None) -> None:
        self._authority = authority
        self._marks = MemoryMarks() if marks is None else marks

    async def check(self, fence: Fence) -> None:
        """Raise `Fenced` or `Conflict` if this write must not happen."""
        check_fence(fence)
        if self._authority is not None:
            await self._authority.check(fence)
        await self._marks.admit(fence)
