"""The short form of the benchmark: what counts as a loss, and that it measures what it compares."""

import asyncio
import json
from pathlib import Path

import pytest

from short import KEPT, LOSS_MAX, WORKER, Rates, lost, main, shares_of, table

BENCH = Path(__file__).parents[2] / "bench"


def rates(ours: float, limit: float = 100.0) -> dict[str, Rates]:
    return {"SQLite": Rates({WORKER: limit}, {WORKER: ours})}


@pytest.mark.parametrize(("now", "is_lost"), [(60.0, False), (41.0, False), (39.0, True), (0.0, True)])
def test_more_than_a_third_is_a_loss(now: float, is_lost: bool) -> None:
    kept = shares_of(rates(60.0))
    assert pytest.approx(1 / 3) == LOSS_MAX
    assert bool(lost(shares_of(rates(now)), kept)) is is_lost


def test_what_was_not_measured_is_lost() -> None:
    assert lost({}, {"SQLite, drain by workers": 0.3}) == ["SQLite, drain by workers"]


def test_the_table_says_what_was_kept() -> None:
    lines = table(rates(25.0), {f"SQLite, {WORKER}": 0.5}).splitlines()
    assert lines[-1] == f"| SQLite, {WORKER} | 25 | 100 | 0.25 | 0.50 |"


@pytest.mark.long
@pytest.mark.slow
def test_what_is_kept_is_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that its rates say nothing."""
    monkeypatch.setattr("short.ROUNDS", 1)

    found = shares_of(asyncio.run(main(1_000)))

    assert set(json.loads(KEPT.read_text(encoding="utf-8"))) == set(found)
    assert all(share > 0 for share in found.values())
