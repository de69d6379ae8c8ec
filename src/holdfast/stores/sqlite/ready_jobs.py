"""The ready jobs of a lane, oldest first, without those whose lock is held."""

from typing import TypeAlias

import apsw

from holdfast.stores.sqlite.statements import statement

NEAR_ROWS = 1_000
LOCKS_MAX = 1_000

Place: TypeAlias = tuple[int, int]
"""When a job is ready, and its enqueue sequence: the order in which jobs are claimed."""

FIRST: Place = (-(2**62), 0)


def ready_places(
    connection: apsw.Connection, lane: int, *, locking: bool, now: int, after: Place, wanted: int
) -> list[Place]:
    """Return the first places after this one whose jobs can be claimed. Of a lane with locks, one job of each
    lock may be all that is returned."""
    asked = {
        "lane": lane,
        "now": now,
        "after_ready_at": after[0],
        "after_seq": after[1],
        "limit": wanted,
    }
    if not locking:
        return list(connection.execute(statement("select_ready"), asked))
    return _unlocked(connection, asked, wanted)


def _unlocked(connection: apsw.Connection, asked: dict[str, int], wanted: int) -> list[Place]:
    """Return the first places whose locks are free.

    Most often they are among the first rows. Where they are not, many jobs wait for locks that are held, and
    going on row by row would read all of these. As no two jobs of a lock can be claimed together, the first
    row of each lock is enough then, unless the rows have too many locks.
    """
    rows = max(NEAR_ROWS, 2 * wanted)
    near: list[Place] = list(connection.execute(statement("select_unlocked"), asked | {"rows": rows}))
    if len(near) == wanted:
        return near
    last: list[Place] = list(connection.execute(statement("select_row"), asked | {"rows": rows}))
    if not last:
        return near
    [(ready_at, seq)] = last
    asked |= {"after_ready_at": ready_at, "after_seq": seq, "limit": wanted - len(near)}
    which = {"lane": asked["lane"], "locks": LOCKS_MAX}
    [(locks, free)] = connection.execute(statement("select_locks"), which)
    if locks == LOCKS_MAX:
        return near + list(connection.execute(statement("select_unlocked"), asked | {"rows": -1}))
    return near + list(connection.execute(statement("select_heads"), asked | {"free": free}))
