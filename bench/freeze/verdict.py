"""The verdict: from the observations of one system to one row of the table."""

from collections.abc import Sequence
from dataclasses import dataclass

from freeze.observations import Coordinated, Frozen
from freeze.peers import Peer

NEVER = "not in the time given"


@dataclass(frozen=True)
class Verdict:
    """One row. `accepted` is None where nobody took over, so that there was nothing to refuse."""

    rescued: str
    accepted: bool | None
    meanwhile: str
    stored: str
    runs: str
    number: str
    coordinator: str
    notes: tuple[str, ...] = ()


def verdict_of(peer: Peer, scenes: Sequence[Frozen], coordinated: Coordinated | None) -> Verdict:
    """Of several scenes the worst is told, and that they differ."""
    worst = max(scenes, key=lambda scene: (_accepted(scene) is True, scene.rescued_after is None))
    outcomes = {(_accepted(s), _stored(s), _runs(s)) for s in scenes}
    notes = _notes(worst)
    if len(outcomes) > 1:
        kinds = "; ".join(sorted(_short(scene) for scene in scenes))
        notes = (f"the {len(scenes)} scenes differ: {kinds}", *notes)
    return Verdict(
        rescued=_seconds([scene.rescued_after for scene in scenes]),
        accepted=_accepted(worst),
        meanwhile=worst.thawed.name if worst.thawed else "",
        stored=_stored(worst),
        runs=" or ".join(str(n) for n in sorted({_runs(scene) for scene in scenes})),
        number=_number(peer, worst),
        coordinator=_coordinator(peer, coordinated),
        notes=notes,
    )


def _accepted(scene: Frozen) -> bool | None:
    """Whether the job was over for whoever asked while its newer owner was in the middle of it."""
    return scene.thawed.over if scene.thawed else None


def _runs(scene: Frozen) -> int:
    return len(scene.begins("w-1", "w-2"))


def _stored(scene: Frozen) -> str:
    if scene.final is None:
        return ""
    if scene.final.result is None:
        return f"no result ({scene.final.name})"
    owners = {"result of w-1": "the stale worker's", "result of w-2": "the successor's"}
    return owners.get(scene.final.result, scene.final.result)


def _number(peer: Peer, scene: Frozen) -> str:
    """Whether the number that the second run saw is above the first one's."""
    first, second = scene.begins("w-1"), scene.begins("w-2")
    if not peer.number or not first or not second:
        return "no"
    before, after = first[0].number, second[0].number
    if not isinstance(before, int) or not isinstance(after, int):
        return "no"
    rose = "yes" if after > before else "no"
    return f"{rose}: {peer.number} {before} → {after}"


def _coordinator(peer: Peer, seen: Coordinated | None) -> str:
    if not peer.coordinator:
        return "no coordinator"
    if seen is None:
        return "not tried"
    if not seen.began:
        return "**no**: the next job went to the frozen worker"
    if seen.rescued_after is None:
        return "**no**, not in 60 s"
    return f"yes, {seen.rescued_after:.0f} s"


def _notes(scene: Frozen) -> tuple[str, ...]:
    notes = []
    if scene.thawed is not None and not scene.ended("w-1"):
        notes.append("the stale run was stopped before it could finish")
    again = scene.begins("w-1")[1:]
    if again:
        notes.append("the thawed worker ran the job once more")
    notes += [f"{name} said: `{line.replace('|', '/')}`" for name, line in scene.errors.items()]
    return tuple(notes)


def _short(scene: Frozen) -> str:
    accepted = {True: "accepted", False: "refused", None: "not rescued"}[_accepted(scene)]
    return f"{accepted}, stored {_stored(scene) or 'nothing'}, {_runs(scene)} runs"


def _seconds(values: Sequence[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return NEVER
    low, high = round(known[0]), round(known[-1])
    text = f"{low} s" if low == high else f"{low} to {high} s"
    return text if len(known) == len(values) else f"{text}; {len(values) - len(known)} time(s) {NEVER}"
