"""Tasks, what they are known by, and the lines they are written in.

The ids, seeds and orders here were computed with modelops-contracts itself (63b5f81).
"""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import Invalid
from holdfast.core.limits import ENTRIES_MAX, OUTPUT_NAME_CHARACTERS_MAX, TASK_BYTES_MAX
from holdfast.core.manifest import (
    MARKER,
    Scalar,
    Task,
    check_task,
    check_task_output,
    decode_task,
    difference,
    encode_task,
    param_id,
    replicate_seeds,
    study,
)

BUNDLE = "sha256:" + "0123456789abcdef" * 4
NAMED_BUNDLE = f"ghcr.io/idm/seir@{BUNDLE}"
SEIR = "models.seir/baseline"
PREVALENCE = "targets.prevalence:prevalence_target"
PARAMS = {"beta": 0.3, "gamma": 0.1}
SEEDS = (751131435, 2264224431, 472503505)
OF_ALL_KINDS = {
    "n": 1, "m": 1.0, "t": True, "s": 'é\n"x"\u2028\x7f', "z": -0.0, "big": 1e22, "small": 1e-7,
    "neg": -5, "huge": 2**64 - 1, "a": 1e16, "b": 123456789012345.678,
}  # fmt: skip


def simulation(**changes: Any) -> Task:  # noqa: ANN401  # also what is refused
    fields = {"bundle": BUNDLE, "entrypoint": SEIR, "params": PARAMS, "seed": SEEDS[0], **changes}
    return Task(**fields)


def aggregation(**changes: Any) -> Task:  # noqa: ANN401
    given = {"kind": "aggregation", "seed": None, "target": PREVALENCE, "seeds": SEEDS}
    return simulation(**{**given, **changes})


# What it is known by


@pytest.mark.parametrize(
    ("params", "known_by"),
    [
        ({}, "02a98351d516148f91f93bb0ce4b4cb6468cb40e04263fb6f257e9ba37365b44"),
        (PARAMS, "761edf35ca1634d79a760bfa7030cf07e72a3559b3cdb0c56d20557de35b1e07"),
        (OF_ALL_KINDS, "4e865b77aa3aa757535fdf196b19d1ae77f2a4ea1bb2fc0f652b2420ead8edba"),
    ],
)
def test_parameters_are_known_by_what_the_contracts_say(
    params: dict[str, Scalar], known_by: str
) -> None:
    backwards = dict(reversed(params.items()))

    assert param_id(params) == param_id(backwards) == simulation(params=params).param_id == known_by


def test_one_and_one_point_nought_and_true_are_other_parameters() -> None:
    assert len({param_id({"x": value}) for value in (1, 1.0, True, "1")}) == 4


def test_a_bundle_has_the_digest_that_it_names() -> None:
    assert simulation().digest == simulation(bundle=NAMED_BUNDLE).digest == BUNDLE[7:]


@pytest.mark.parametrize(
    ("bundle", "ids", "known_by"),
    [
        (BUNDLE, "f6f086e1fe0488bcb24442bd45e2d87f", "e5e491d5edf0eff3"),
        (NAMED_BUNDLE, "460c33069e3bb9dc117fbe3889ce97c0", "58620bcc2f9f2086"),
    ],
)
def test_tasks_are_known_by_what_the_contracts_say(bundle: str, ids: str, known_by: str) -> None:
    one, whole = simulation(bundle=bundle), aggregation(bundle=bundle)

    assert one.task_id == ids
    assert one.aggregation_id is None
    assert whole.aggregation_id == known_by
    assert aggregation(bundle=bundle, seeds=SEEDS[::-1]).aggregation_id == known_by


def test_an_aggregation_has_an_id_of_its_own_in_whatever_order_its_seeds_are() -> None:
    assert aggregation().task_id == "3dca3218cf11db729fc0daeb91c4f9da"
    assert aggregation(seeds=SEEDS[::-1]).task_id == aggregation().task_id


def test_every_part_of_a_task_makes_another_id_and_another_name() -> None:
    tasks = [
        simulation(),
        simulation(bundle=BUNDLE[:-1] + "0"),
        simulation(entrypoint="models.seir/lockdown"),
        simulation(params={"beta": 0.3}),
        simulation(seed=0),
        aggregation(),
        aggregation(entrypoint="models.seir/lockdown"),
        aggregation(params={"beta": 0.3}),
        aggregation(target="targets.covid/deaths"),
        aggregation(seeds=SEEDS[:2]),
    ]

    assert len({task.task_id for task in tasks}) == len(tasks)
    assert len({task.name for task in tasks}) == len(tasks)


def test_a_name_says_what_its_path_says() -> None:
    assert simulation().name == "params_761edf35.seed_751131435.f6f086e1fe04"
    assert aggregation().name == f"target_{PREVALENCE}.agg_e5e491d5edf0eff3"


