"""The page of the migration benchmark."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from migration_processes import LEASE
from migration_run import HELD, RATE, Run
from peers.before import REVISION

TEXT = """
Holdfast of {revision} (schema 2) makes a store of {jobs:,} jobs: most are queued, one in a hundred is
delayed, one in a thousand fails for good, one in a thousand fails once. Its workers end a tenth of them and
have {held} long ones under way, its client makes {rate:.0f} jobs a second, each under an id of its own, and
makes a call that failed again. Then a client and as many workers of this holdfast are started beside them,
without a word to the earlier ones. What the earlier client had asked for and got no answer to is asked for
again by one of ours, under the same ids. Ours drain for up to two minutes, and then every job is accounted
for, ended or not.

Made by `python bench/migration.py --save`. Leases are {lease}. The machine has two cores for everything:
database, workers and clients.
"""

NOTES = """
*Migration*: from the start of our first process until its client had the store open. *No job ended for*:
the longest time between two ends of jobs, from then until 5 s after the migration; the time of a commit is
the store's. *Begun again*: jobs with more than one attempt that began, each with a number of its own on
record; they were under way in an earlier worker when it was refused, or are among those that fail once.
Every attempt writes itself down when it begins. *Disk* is all files of the store, WAL included, looked at
four times a second.
"""

_PLACE = re.compile(r"/tmp/[^/ ]*/|127\.0\.0\.1:\d+/")  # where this run happened to be


def page(runs: Sequence[Run], about: dict[str, str]) -> str:
    """All of it, as Markdown."""
    text = TEXT.format(revision=REVISION, jobs=runs[0].jobs, held=HELD, rate=RATE, lease=LEASE)
    lines = [
        "# A migration while workers work",
        "",
        *(f"- {name}: {value}" for name, value in about.items()),
        text,
    ]
    names = [run.place for run in runs]
    lines += ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(runs)]
    cells = [_cells(run) for run in runs]
    lines += ["| " + " | ".join([name, *(cell[name] for cell in cells)]) + " |" for name in cells[0]]
    lines.append(NOTES)
    for run in runs:
        lines += [f"## {run.place}: how it went", "", *(_PLACE.sub("…", line) for line in _story(run)), ""]
    return "\n".join(lines)


def _cells(run: Run) -> dict[str, str]:
    found = run.findings
    old, new = run.waits("old"), run.waits("new")
    first, second = run.opening_at, run.ready_at
    return {
        "migration": f"{run.seconds:.1f} s",
        "no job ended for": f"{run.gap:.1f} s",
        "our client's open": f"{run.open_seconds:.1f} s",
        "longest call of our client after that": f"{max(new, default=0) * 1000:.0f} ms",
        "longest call of the earlier client, if it was made": f"{max(old, default=0):.1f} s",
        "jobs ended a second: earlier workers, 5 s before": f"{found.rate(first - 5, first):,.0f}",
        "… ours, first 5 s": f"{found.rate(second, second + 5):,.0f}",
        "… ours, 5 to 15 s": f"{found.rate(second + 5, second + 15):,.0f}",
        "disk before · most · after": " · ".join(f"{size / 1e9:.2f}" for size in run.disk) + " GB",
        "WAL of the migration": f"{run.wal / 1e9:.2f} GB" if run.wal else "in the disk's",
        "jobs in the end": f"{found.jobs:,}",
        "acknowledged": f"{found.acknowledged:,}",
        "… lost": "**none**" if not found.lost else f"**{found.lost:,}**",
        "asked for again under the same id": f"{run.asked_again:,}",
        "attempts begun": f"{found.starts:,}",
        "jobs begun again": f"{found.again:,}",
        "attempts begun twice": "**none**" if not found.doubled else f"**{found.doubled:,}**",
        "records equal to the fold of their log": f"{found.verified:,}, in {found.verify_seconds:.0f} s",
        "anything wrong": "; ".join(found.wrong) or "nothing",
    }


def _story(run: Run) -> Iterable[str]:
    states = ", ".join(f"{jobs:,} {state}" for state, jobs in sorted(run.findings.states.items()))
    yield f"- In the end: {states}."
    for process in run.old:
        if "client" in process.name:
            refused = process.lines("refused")
            yield (
                f"- {process.name} was told: “{refused[0][1]}”"
                if refused
                else f"- {process.name} was told nothing"
            )
        else:
            after = (process.ended_at or 0.0) - run.ready_at
            how = "was stopped" if process.name in run.stopped else f"ended by itself with {process.code}"
            yield f"- {process.name} {how}, {after:.1f} s after the migration: “{process.last_error}”"
    for process in run.clients:
        for message, times in Counter(line[0] for line in process.lines("away")).most_common():
            yield f"- {process.name} tried again, {times} times: “{message}”"
    if run.restarts:
        yield f"- Workers of ours that had to be started again: {len(run.restarts)} (“{run.restarts[0]}”)."
    else:
        yield "- No process of ours had to be started again."
    yield from (f"- {note}" for note in run.notes)
