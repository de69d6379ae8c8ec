"""How a commit is made: at once or in a transaction, with locks or without."""

from enum import Enum


class Way(Enum):
    """How a commit is made.

    At once (`CACHED`, `READ`): the statement that writes is the transaction, and undoes itself when a row
    is not as it was read; leased jobs are taken from the cache, or read. In a transaction (`LOCKED`,
    `AGAIN`): rows are locked when they are read; of the first try, leased jobs may be from the cache, and
    are written as at once. `AGAIN` is any other try, which also expects what the first may have done.
    `IDLE`: at once, by a claim of a few jobs; it writes nothing when one of its rows is locked or was
    changed. `EXTERNAL`: in a transaction of the caller.
    """

    CACHED = "cached"
    READ = "read"
    LOCKED = "locked"
    AGAIN = "again"
    IDLE = "idle"
    EXTERNAL = "external"

    @property
    def locks(self) -> bool:
        return self in (Way.LOCKED, Way.AGAIN)

    @property
    def first(self) -> bool:
        return self in (Way.CACHED, Way.LOCKED)
