"""The frame that freezes workers of other systems, tried on a queue of our own in a file: one kind compares
the owner when a job is finished, the other does not, and the frame must tell them apart."""

from dataclasses import replace
from pathlib import Path

import pytest

from freeze.observations import Coordinated, Frozen, Reported, State
from freeze.page import Entry, page
from freeze.peers import PEERS, Peer
from freeze.run import examine
from freeze.verdict import verdict_of
from servers import Servers

PEER = Peer(
    name="file",
    store="SQLite",
    program="with_a_file.py",
    packages=(),
    promise="It is tried.",
    source="here",
    number="`run`",
    coordinator="none",
    rescue_seconds=60,
)


def told(worker: str, what: str, number: int = 0) -> Reported:
    return Reported(worker=worker, pid=1, what=what, at=0.0, number=number)


def scene(*, thawed: State, final: State) -> Frozen:
    lines = [
        told("w-1", "begin", 1),
        told("w-2", "begin", 2),
        told("w-1", "end"),
        told("w-2", "end"),
    ]
    return Frozen(2.0, thawed, final, lines)


REFUSED = scene(
    thawed=State("running", over=False, result=None),
    final=State("done", over=True, result="result of w-2"),
)
ACCEPTED = scene(
    thawed=State("done", over=True, result="result of w-1"),
    final=State("done", over=True, result="result of w-1"),
)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("variant", "accepted"), [("checks", False), ("trusts", True)])
def test_the_frame_sees_whether_a_stale_completion_was_accepted(
    variant: str, accepted: bool, tmp_path: Path
) -> None:
    with Servers() as servers:
        entry = examine(replace(PEER, variant=variant), servers, tmp_path, scenes=1, keep=tmp_path)

    verdict = entry.verdict
    assert verdict is not None, entry.problem
    assert verdict.accepted is accepted
    assert verdict.stored == "the successor's"
    assert (verdict.runs, verdict.number) == ("2", "yes: `run` 1 → 2")
    assert verdict.coordinator.startswith("yes")
    assert entry.settings == "lease 1 s"


def test_the_worst_scene_is_told_and_that_they_differ() -> None:
    verdict = verdict_of(PEER, [REFUSED, ACCEPTED, REFUSED], Coordinated(True, None))

    assert verdict.accepted is True
    assert verdict.stored == "the stale worker's"
    assert verdict.coordinator == "**no**, not in 60 s"
    assert "the 3 scenes differ" in verdict.notes[0]


def test_scenes_that_agree_are_one_answer() -> None:
    verdict = verdict_of(replace(PEER, coordinator=""), [REFUSED, REFUSED], None)

    assert (verdict.accepted, verdict.notes) == (False, ())
    assert verdict.coordinator == "no coordinator"


def test_without_a_successor_nothing_is_said_of_the_stale_completion() -> None:
    verdict = verdict_of(PEER, [Frozen(None, told=[told("w-1", "begin")])], None)

    assert (verdict.accepted, verdict.rescued, verdict.runs) == (None, "not in the time given", "1")


def test_the_page_names_every_system_and_what_could_not_be_tried() -> None:
    entries = [
        Entry(PEER, "lease 1 s", verdict_of(PEER, [ACCEPTED], None)),
        *(Entry(peer, problem="did not install: no network") for peer in PEERS),
    ]

    text = page(entries, {"date": "today"})

    assert "| file (SQLite) | 2 s | **yes** (done) | the stale worker's | 2 |" in text
    assert all(text.count(peer.promise) == 1 for peer in {p.name: p for p in PEERS}.values())
    assert text.count("| did not install: no network |") == len(PEERS)


def test_every_system_is_pinned_and_has_a_program_and_a_source() -> None:
    programs = Path(__file__).parents[2] / "bench" / "freeze" / "programs"

    for peer in PEERS:
        assert (programs / peer.program).exists()
        assert peer.promise
        assert peer.source
        assert all("==" in package or "@" in package for package in peer.packages)
