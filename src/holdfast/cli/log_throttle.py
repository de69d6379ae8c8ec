"""Log lines that are alike: the first few are written, the others counted."""

from collections.abc import Callable

GROUP_LINES_MAX = 3
SUMMARY_SECONDS_MAX = 60.0
GROUPS_MAX = 8

LazyLine = Callable[[], str]
GroupKey = tuple[str, str, str]

_OTHERS: GroupKey = ("", "", "")


class _Group:
    """Lines that are alike: how many were written, how many only counted, and the last."""

    __slots__ = ("counted", "due", "every", "last", "written")

    def __init__(self, now: float, every: float, last: LazyLine) -> None:
        self.written = self.counted = 0
        self.every = every
        self.due = now + self.every
        self.last = last


class LogThrottle:
    """Writes the first few lines of a group at once. The others are counted, and the count is written less
    and less often while they go on. Only a few groups are kept apart; the rest share one."""

    def __init__(self, write: Callable[[str], None], *, seconds: float) -> None:
        self._write = write
        self._seconds = seconds
        self._groups: dict[GroupKey, _Group] = {}
        self.pending = False

    def add(self, now: float, key: GroupKey, line: LazyLine) -> None:
        group = self._groups.get(key)
        if group is None:
            self._forget(now)
            if len(self._groups) >= GROUPS_MAX:
                key = _OTHERS
                group = self._groups.get(key)
        if group is None or (not group.counted and now >= group.due):
            group = self._groups[key] = _Group(now, self._seconds, line)
        if group.written < GROUP_LINES_MAX:
            group.written += 1
            self._write(line())
        else:
            group.counted += 1
            group.last = line
            self.pending = True

    def tick(self, now: float) -> None:
        """Write the counts that are due."""
        for key, group in self._groups.items():
            if group.counted and now >= group.due:
                self._summarise(key, group)
                group.every = min(2 * group.every, SUMMARY_SECONDS_MAX)
                group.due = now + group.every
        self.pending = any(group.counted for group in self._groups.values())

    def finish(self) -> None:
        """Write all counts now."""
        for key, group in self._groups.items():
            if group.counted:
                self._summarise(key, group)
        self.pending = False

    def _summarise(self, key: GroupKey, group: _Group) -> None:
        what = "other problem" if key == _OTHERS else "more like it"
        plural = "s" if key == _OTHERS and group.counted > 1 else ""
        self._write(f"… and {group.counted:,} {what}{plural}, the last: {group.last()}")
        group.counted = 0

    def _forget(self, now: float) -> None:
        self._groups = {k: g for k, g in self._groups.items() if g.counted or now < g.due}
