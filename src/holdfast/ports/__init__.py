"""The ports: what the registry needs from its adapters, and what it offers. The docstrings are the
contract."""

from holdfast.ports.objects import (
    VersionedStore,
    VersionToken,
)
from holdfast.ports.outputs import (
    Digest,
    Inspector,
    OutputPage,
    Outputs,
    Resumption,
)
from holdfast.ports.registry import (
    Completion,
    Grant,
    JobRequest,
    Mismatch,
    Registry,
    Verification,
)
from holdfast.ports.store import (
    Backup,
    ById,
    Census,
    Decide,
    Decision,
    Due,
    EventPage,
    Finding,
    HistoryPage,
    JobFilter,
    JobPage,
    Joinable,
    Level,
    PruneResult,
    Ready,
    Selection,
    Store,
    Topic,
    Work,
)
from holdfast.ports.system import (
    Clock,
    Ids,
)

__all__ = [
    "Backup",
    "ById",
    "Census",
    "Clock",
    "Completion",
    "Decide",
    "Decision",
    "Digest",
    "Due",
    "EventPage",
    "Finding",
    "Grant",
    "HistoryPage",
    "Ids",
    "Inspector",
    "JobFilter",
    "JobPage",
    "JobRequest",
    "Joinable",
    "Level",
    "Mismatch",
    "OutputPage",
    "Outputs",
    "PruneResult",
    "Ready",
    "Registry",
    "Resumption",
    "Selection",
    "Store",
    "Topic",
    "Verification",
    "VersionToken",
    "VersionedStore",
    "Work",
]
