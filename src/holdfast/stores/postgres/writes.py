"""The parts of one commit statement and their parameters."""

from collections.abc import Sequence

from holdfast.stores.postgres.statements import CHECKED, Row


class Writes:
    """The named writes of one statement, their parameters in order, and how many rows they must change."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.parameters: list[object] = []
        self.expected = 0

    def add(self, name: str, rows: Sequence[Row], *first: object, expected: int | None = None) -> None:
        self.names.append(name)
        self.parameters += first
        self.parameters.append(rows)
        if name in CHECKED:
            self.expected += len(rows) if expected is None else expected
