"""The page: what was done, what was seen, and what each system promises in its own words."""

from dataclasses import dataclass

from freeze.peers import Peer
from freeze.verdict import Verdict

PREFACE = """\
A worker stops for a while in the middle of a job: a paused virtual machine, a suspended container, a long
swap storm. It is not dead, but nobody can tell. The job is given to another worker, as it should be. Then
the first one wakes up, finishes, and reports its result, while the other is still at work. What then?

The scene is the same for every system. One job; worker w-1 begins it and is stopped (`SIGSTOP`, all its
processes); w-2 is started and takes the job over when the system's own limit has passed; while w-2 is in the
middle, w-1 is continued (`SIGCONT`) and finishes; three seconds later we ask the system about the job; then
w-2 finishes, and we ask again. Every system has an environment of its own and is set up in its own documented
way to rescue the jobs of dead workers, with limits far shorter than usual; they are printed below.

**None of these is a bug.** Most say "at least once", and ask for handlers that can be repeated. The table
says what that means when it happens, so that you know what your handlers have to cope with.
"""
COLUMNS = """\
- *rescued*: how long after the freeze w-2 began.
- *stale completion accepted*: whether the job was finished, or gone, in the system's own eyes because of w-1
  while w-2 was still running it; beside it the state that the system told at that moment.
- *stored at the end*: whose result a reader gets after both have finished.
- *runs*: how often the handler began.
- *ordered token*: whether the handler is given a number that rose from the first run to the second, which
  it could pass on to whatever it writes to, so that this can refuse the older one.
  Most are counters of attempts that are not documented for this use.
- *rescue while the coordinator is frozen*: w-0 is started first, and frozen for good while idle; then w-1
  is killed in the middle of a job; does w-2 take it over within 60 s? Where, by its docs and source, no
  process has such a part, it was not tried: "no coordinator". Where one is elected, a healthy w-0 has that
  part in the scene of the freeze, so that the other columns do not depend on it.
- Of several scenes the one that went worst is told; where they differed, the notes say so.
"""

QUOTED = """\
Read in 2026, in the packages named above and in the repositories of the projects.
"""


@dataclass(frozen=True)
class Entry:
    """What is known of one system after a run; without a verdict, `problem` says why."""

    peer: Peer
    settings: str = ""
    verdict: Verdict | None = None
    problem: str = ""


def page(entries: list[Entry], about: dict[str, str]) -> str:
    lines = ["# The freeze, here and elsewhere", "", PREFACE]
    lines += [
        *(f"- {name}: {value}" for name, value in about.items()),
        "",
        *table(entries),
        "",
        COLUMNS,
    ]
    lines += ["## What was noted", "", *_notes(entries), ""]
    lines += ["## Settings", "", *_settings(entries), ""]
    lines += ["## What they promise, in their own words", "", QUOTED, *_promises(entries), ""]
    return "\n".join(lines)


def table(entries: list[Entry]) -> list[str]:
    head = (
        "system",
        "rescued",
        "stale completion accepted",
        "stored at the end",
        "runs",
        "ordered token",
        "rescue while the coordinator is frozen",
    )
    return [_row(head), "|" + "---|" * len(head), *(_row(_cells(entry)) for entry in entries)]


def _cells(entry: Entry) -> tuple[str, ...]:
    verdict, name = entry.verdict, version(entry.peer)
    if verdict is None:
        return (name, entry.problem, *[""] * 5)
    word = {True: "**yes**", False: "no", None: "nobody took over"}[verdict.accepted]
    accepted = f"{word} ({verdict.meanwhile})" if verdict.meanwhile else word
    return (
        name,
        verdict.rescued,
        accepted,
        verdict.stored,
        verdict.runs,
        verdict.number,
        verdict.coordinator,
    )


def version(peer: Peer) -> str:
    """The system's name with its pinned version, and its store."""
    number = ""
    if peer.packages:
        number = peer.packages[0].rpartition("==")[2].rpartition("@")[2] + " "
    return f"{peer.name} {number}({peer.store})"


def _notes(entries: list[Entry]) -> list[str]:
    lines = []
    for entry in entries:
        notes = entry.verdict.notes if entry.verdict else (entry.problem,)
        lines += [f"- {version(entry.peer)}: {note}." for note in notes]
    return lines


def _settings(entries: list[Entry]) -> list[str]:
    waited = "for a rescue we wait up to"
    return [
        f"- {version(entry.peer)}: {entry.settings}; {waited} {entry.peer.rescue_seconds:.0f} s."
        for entry in entries
        if entry.settings
    ]


def _promises(entries: list[Entry]) -> list[str]:
    told: dict[str, str] = {}
    for entry in entries:
        peer = entry.peer
        told.setdefault(peer.name, f'- {peer.name}: "{peer.promise}" ({peer.source})')
    return list(told.values())


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
