"""One job's part of a recorded history, and how to find a place for a fault in it."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from holdfast.core.event import Event
from holdfast.core.state import State
from holdfast.testing.history import Operation

T = TypeVar("T")


class NoPlace(Exception):
    """This job's history has no place for this fault."""


class Part:
    """The operations and the log of one job, and how to find a place in them."""

    def __init__(self, operations: list[Operation], log: list[Event], chance: Random) -> None:
        self.operations = operations
        self.log = log
        self.chance = chance
        self.states: list[State | None] = [None]
        for event in log:
            self.states.append(event.to_state or self.states[-1])
        self.tokens = [0, *(event.fencing_token or 0 for event in log)]
        self._sent = Counter(op.op_id for op in operations)
        self._places = {event.op_id: event.offset or 0 for event in reversed(log)}

    def pick(self, *verbs: str, where: Callable[[Operation], bool] = bool) -> Operation:
        """Some operation that was answered and sent only once, and is no repeat of another's end."""
        return self.choose(
            [
                op
                for op in self.operations
                if op.answer == "ok"
                and op.job_id is not None
                and (op.verb in verbs or not verbs)
                and (op.op_id is None or self._sent[op.op_id] == 1)
                and (op.verb not in ("complete", "release") or self.first(op))
                and where(op)
            ]
        )

    def choose(self, choices: Sequence[T]) -> T:
        if not choices:
            raise NoPlace
        return self.chance.choice(choices)

    def first(self, op: Operation) -> int:
        """The first version that this operation made; 0 when it made none."""
        return self._places.get(op.op_id, 0)

    def without(self, *operations: Operation) -> list[Operation]:
        return [op for op in self.operations if not any(op is gone for gone in operations)]

    def changed(self, op: Operation, **changes: object) -> "History":
        return [*self.without(op), replace(op, **changes)], self.log

    def with_read(self, version: int, start: int, end: int) -> "History":
        """Add a read that was shown the job as the log has it at this version."""
        read = Operation("status", "ok", start, end, job_id=self.log[0].job_id, version=version)
        read.seen_token, read.state = self.tokens[version], self.states[version]
        return [*self.operations, read], self.log


History: TypeAlias = tuple[list[Operation], list[Event]]
