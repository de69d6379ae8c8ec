"""Fencing for the services and databases that a job writes to: they refuse the writes of old owners."""

from holdfast.core.errors import Conflict, Fenced
from holdfast.fencing.authority import CachedAuthority, RegistryAuthority
from holdfast.fencing.fence import HEADER, Fence, parse
from holdfast.fencing.guard import Authority, Guard, Marks, MemoryMarks
from holdfast.fencing.subscription import SubscribedAuthority

__all__ = [
    "HEADER",
    "Authority",
    "CachedAuthority",
    "Conflict",
    "Fence",
    "Fenced",
    "Guard",
    "Marks",
    "MemoryMarks",
    "RegistryAuthority",
    "SubscribedAuthority",
    "parse",
]
