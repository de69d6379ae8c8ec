"""The place of a commit: a connection, the tables, and what is known about them."""

from collections.abc import Hashable, Sequence
from typing import Protocol

from msgspec import Struct

from holdfast.ports import Clock
from holdfast.stores.held import Held
from holdfast.stores.postgres.marks import Marks
from holdfast.stores.postgres.server_time import ServerTime
from holdfast.stores.postgres.statements import Row


class Speaks(Protocol):
    """A connection of whatever driver, as far as a commit needs one."""

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Row]: ...

    async def write(self, sql: str, *parameters: object) -> Sequence[Row]: ...


class Place(Struct, frozen=True):
    """Where a commit lands: the tables, where to look in them, their epoch, and whose time counts.

    `idle` are the lanes in which the last look found nothing.
    """

    schema: str
    ready: Marks
    due: Marks
    held: Held
    time: ServerTime
    epoch: int = 0
    clock: Clock | None = None
    idle: set[Hashable] = set()
