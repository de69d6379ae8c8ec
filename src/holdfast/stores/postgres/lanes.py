"""Lanes: what jobs have in common that the same claims fit. Each process remembers their numbers."""

from collections.abc import Iterable

from holdfast.stores.postgres.commit_context import CommitContext
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import statement
from holdfast.stores.postgres.writes import LaneKey

LANES_READ_MAX = 10_000


async def learn_lanes(session: Session, context: CommitContext) -> None:
    """Read the numbers of the newest lanes."""
    for *key, number in await session.fetch(statement("select_lanes", context.schema), LANES_READ_MAX):
        context.lanes[tuple(key)] = number  # type: ignore[index]


async def make_lanes(session: Session, context: CommitContext, keys: Iterable[LaneKey]) -> None:
    """Make the lanes that do not exist yet, and read the numbers of all of these."""
    columns = [list(column) for column in zip(*sorted(keys), strict=True)]
    await session.fetch(statement("make_lanes", context.schema), *columns)
    for *key, number in await session.fetch(statement("find_lanes", context.schema), *columns):
        context.lanes[tuple(key)] = number  # type: ignore[index]
