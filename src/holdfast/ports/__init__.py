"""The ports: what the registry asks of the world, and what it offers. The docstrings are the promise."""

from holdfast.ports.objects import (
    VersionedStore,
    VersionToken,
)
from holdfast.ports.registry import (
    Completion,
    Grant,
    Mismatch,
    Registry,
    Request,
    Verification,
)
from holdfast.ports.store import (
    Backup,
    Census,
    Decide,
    Decision,
    Due,
    Filter,
    Finding,
    Joinable,
    Level,
    One,
    Page,
    Pruned,
    Ready,
    Selection,
    Slice,
    Store,
    Topic,
    Work,
)
from holdfast.ports.world import (
    Clock,
    Ids,
)

__all__ = [
    "Backup",
    "Census",
    "Clock",
    "Completion",
    "Decide",
    "Decision",
    "Due",
    "Filter",
    "Finding",
    "Grant",
    "Ids",
    "Joinable",
    "Level",
    "Mismatch",
    "One",
    "Page",
    "Pruned",
    "Ready",
    "Registry",
    "Request",
    "Selection",
    "Slice",
    "Store",
    "Topic",
    "Verification",
    "VersionToken",
    "VersionedStore",
    "Work",
]
