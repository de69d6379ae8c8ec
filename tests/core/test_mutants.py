"""The mutator and its verdict, and a small sample of mutants that the tests beside this one kill."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from verify.mutant_runs import BROKEN, KILLED, SURVIVED, TIMEOUT
from verify.mutants import problems_of
from verify.mutation import mutants_of
from verify.mutations import Enums

ROOT = Path(__file__).parent.parent.parent
SOURCE = '''
"""The words at the top."""
from enum import StrEnum

class State(StrEnum):
    """Where it stands."""
    ON = "on"
    OFF = "off"

def next_of(state: State, most: int = 3) -> State:
    """What comes after."""
    assert most
    if most > 2 and state is State.ON:
        raise Invalid(f"It is {state}.")
    return State.OFF
'''
CHANGES = {
    "m.State: ON = '[on -> XX]'",
    "m.State: OFF = '[ -> XX]off'",
    "m.next_of: next_of(state: State, most: int=[3 -> 4])",
    "m.next_of: next_of(state: State, most: int=[3 -> 2])",
    "m.next_of: if [most > 2 and state is State.ON -> True]:",
    "m.next_of: if [most > 2 and state is State.ON -> False]:",
    "m.next_of: if most > 2 [and -> or] state is State.ON:",
    "m.next_of: if [most > 2 and -> ]state is State.ON:",
    "m.next_of: if most > 2[ and state is State.ON -> ]:",
    "m.next_of: if most >[ -> =] 2 and state is State.ON:",
    "m.next_of: if most [> -> <=] 2 and state is State.ON:",
    "m.next_of: if most > [2 -> 3] and state is State.ON:",
    "m.next_of: if most > [2 -> 1] and state is State.ON:",
    "m.next_of: if most > 2 and state is [ -> not ]State.ON:",
    "m.next_of: if most > 2 and state is State.[ON -> OFF]:",
    "m.next_of: [raise Invalid(f'It is {state}.') -> pass]",
    "m.next_of: raise [Invalid -> __import__('holdfast.core.errors').core.errors.Conflict]"
    "(f'It is {state}.')",
    "m.next_of: return [State.OFF -> None]",
    "m.next_of: return State.[OFF -> ON]",
}


def ids(source: str) -> list[str]:
    tree = ast.parse(source)
    return [mutant.id for mutant in mutants_of("m", tree, Enums([tree]))]


def test_every_change_is_made_but_to_words_types_and_asserts() -> None:
    assert set(ids(SOURCE)) == CHANGES
    assert len(ids(SOURCE)) == len(CHANGES)


def test_a_mutant_keeps_its_id_when_other_lines_change() -> None:
    moved = SOURCE.replace("    assert most\n", "    # one more line\n    print(state)\n")

    assert set(ids(moved)) - set(ids(SOURCE)) == {
        "m.next_of: [print(state) -> pass]",
    }
    assert set(ids(SOURCE)) < set(ids(moved))


def test_making_a_mutant_leaves_the_tree_as_it_was() -> None:
    tree = ast.parse(SOURCE)
    before = ast.dump(tree)

    codes = {mutant.code() for mutant in mutants_of("m", tree, Enums([tree]))}

    assert ast.dump(tree) == before
    assert len(codes) == len(CHANGES)


ALL_DEAD = {f"m: {n}": KILLED for n in range(99)}


@pytest.mark.parametrize(
    ("outcomes", "reasons", "words"),
    [
        ({}, {}, "no mutant"),
        ({**ALL_DEAD, "m: x": SURVIVED}, {}, "no reason is given: m: x"),
        ({**ALL_DEAD, "m: x": SURVIVED}, {"m: x": ""}, "no reason is given: m: x"),
        ({**ALL_DEAD, "m: x": KILLED}, {"m: x": "because"}, "does not survive: m: x"),
        (ALL_DEAD, {"m: gone": "because"}, "does not survive: m: gone"),
        ({**ALL_DEAD, "m: x": BROKEN}, {}, "Could not be run: m: x"),
        ({"m: 0": KILLED, "m: x": SURVIVED}, {"m: x": "because"}, "Fewer than 95 %"),
    ],
)
def test_a_claim_that_does_not_hold_says_why(
    outcomes: dict[str, int], reasons: dict[str, str], words: str
) -> None:
    assert any(words in problem for problem in problems_of(outcomes, reasons))


@pytest.mark.parametrize("outcome", [KILLED, TIMEOUT])
def test_a_claim_holds_when_every_survivor_has_its_reason(outcome: int) -> None:
    outcomes = {**ALL_DEAD, "m: x": SURVIVED, "m: y": outcome}

    assert list(problems_of(outcomes, {"m: x": "because"})) == []


@pytest.mark.long
def test_a_sample_of_mutants_dies_and_a_listed_survivor_lives() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "verify.mutants", "--short"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "| **all** | 5 | 4 | 0 | 1 |" in run.stdout


ENDLESS = """
from verify import mutant_runs

def endless(task):
    while task:
        pass
    return mutant_runs.KILLED

mutant_runs._CPU_SECONDS = 1
print(sorted(mutant_runs._each([0, 1], endless, 2)))
"""


def test_a_run_without_end_is_a_timeout() -> None:
    run = subprocess.run(
        [sys.executable, "-c", ENDLESS], cwd=ROOT, capture_output=True, text=True, timeout=120,
        check=True,
    )  # fmt: skip

    assert run.stdout.strip() == f"[(0, {KILLED}), (1, {TIMEOUT})]"
