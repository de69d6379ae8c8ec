"""The benchmark of outputs in its shortest form: bounds far above the targets, which only a collapse
goes through; and what it measures is what it says it measures."""

from pathlib import Path

import pytest

from outputs import measure, middle, page

OUTPUTS = 2_000
SECONDS_MAX, PLAN_SECONDS_MAX, MEGABYTES_MAX = 10, 5, 100


@pytest.mark.slow
def test_looking_for_outputs_has_not_become_many_times_slower(tmp_path: Path) -> None:
    measured = measure(tmp_path, OUTPUTS, rounds=1)

    found = {name: middle(said) for name, said in measured.items()}
    assert found["bare all"]["files"] == 2 * OUTPUTS
    assert found["resume few"]["missing"] == OUTPUTS // 100
    assert found["resume most"]["missing"] == OUTPUTS - 1
    assert found["validate all"]["seconds"] < SECONDS_MAX
    assert found["validate all"]["megabytes"] < MEGABYTES_MAX
    assert found["resume most"]["seconds"] < PLAN_SECONDS_MAX
    assert [figure.name for figure in page(measured, OUTPUTS) if figure.missed] == []
