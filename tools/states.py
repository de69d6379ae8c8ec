"""Write the generated parts of docs/states.md and docs/events.md from the code.

`python tools/states.py` writes them; with `--check` nothing is written, and a part that is out of
date makes it exit with 1.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from holdfast.core.catalogue import (
    CONTROL_TYPES,
    FACT_TYPES,
    EventClass,
    EventType,
    ReasonCode,
    Stage,
    WorkerEventType,
)
from holdfast.core.state import ENDED, LEASED, RANK, TRANSITIONS, State, Transition

DOCS = Path(__file__).resolve().parent.parent / "docs"
HELD = "held"
NEW = "new"


def main(pages: Mapping[str, Mapping[str, str]], arguments: Sequence[str]) -> int:
    """Put every part between its markers; return the exit code."""
    stale = []
    for page, parts in pages.items():
        path = DOCS / page
        before = path.read_text(encoding="utf-8")
        after = before
        for name, text in parts.items():
            after = _between(after, name, text)
        if after == before:
            continue
        stale.append(page)
        if "--check" not in arguments:
            path.write_text(after, encoding="utf-8")
    if stale and "--check" in arguments:
        tool = Path(sys.argv[0]).name
        sys.stderr.write(f"Out of date: {', '.join(stale)}. Run: python tools/{tool}\n")
        return 1
    return 0


def _between(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"The page needs the markers {begin} and {end}, once each.")
    pattern = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n\n{text.strip()}\n\n{end}", page)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def diagram() -> str:
    """Return the state machine as a diagram. An arrow that leaves all held states leaves their frame."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for transition in TRANSITIONS:
        label = transition.number + (", attempt + 1" if transition.next_attempt else "")
        for source in _sources(transition):
            arrows.setdefault((source, transition.target), []).append(label)
    held, ended = _by_rank(LEASED), _by_rank(ENDED)
    lines = ["```mermaid", "flowchart LR", f"    {NEW}(( ))"]
    for name, title, states in (
        (HELD, "held: a worker has the lease", held),
        ("over", "ended", ended),
    ):
        lines.append(f'    subgraph {name} ["{title}"]')
        lines += [f"        {state}([{state}])" for state in states]
        lines.append("    end")
    grouped = LEASED | ENDED
    lines += [f"    {state}([{state}])" for state in _by_rank(set(State) - grouped)]
    lines += [f'    {a} -- "{" · ".join(labels)}" --> {b}' for (a, b), labels in arrows.items()]
    return "\n".join([*lines, "```"])


def _by_rank(states: Iterable[State]) -> list[State]:
    return sorted(states, key=lambda state: (RANK[state], list(State).index(state)))


def _sources(transition: Transition) -> list[str]:
    sources = set(transition.sources)
    if sources >= LEASED:
        rest = [str(source) for source in transition.sources if source not in LEASED]
        return [*rest, HELD]
    return [NEW if source is None else str(source) for source in transition.sources]


def transitions() -> str:
    """Return the table of transitions."""
    return table(
        ("", "from", "to", "event", "allowed for", "note"),
        (
            (
                t.number,
                ", ".join("(new)" if s is None else f"`{s}`" for s in t.sources),
                f"`{t.target}`" + (" of the next attempt" if t.next_attempt else ""),
                f"`{t.event}`",
                ", ".join(sorted(t.actors)),
                t.note,
            )
            for t in TRANSITIONS
        ),
    )


def catalogue() -> str:
    """Return every event type with its class, and the transitions that write it."""
    numbers: dict[str, list[str]] = {}
    for transition in TRANSITIONS:
        numbers.setdefault(transition.event, []).append(transition.number)
    rows = [(f"`{event}`", _class_of(event), ", ".join(numbers.get(event, []))) for event in EventType]
    worker = ", ".join(f"`{event}`" for event in WorkerEventType)
    return "\n\n".join(
        [
            table(("type", "class", "written by"), rows),
            f"Types a worker may publish (class `{EventClass.WORKER}`): {worker}.",
            f"Reason codes of a dead letter: {', '.join(f'`{code}`' for code in ReasonCode)}.",
            f"Stages of a failure: {', '.join(f'`{stage}`' for stage in Stage)}.",
        ]
    )


def _class_of(event: EventType) -> EventClass:
    if event in CONTROL_TYPES:
        return EventClass.CONTROL
    return EventClass.FACT if event in FACT_TYPES else EventClass.TRANSITION


if __name__ == "__main__":
    sys.exit(
        main(
            {
                "states.md": {"diagram": diagram(), "transitions": transitions()},
                "events.md": {"catalogue": catalogue()},
            },
            sys.argv[1:],
        )
    )
