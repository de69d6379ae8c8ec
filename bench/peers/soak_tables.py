"""The tables of the soak: at every mark, and what it comes to."""

from peers.soak import Mark, Soak

_HEAD = (
    "minute",
    "jobs run",
    "p50 / p99 / most ms",
    "tables MB",
    "indexes MB",
    "job rows",
    "event rows",
    "dead rows",
    "unused MB",
    "bytes per job",
    "RSS MB",
    "CPU %",
)


def soaked(soaks: list[Soak]) -> list[str]:
    lines: list[str] = []
    for told in soaks:
        sent = "an unknown number of" if told.sent is None else f"{told.sent:,}"
        lines += [f"**{told.title}**: {told.rate} jobs/s, {sent} jobs sent.", ""]
        lines += [f"- {line}" for line in _summary(told)]
        lines += ["", "| " + " | ".join(_HEAD) + " |", "|" + "---|" * len(_HEAD)]
        lines += [_row(mark) for mark in told.marks] + [""]
    return lines or ["Not run."]


def growth(told: Soak) -> tuple[float, float] | None:
    """Bytes per finished job by the first mark and by the last: equal when nothing but history grows."""
    marks = [mark for mark in told.marks if mark.sizes.jobs]
    return (_each(marks[0]), _each(marks[-1])) if marks else None


def _summary(told: Soak) -> list[str]:
    lines = [f"failed: {' '.join(why.split())}" for why in told.failures]
    marks = told.marks
    if not marks:
        return [*lines, "no mark was reached"]
    first, last = marks[0], marks[-1]
    lines.append(
        f"enqueue to start, p99: {_waits(first.p99_ms)} up to the first mark, {_waits(last.p99_ms)} "
        "before the last"
    )
    lines.append(f"memory of the workers: {first.rss_mb:.0f} MB and {last.rss_mb:.0f} MB")
    if (each := growth(told)) is not None:
        lines.append(f"bytes per job: {each[0]:,.0f} and {each[1]:,.0f}")
    between = last.sizes.jobs - first.sizes.jobs
    if between > 0:
        grown = (_whole(last) - _whole(first)) / between
        lines.append(f"between these marks every job that came added {grown:,.0f} bytes")
    return lines


def _row(mark: Mark) -> str:
    sizes = mark.sizes
    waits = " / ".join(map(_plain, (mark.p50_ms, mark.p99_ms, mark.most_ms)))
    cells = (
        f"{mark.seconds / 60:.1f}",
        f"{mark.jobs:,}",
        waits,
        f"{sizes.tables / 1e6:.1f}",
        f"{sizes.indexes / 1e6:.1f}",
        f"{sizes.jobs:,}",
        f"{sizes.events:,}",
        "" if sizes.dead_rows is None else f"{sizes.dead_rows:,}",
        "" if sizes.unused is None else f"{sizes.unused / 1e6:.2f}",
        f"{_each(mark):,.0f}" if sizes.jobs else "",
        f"{mark.rss_mb:.0f}",
        f"{mark.cpu_percent:.0f}",
    )
    return "| " + " | ".join(cells) + " |"


def _whole(mark: Mark) -> int:
    return mark.sizes.tables + mark.sizes.indexes


def _each(mark: Mark) -> float:
    return _whole(mark) / mark.sizes.jobs


def _waits(value: float | None) -> str:
    return "none was run" if value is None else f"{value:.1f} ms"


def _plain(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f}"
