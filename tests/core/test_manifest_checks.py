"""The checks of a task: what it may be, and what is refused with which words."""

import math

import msgspec
import pytest

from holdfast.core.errors import Invalid
from holdfast.core.limits import OUTPUT_NAME_CHARACTERS_MAX, TASK_BYTES_MAX
from holdfast.core.manifest import (
    MARKER,
    Task,
    check_task,
    check_task_output,
)
from tests.core.sample_tasks import BUNDLE, NAMED_BUNDLE, SEIR, aggregation, simulation


class Float(float):
    """As the numbers of numpy are."""


@pytest.mark.parametrize(
    "task",
    [
        simulation(bundle=NAMED_BUNDLE),
        simulation(bundle=f"localhost:5000/a-b@{BUNDLE}"),
        simulation(bundle="n" * (OUTPUT_NAME_CHARACTERS_MAX - 72) + f"@{BUNDLE}"),
        simulation(entrypoint="targets:loss"),
        simulation(entrypoint="e" * OUTPUT_NAME_CHARACTERS_MAX),
        simulation(entrypoint="modèle"),
        simulation(params={"x": 2**64 - 1, "y": -(2**63), "z": 1e308, "n" * 1024: "ü"}),
        simulation(seed=0),
        simulation(seed=2**64 - 1),
        simulation(outputs=("a", "b")),
        aggregation(seeds=(0, 2**64 - 1)),
        aggregation(seeds=(5,)),
        aggregation(target="a_b.c/d:e-9"),
        aggregation(target="_"),
        aggregation(target="t" * 128),
    ],
)
def test_what_a_task_may_be(task: Task) -> None:
    assert check_task(task) is task


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (simulation(bundle=""), "The bundle ''"),
        (simulation(bundle=BUNDLE[7:]), "The bundle"),
        (simulation(bundle=BUNDLE + "0"), "The bundle"),
        (simulation(bundle=BUNDLE[:-1]), "The bundle"),
        (simulation(bundle=BUNDLE + "\n"), "The bundle"),
        (simulation(bundle=BUNDLE.upper()), "The bundle"),
        (simulation(bundle=f"@{BUNDLE}"), "The bundle"),
        (simulation(bundle=f"a|b@{BUNDLE}"), "The bundle"),
        (simulation(bundle=f"a b@{BUNDLE}"), "The bundle"),
        (simulation(bundle=f"a@b@{BUNDLE}"), "The bundle"),
        (simulation(bundle=f"x{BUNDLE}"), "The bundle"),
        (
            simulation(bundle="n" * (OUTPUT_NAME_CHARACTERS_MAX - 71) + f"@{BUNDLE}"),
            "^The bundle has 1,025",
        ),
        (simulation(bundle=f"\ud800@{BUNDLE}"), "The bundle contains what is not text"),
        (simulation(entrypoint=""), "The entrypoint ''"),
        (simulation(entrypoint="a|b"), "The entrypoint"),
        (simulation(entrypoint="a b"), "The entrypoint"),
        (simulation(entrypoint="/a"), "The entrypoint"),
        (simulation(entrypoint="a\n"), "The entrypoint"),
        (
            simulation(entrypoint="e" * (OUTPUT_NAME_CHARACTERS_MAX + 1)),
            "^The entrypoint has 1,025",
        ),
        (simulation(params={"x": 2**64}), "Parameter x is .* more than 64 bits"),
        (simulation(params={"x": -(2**63) - 1}), "Parameter x is .* more than 64 bits"),
        (simulation(params={"x": math.inf}), "Parameter x is inf"),
        (simulation(params={"x": None}), "Parameter x is a NoneType"),
        (simulation(params={"x": [1]}), "Parameter x is a list"),
        (simulation(params={"x": Float(1.0)}), "Parameter x is a Float"),
        (simulation(params={"x": "a\0"}), "Parameter x contains a NUL"),
        (simulation(params={"x": "y" * (TASK_BYTES_MAX + 1)}), "^Parameter x has 1,048,577"),
        (simulation(params={"\ud800": 1}), "The name of a parameter contains what is not text"),
        (simulation(params={"n" * 1025: 1}), "^The name of a parameter has 1,025"),
        (simulation(outputs=("../a",)), "An output cannot be called '../a'"),
        (simulation(outputs=("a", MARKER)), "An output cannot be called result.json"),
        (simulation(outputs=("a", "b", "a")), "An output is named twice"),
        (simulation(seed=None), "A simulation needs a seed"),
        (simulation(seed=-1), "A seed is a whole number from 0 to .*, not -1"),
        (simulation(seed=2**64), "A seed is"),
        (simulation(seed=True), "A seed is .* not True"),
        (simulation(seed=1.0), "A seed is .* not 1.0"),
        (simulation(target="t"), "A simulation has neither a target nor seeds"),
        (simulation(seeds=(1,)), "A simulation has neither a target nor seeds"),
        (aggregation(seed=0), "An aggregation has no seed"),
        (aggregation(target=None), "An aggregation needs a target"),
        (aggregation(target=""), "The target ''"),
        (aggregation(target="/a"), "The target '/a'"),
        (aggregation(target="a b"), "The target 'a b'"),
        (aggregation(target="é"), "The target 'é'"),
        (aggregation(target="a\n"), "The target"),
        (aggregation(target="t" * 129), "^The target has 129 characters"),
        (aggregation(seeds=()), "An aggregation needs the seeds"),
        (aggregation(seeds=(1, -1)), "A seed is .*, not -1"),
        (aggregation(seeds=(1, 2, 1)), "A seed is there twice"),
    ],
)
def test_what_a_task_may_not_be(task: Task, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        check_task(task)


def test_no_file_of_a_result_has_the_name_of_its_marker() -> None:
    assert MARKER == "result.json"
    assert check_task_output("trace.csv") == "trace.csv"
    with pytest.raises(Invalid, match="that file marks the result as complete"):
        check_task_output(MARKER)


def test_a_task_needs_a_bundle_and_an_entrypoint_and_has_little_else_at_first() -> None:
    task = Task(bundle=BUNDLE, entrypoint=SEIR)

    assert msgspec.structs.asdict(task) == {
        "kind": "simulation",
        "bundle": BUNDLE,
        "entrypoint": SEIR,
        "params": {},
        "seed": None,
        "outputs": (),
        "target": None,
        "seeds": (),
    }
