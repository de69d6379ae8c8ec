"""The context of a commit: the connection, the tables, and what this process knows about them."""

from collections.abc import Hashable, Sequence
from typing import Protocol

from msgspec import Struct

from holdfast.ports import Clock
from holdfast.stores.leased_jobs import LeasedJobCache
from holdfast.stores.postgres.lane_marks import LaneMarks
from holdfast.stores.postgres.scan_starts import ScanStarts
from holdfast.stores.postgres.server_time import ServerTime
from holdfast.stores.postgres.statements import Row
from holdfast.stores.postgres.writes import LaneKey


class QueryConnection(Protocol):
    """What a commit needs of a connection, of any driver."""

    async def fetch(self, sql: str, *parameters: object) -> Sequence[Row]: ...

    async def write(self, sql: str, *parameters: object) -> Sequence[Row]: ...


class CommitContext(Struct, frozen=True):
    """The tables that a commit writes, and what this process knows about them.

    `ready_marks` and `due_scan` are where scans of those jobs start, `lanes` the numbers of the lanes,
    `leased_jobs` the cache of leased jobs, `time` what is known of the server's clock. `clock` replaces that
    clock in tests. `idle` are the claims (by what they fit) for which the last query found nothing.
    """

    schema: str
    ready_marks: LaneMarks
    due_scan: ScanStarts
    leased_jobs: LeasedJobCache
    time: ServerTime
    epoch: int = 0
    clock: Clock | None = None
    lanes: dict[LaneKey, int] = {}
    idle: set[Hashable] = set()

    def forget(self) -> None:
        """Forget what may be otherwise on another server."""
        self.leased_jobs.forget()
        self.ready_marks.forget()
        self.due_scan.forget()
        self.lanes.clear()
        self.idle.clear()
