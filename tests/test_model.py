"""The TLA+ model and the code say the same; what TLC says is read as it is meant. No Java needed."""

import re
from pathlib import Path

import pytest

from holdfast.core.state import ENDED, LEASED, RANK, TRANSITIONS, State
from verify.model import BREAKS, DESIGNS, REACHED, arrows, faults, is_refuted, promises, untaken
from verify.tla.checker import FOLDER, configuration, read
from verify.tla.trace import tell, value

RULES = (FOLDER / "Lifecycle.tla").read_text(encoding="utf-8")
PROMISES = (FOLDER / "Promises.tla").read_text(encoding="utf-8")
PAGE = (Path(__file__).resolve().parent.parent / "docs" / "model.md").read_text(encoding="utf-8")

COMPLETE = """\
<<"taken", "queued", "assigned">>
Model checking completed. No error has been found.
41 states generated, 17 distinct states found, 0 states left on queue.
The depth of the complete state graph search is 6.
"""
STATE = """\
/\\ log = << << [op |-> [by |-> 0, verb |-> "enqueue", try |-> 0], offset |-> 1] >> >>
/\\ gap = <<<<>>>>
/\\ record = <<[lease |-> "live"]>>
/\\ readings = {}
/\\ answers = {}
/\\ resource = [last |-> 0, highest |-> 0]
"""
VIOLATED = f"""\
Error: Invariant NoStaleAct is violated.
Error: The behavior up to this point is:
State 1: <Initial predicate>
{STATE}
State 2: <Lapse line 171, col 5 to line 174, col 76 of module JobRegistry>
{STATE.replace("live", "lapsed")}
16 states generated, 16 distinct states found, 9 states left on queue.
"""
BROKEN_MODEL = """\
Error: TLC threw an unexpected exception.
Error: The behavior up to this point is:
State 1: <Initial predicate>
7 states generated, 7 distinct states found, 5 states left on queue.
"""


def _strings(name: str) -> set[str]:
    [body] = re.findall(rf"^{name} == {{(.*?)}}", RULES, re.MULTILINE | re.DOTALL)
    return set(re.findall(r'"(\w+)"', body))


def _ranks() -> dict[str, int]:
    [body] = re.findall(r"^Rank == \[(.*?)\]", RULES, re.MULTILINE | re.DOTALL)
    return {state: int(rank) for state, rank in re.findall(r"(\w+) \|-> (\d+)", body)}


def _left_out() -> dict[str, str]:
    [body] = re.findall(r"\(\* Left out, each with its reason:\n(.*?)\*\)", RULES, re.DOTALL)
    return dict(re.findall(r"^ +(\w+): (.*\w)", body, re.MULTILINE))


def test_every_state_is_in_the_model_or_left_out_for_a_reason() -> None:
    modelled, left_out = set(_ranks()), _left_out()

    assert modelled.isdisjoint(left_out)
    assert modelled | set(left_out) == set(State)
    assert all(left_out.values())


def test_the_arrows_of_the_model_are_those_of_the_code() -> None:
    left_out = _left_out()
    expected = {
        (transition.number, str(source or "new"), str(transition.target), str(transition.event))
        for transition in TRANSITIONS
        for source in transition.sources
        if source not in left_out and transition.target not in left_out
    }

    assert arrows() == expected


def test_ranks_and_kinds_of_states_are_those_of_the_code() -> None:
    ranks = _ranks()

    assert ranks == {state: RANK[State(state)] for state in ranks}
    assert _strings("Leased") == LEASED & set(ranks)
    assert _strings("Ended") == ENDED & set(ranks)


def test_the_model_opens_a_new_attempt_where_the_code_does() -> None:
    opening = {t.number for t in TRANSITIONS if t.next_attempt}

    assert '!.attempt = IF to = "queued" THEN @ + 1 ELSE @' in RULES
    assert {n for n, source, to, _ in arrows() if to == "queued" and source != "new"} == opening


def test_every_switch_of_the_model_is_run_and_explained() -> None:
    explained = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|", PAGE, re.MULTILINE)

    assert list(faults()) == list(BREAKS)
    assert {switch: words for switch, words, _ in explained} == faults()
    assert {switch: set(re.findall(r"`(\w+)`", by)) for switch, _, by in explained} == {
        switch: set(broken) for switch, broken in BREAKS.items()
    }


def test_every_promise_is_checked_everywhere_and_broken_by_some_design() -> None:
    defined = set(re.findall(r"^(\w+) ==", PROMISES, re.MULTILINE))
    broken = {promise for broken in BREAKS.values() for promise in broken}

    assert [set(promises(name)) for name in DESIGNS] == [broken] * len(DESIGNS)
    assert broken | set(REACHED) <= defined
    assert {name for name in defined if name.startswith("Never")} == set(REACHED)


@pytest.mark.parametrize("name", DESIGNS)
def test_a_switch_changes_the_fault_and_nothing_else(name: str) -> None:
    plain = configuration(name)

    faulty = configuration(name, switch="noFence", only="NoStaleAct")

    assert plain.count("Broken = {}") == 1
    assert "ShowArrows" in plain
    head = plain.partition("INVARIANTS")[0]
    assert faulty == (head.replace("Broken = {}", 'Broken = {"noFence"}') + "INVARIANTS\n    NoStaleAct\n")


def test_a_complete_run_is_read() -> None:
    outcome = read(COMPLETE)

    assert outcome.complete
    assert outcome.violated is None
    assert (outcome.distinct, outcome.depth) == (17, 6)
    assert outcome.arrows == {("queued", "assigned")}
    assert ("queued", "assigned") not in untaken({"ends": outcome})
    assert ("assigned", "running") in untaken({"ends": outcome})


def test_a_run_that_was_cut_short_is_not_complete() -> None:
    assert not read(COMPLETE.replace("0 states left", "3 states left")).complete
    assert not read("").complete


def test_a_violation_is_read_and_refutes_only_what_it_names() -> None:
    outcome = read(VIOLATED)

    assert not outcome.complete
    assert (outcome.violated, outcome.steps) == ("NoStaleAct", 1)
    assert is_refuted({("noFence", "NoStaleAct"): outcome}, "noFence", "NoStaleAct")
    assert not is_refuted({("noFence", "OnlyForward"): outcome}, "noFence", "OnlyForward")


def test_an_error_of_the_checker_is_no_refutation() -> None:
    outcome = read(BROKEN_MODEL)

    assert outcome.violated is None
    assert not outcome.complete
    assert read(VIOLATED + BROKEN_MODEL).violated is None


def test_a_counterexample_is_told_step_by_step() -> None:
    assert tell(VIOLATED) == " 1  Lapse               job 1: its lease is lapsed"
    assert value('<<[a |-> {1, -2}, b |-> TRUE], "x">>') == [{"a": [1, -2], "b": True}, "x"]
