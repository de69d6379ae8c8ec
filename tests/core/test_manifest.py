"""Tasks, what they are known by, and the lines they are written in.

The ids, seeds and orders here were computed with modelops-contracts itself (63b5f81).
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import Invalid
from holdfast.core.limits import TASK_BYTES_MAX
from holdfast.core.manifest import (
    Scalar,
    Task,
    decode_task,
    describe_difference,
    encode_task,
    param_id,
)
from tests.core.sample_tasks import (
    BUNDLE,
    NAMED_BUNDLE,
    PARAMS,
    PREVALENCE,
    SEEDS,
    SEIR,
    aggregation,
    simulation,
)

OF_ALL_KINDS = {
    "n": 1, "m": 1.0, "t": True, "s": 'é\n"x"\u2028\x7f', "z": -0.0, "big": 1e22, "small": 1e-7,
    "neg": -5, "huge": 2**64 - 1, "a": 1e16, "b": 123456789012345.678,
}  # fmt: skip


@pytest.mark.parametrize(
    ("params", "known_by"),
    [
        ({}, "02a98351d516148f91f93bb0ce4b4cb6468cb40e04263fb6f257e9ba37365b44"),
        (PARAMS, "761edf35ca1634d79a760bfa7030cf07e72a3559b3cdb0c56d20557de35b1e07"),
        (OF_ALL_KINDS, "4e865b77aa3aa757535fdf196b19d1ae77f2a4ea1bb2fc0f652b2420ead8edba"),
    ],
)
def test_parameters_are_known_by_what_the_contracts_say(params: dict[str, Scalar], known_by: str) -> None:
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
    assert describe_difference(task, other) == words


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
        (b"{", "Line 7: it is not a task"),
        (b"[]", "Line 7: it is not a task"),
        (b"\xff", "Line 7: it is not a task"),
        (b'{"bundle":"\xff"}', "Line 7: it is not a task"),
        (b"{} {}", "Line 7: it is not a task"),
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
