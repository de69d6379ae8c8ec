"""Fences that hold where the work has its effects: guards for whatever a job writes to."""

from holdfast.core.errors import Conflict, Fenced
from holdfast.fencing.authority import Authoritative, Cached
from holdfast.fencing.fence import HEADER, Fence, parse
from holdfast.fencing.guard import Authority, Guard, Marks, Memory
from holdfast.fencing.subscribed import Subscribed

__all__ = [
    "HEADER",
    "Authoritative",
    "Authority",
    "Cached",
    "Conflict",
    "Fence",
    "Fenced",
    "Guard",
    "Marks",
    "Memory",
    "Subscribed",
    "parse",
]
