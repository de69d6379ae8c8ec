"""The context of a commit: the connection, the tables, and what this process knows about them."""

from collections.abc import Hashable, Sequence
from typing import Protocol

from msgspec import Struct

from holdfast.ports import Clock
from holdfast.stores.leased_jobs import LeasedJobCache
from holdfast.stores.postgres.scan_starts import ScanStarts
from holdfast.stores.postgres.server_time import ServerTime
from holdfast.stores.postgres.statements import Row


class QueryConnection(Protocol):
    """What a commit needs of a connection, of any driver."""

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Row]: ...

    async def write(self, sql: str, *parameters: object) -> Sequence[Row]: ...


class CommitContext(Struct, frozen=True):
    """The tables that a commit writes, and what this process knows about them.

    `ready_scan` and `due_scan` are where scans of those jobs start, `leased_jobs` the cache of leased jobs,
    `time` what is known of the server's clock. `clock` replaces that clock in tests. `idle` are the lanes
    in which the last query found nothing.
    """

    schema: str
    ready_scan: ScanStarts
    due_scan: ScanStarts
    leased_jobs: LeasedJobCache
    time: ServerTime
    epoch: int = 0
    clock: Clock | None = None
    idle: set[Hashable] = set()
