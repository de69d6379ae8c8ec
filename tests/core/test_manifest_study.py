"""Studies: their tasks, aggregations and seeds.

Ids, seeds and orders were computed with modelops-contracts itself (63b5f81).
"""

from typing import Any

import pytest

from holdfast.core.errors import Invalid
from holdfast.core.limits import ENTRIES_MAX
from holdfast.core.manifest import (
    MARKER,
    check_task,
    param_id,
    replicate_seeds,
    study,
)
from tests.core.sample_tasks import BUNDLE, PARAMS, PREVALENCE, SEEDS, SEIR, aggregation, simulation


def test_two_parameter_sets_of_three_replicates_with_a_target_make_six_and_two() -> None:
    tasks = list(
        study(
            bundle=BUNDLE,
            entrypoint=SEIR,
            parameter_sets=[PARAMS, {"beta": 0.4, "gamma": 0.1}],
            replicates=3,
            targets=[PREVALENCE],
            outputs=["trace.csv"],
        )
    )

    assert [task.kind for task in tasks] == (["simulation"] * 3 + ["aggregation"]) * 2
    assert tuple(task.seed for task in tasks[:3]) == SEEDS
    assert [task.seed for task in tasks[4:7]] == [97763534, 2339568322, 2130118958]
    assert tasks[0] == simulation(outputs=("trace.csv",))
    assert tasks[3] == aggregation()
    assert tasks[7].aggregation_id == "e7ad32d1697e81ed"
    assert all(check_task(task) is task for task in tasks)


def test_every_target_has_its_aggregation() -> None:
    tasks = study(
        bundle=BUNDLE,
        entrypoint=SEIR,
        parameter_sets=[PARAMS],
        replicates=2,
        targets=[PREVALENCE, "targets.covid/deaths"],
    )

    assert [task.target for task in tasks] == [None, None, PREVALENCE, "targets.covid/deaths"]


@pytest.mark.parametrize(("replicates", "targets"), [(1, [PREVALENCE]), (2, [])])
def test_one_replicate_or_no_target_makes_no_aggregation(replicates: int, targets: list[str]) -> None:
    tasks = study(
        bundle=BUNDLE,
        entrypoint=SEIR,
        parameter_sets=[PARAMS],
        replicates=replicates,
        targets=targets,
    )

    assert [task.kind for task in tasks] == ["simulation"] * replicates


def test_a_study_has_one_replicate_unless_it_says_otherwise() -> None:
    tasks = study(bundle=BUNDLE, entrypoint=SEIR, parameter_sets=[PARAMS])

    assert list(tasks) == [simulation()]


def test_a_study_keeps_its_parameters_when_those_it_was_given_change() -> None:
    params: dict[str, bool | int | float | str] = dict(PARAMS)
    tasks = study(bundle=BUNDLE, entrypoint=SEIR, parameter_sets=[params])

    task = next(tasks)
    params["beta"] = 9.0

    assert task.params == PARAMS


def test_a_parameter_set_that_is_there_twice_is_refused() -> None:
    tasks = study(bundle=BUNDLE, entrypoint=SEIR, parameter_sets=[{}, {"a": 1}, {"a": 2}, {"a": 1}])

    with pytest.raises(Invalid, match="sets 2 and 4 are the same"):
        list(tasks)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"replicates": 0}, "from 1 to 10,000,000 replicates, not 0"),
        ({"replicates": ENTRIES_MAX + 1}, "replicates, not 10000001"),
        ({"targets": ["a", "b", "a"]}, "A target is named twice"),
    ],
)
def test_a_study_that_cannot_be_is_refused_before_its_first_task(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        study(**{"bundle": BUNDLE, "entrypoint": SEIR, "parameter_sets": [], **changes})


def test_a_study_takes_as_many_replicates_as_a_manifest_has_lines() -> None:
    assert study(bundle=BUNDLE, entrypoint=SEIR, parameter_sets=[], replicates=ENTRIES_MAX)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bundle": "latest"}, "The bundle 'latest'"),
        ({"parameter_sets": [{"x": None}]}, "Parameter x is a NoneType"),
        ({"outputs": [MARKER]}, "cannot be called result.json"),
        ({"targets": ["../x"], "replicates": 2}, "The target '../x'"),
    ],
)
def test_the_tasks_of_a_study_are_checked(changes: dict[str, Any], words: str) -> None:
    tasks = study(**{"bundle": BUNDLE, "entrypoint": SEIR, "parameter_sets": [{}], **changes})

    with pytest.raises(Invalid, match=words):
        list(tasks)


def test_replicates_have_the_seeds_that_the_contracts_say() -> None:
    assert replicate_seeds(param_id(PARAMS), 3) == SEEDS
    assert replicate_seeds(param_id(PARAMS), 0) == ()


def test_replicates_with_the_same_seed_are_one_and_the_next_takes_its_place() -> None:
    known_by = param_id({"x": 1063})  # its seeds of index 1943 and of one before are the same

    seeds = replicate_seeds(known_by, 1950)

    assert len(set(seeds)) == len(seeds) == 1950
    assert seeds == replicate_seeds(known_by, 1951)[:-1]
    assert 201202924 in seeds
