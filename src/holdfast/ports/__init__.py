"""The ports: what the registry asks of the world, and what it offers. The docstrings are the promise."""

from holdfast.ports.objects import (
    VersionedStore,
    VersionToken,
)
from holdfast.ports.registry import (
    Grant,
    Mismatch,
    Registry,
    Request,
    Verification,
)
from holdfast.ports.store import (
    Backup,
    Decide,
    Decision,
    Due,
    Filter,
    One,
    Page,
    Pruned,
    Ready,
    Selection,
    Slice,
    Store,
    Work,
)
from holdfast.ports.world import (
    Clock,
    Ids,
)

__all__ = [
    "Backup",
    "Clock",
    "Decide",
    "Decision",
    "Due",
    "Filter",
    "Grant",
    "Ids",
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
    "Verification",
    "VersionToken",
    "VersionedStore",
    "Work",
]
