"""Things that are like each other: the first few are said, the others counted."""

from collections.abc import Callable

ALIKE_LINES = 3
ALIKE_SECONDS_MAX = 60.0
GROUPS_MAX = 8

Line = Callable[[], str]
Key = tuple[str, str, str]

_OTHERS: Key = ("", "", "")


class _Group:
    """Things that are like each other: how many were said, how many only counted, and the last."""

    __slots__ = ("counted", "due", "every", "last", "said")

    def __init__(self, now: float, every: float, last: Line) -> None:
        self.said = self.counted = 0
        self.every = every
        self.due = now + self.every
        self.last = last


class Alike:
    """Says the first few of a kind at once. The rest is counted, and told less and less often while it
    goes on. However many kinds there are, only a few are told apart."""

    def __init__(self, say: Callable[[str], None], *, seconds: float) -> None:
        self._say = say
        self._seconds = seconds
        self._groups: dict[Key, _Group] = {}
        self.pending = False

    def add(self, now: float, key: Key, line: Line) -> None:
        group = self._groups.get(key)
        if group is None:
            self._forget(now)
            if len(self._groups) >= GROUPS_MAX:
                key = _OTHERS
                group = self._groups.get(key)
        if group is None or (not group.counted and now >= group.due):
            group = self._groups[key] = _Group(now, self._seconds, line)
        if group.said < ALIKE_LINES:
            group.said += 1
            self._say(line())
        else:
            group.counted += 1
            group.last = line
            self.pending = True

    def tick(self, now: float) -> None:
        """Tell the counts that are due."""
        for key, group in self._groups.items():
            if group.counted and now >= group.due:
                self._tell(key, group)
                group.every = min(2 * group.every, ALIKE_SECONDS_MAX)
                group.due = now + group.every
        self.pending = any(group.counted for group in self._groups.values())

    def finish(self) -> None:
        """Tell all counts now."""
        for key, group in self._groups.items():
            if group.counted:
                self._tell(key, group)
        self.pending = False

    def _tell(self, key: Key, group: _Group) -> None:
        what = "other problem" if key == _OTHERS else "more like it"
        plural = "s" if key == _OTHERS and group.counted > 1 else ""
        self._say(f"… and {group.counted:,} {what}{plural}, the last: {group.last()}")
        group.counted = 0

    def _forget(self, now: float) -> None:
        self._groups = {k: g for k, g in self._groups.items() if g.counted or now < g.due}