@pytest.mark.parametrize(
    ("task", "other", "words"),
    [
        (simulation(), simulation(outputs=("trace.csv",)), None),
        (simulation(), simulation(bundle=NAMED_BUNDLE), None),
        (aggregation(), aggregation(seeds=SEEDS[::-1]), None),
        (simulation(), aggregation(), "a task of another kind (aggregation)"),
        (simulation(), simulation(bundle=BUNDLE[:-1] + "0"), "another bundle"),
        (simulation(), simulation(entrypoint="m:other"), "another entrypoint (m:other)"),
        (simulation(params={"x": 1}), simulation(params={"x": True}), "other parameters"),
        (simulation(), simulation(seed=7), "another seed"),
        (aggregation(), aggregation(target="t"), "another target (t)"),
        (aggregation(), aggregation(seeds=(*SEEDS, 1)), "other replicates"),
    ],
)
def test_a_difference_is_said_in_words(task: Task, other: Task, words: str | None) -> None:
    assert difference(task, other) == words


# Studies


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
def test_one_replicate_or_no_target_makes_no_aggregation(
    replicates: int, targets: list[str]
) -> None:
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
def test_a_study_that_cannot_be_is_refused_before_its_first_task(
    changes: dict[str, Any], words: str
) -> None:
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


# Lines

SCALARS = (
    st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@given(params=st.dictionaries(NAMES, SCALARS, max_size=5), seed=st.integers(0, 2**64 - 1))
def test_a_task_is_read_as_it_was_written(params: dict[str, Scalar], seed: int) -> None:
    task = simulation(params=params, seed=seed, outputs=("trace.csv", "loss.csv"))

    line = encode_task(task)

    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    again = decode_task(line, 1)
    assert again == task
    assert again.task_id == task.task_id
    assert encode_task(again) == line


def test_a_line_says_what_is_not_as_usual_and_parameters_in_their_order() -> None:
    task = Task(bundle=BUNDLE, entrypoint=SEIR, params={"b": 2, "a": 1.0}, seed=7)

    assert encode_task(task) == (
        b'{"bundle":"%s","entrypoint":"models.seir/baseline","params":{"a":1.0,"b":2},"seed":7}\n'
        % BUNDLE.encode()
    )
    assert decode_task(encode_task(aggregation()), 1) == aggregation()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "Line 7: it is empty"),
        (b" \n", "Line 7: it is empty"),
        (b"{", "Line 7: it is no task"),
        (b"[]", "Line 7: it is no task"),
        (b"\xff", "Line 7: it is no task"),
        (b'{"bundle":"\xff"}', "Line 7: it is no task"),
        (b"{} {}", "Line 7: it is no task"),
        (b'{"entrypoint":"a/b","seed":1}', "missing required field `bundle`"),
        (b'{"bundle":"b","entrypoint":"a","sead":1}', "unknown field `sead`"),
        (b'{"bundle":"b","entrypoint":"a","kind":"other"}', "Invalid enum value 'other'"),
        (b'{"bundle":"b","entrypoint":"a","seed":1.5}', "got `float`"),
        (b'{"bundle":"b","entrypoint":"a","params":{"x":null}}', "got `null`"),
        (b'{"bundle":"b","entrypoint":"a","params":{"x":1e999}}', "out of range"),
        (b'{"bundle":"b","entrypoint":"a","params":{"x":' + b"[" * 100_000, "got `array`"),
        (b'{"bundle":"b","entrypoint":"a","y":' + b"[" * 100_000, "unknown field"),
        (b'{"bundle":"b","entrypoint":"a","seed":1}', "Line 7: The bundle 'b'"),
    ],
)
def test_a_line_that_is_no_task_is_named(line: bytes, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        decode_task(line, 7)


def test_a_line_is_taken_up_to_its_limit() -> None:
    line = encode_task(simulation())
    most = line + b" " * (TASK_BYTES_MAX - len(line))

    assert decode_task(most, 1) == simulation()
    with pytest.raises(Invalid, match="Line 7: A task has 1,048,577 bytes"):
        decode_task(most + b" ", 7)


def test_a_task_too_long_for_a_line_is_not_written() -> None:
    room = TASK_BYTES_MAX - len(encode_task(simulation(params={"x": ""})))

    assert len(encode_task(simulation(params={"x": "y" * room}))) == TASK_BYTES_MAX
    with pytest.raises(Invalid, match=r"^A task has 1,048,577 bytes"):
        encode_task(simulation(params={"x": "y" * (room + 1)}))


def test_what_is_wrong_is_not_written() -> None:
    with pytest.raises(Invalid, match="is nan; only finite numbers"):
        encode_task(simulation(params={"x": math.nan}))


# What is taken


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
    with pytest.raises(Invalid, match="that is what says it is whole"):
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
