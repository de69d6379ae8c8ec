"""The frame that measures other systems, tried on ourselves with few jobs; and its page with awkward values.
Nothing here is about speed."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from environments import Environment
from peers.budget import Budget
from peers.charts import Bar, Line, bars, lines, ranges
from peers.drains import settled_rate
from peers.figures import (
    BULK,
    DEFAULT_DRAIN,
    DRAIN,
    HELD,
    LONG_DRAIN,
    P50,
    P95,
    P99,
    RECOVERY,
    SINGLE,
    STORED,
    UNDISTURBED,
    Found,
    behind,
)
from peers.measurements import attempt
from peers.outcome import Entry, Outcome
from peers.page import cell, page, write
from peers.plan import Plan
from peers.plots import plots
from peers.run import install, measure
from peers.size import FULL, SMOKE
from peers.sizes import Sizes
from peers.soak import Mark, Soak
from peers.soak_tables import growth
from peers.systems import PROGRAMS, SYSTEMS

OURS = [system for system in SYSTEMS if system.ours]
SIZE = replace(SMOKE, soak_seconds=4.0)
"""Long enough for a job to end under the eyes of the soak, on a machine that has other things to do."""
OTHER = next(system for system in SYSTEMS if not system.ours)
NOWHERE = Environment([], {})


def outcome(*entries: Entry, soaks: list[Soak] | None = None) -> Outcome:
    return Outcome(FULL, Budget(60.0), list(entries), {"SQLite": Found()}, soaks or [], {"date": "now"})


def mark(seconds: float, jobs: int, bytes_each: int) -> Mark:
    sizes = Sizes(jobs * bytes_each, 0, jobs, 4 * jobs, None, None)
    return Mark(seconds, jobs, 1.0, 2.0, 3.0, 50.0, 1.0, sizes)


@pytest.mark.long
@pytest.mark.slow
def test_the_frame_has_a_figure_for_everything_it_measures_of_us(tmp_path: Path) -> None:
    found = measure(Plan(OURS, SIZE), tmp_path / "cache")

    assert found.failures == []
    wanted = {BULK, SINGLE, DRAIN, P50, P95, P99, RECOVERY, *map(behind, SIZE.levels)}
    wanted |= {DEFAULT_DRAIN, STORED, UNDISTURBED, HELD, "claim_dead_ms", "page_label_p99_ms"}
    for entry in found.entries:
        figures = entry.found.figures
        assert wanted <= set(figures)
        assert all(value > 0 for name in wanted for value in figures[name])
        assert entry.found.missing[LONG_DRAIN].startswith("not run, would take")
        assert len(found.limits[entry.system.store].figures[DRAIN]) == 2 * SIZE.rounds
    for soak in found.soaks:
        assert soak.sent == SIZE.soak_rate * SIZE.soak_seconds
        assert soak.marks[-1].sizes.jobs >= soak.marks[-1].jobs > 0
        assert soak.marks[-1].sizes.tables > 0
    write(found, tmp_path)
    text = (tmp_path / "peers.md").read_text(encoding="utf-8")
    assert all(f"**{entry.system.title}**" in text for entry in found.entries)
    for name in ("drain", "latency", "soak"):
        ElementTree.parse(tmp_path / f"peers-{name}.svg")


def test_a_step_that_goes_wrong_is_a_gap_that_says_so_and_counts_only_for_us() -> None:
    def broken() -> None:
        raise ValueError("no | such\nthing")

    ours, other = Entry(OURS[0], environment=NOWHERE), Entry(OTHER, environment=NOWHERE)
    for entry in (ours, other):
        assert not attempt(entry.found, [DRAIN], broken)

    assert outcome(other).failures == []
    assert outcome(ours).failures == [f"{OURS[0].title}: no | such\nthing"]
    text = page(outcome(other), [])
    assert "failed, see below" in text
    assert f"- {OTHER.title}: no | such thing" in text


def test_a_cell_cannot_break_its_table() -> None:
    assert cell("a|b\nc") == "a\\|b c"
    assert len(cell("x" * 1000)) < 200


def test_figures_that_are_missing_small_large_or_odd_are_all_told() -> None:
    entry = Entry(OTHER, environment=NOWHERE)
    entry.found.add(BULK, 123_456.7)
    entry.found.add(BULK, 0.0)
    entry.found.add(DRAIN, 12.0)
    entry.found.remarks[DRAIN] = "stopped after 15 s at 180 of 20,000"
    entry.found.lack(LONG_DRAIN, "not run, would take 8,333 s")
    entry.found.add(P50, 0.001)
    entry.found.add(P99, 0.0)

    text = page(outcome(entry), [])

    assert "| 123,457 (0.00 .. 123,457) |" in text
    assert "| 12.0; stopped after 15 s at 180 of 20,000 |" in text
    assert "| not run, would take 8,333 s |" in text
    assert "| not measured |" in text
    for picture in (write(outcome(entry), None), bars("t", "u", {}), ranges("<&>", "u", [])):
        assert picture


def test_a_run_for_the_table_has_a_page_of_its_own_without_what_it_leaves_out(tmp_path: Path) -> None:
    entry = Entry(OURS[0], environment=NOWHERE)
    entry.found.add(DRAIN, 12.0)
    part = replace(outcome(entry), whole=False)

    text = write(part, tmp_path)

    assert {file.name for file in tmp_path.iterdir()} == {"table.md", "table.json", "table-drain.svg"}
    assert "![table-drain.svg](table-drain.svg)" in text
    assert "## Soak" in page(outcome(entry), [])
    assert not any(f"## {name}" in text for name in ("Claims beside", "Recovery", "Soak"))


def test_plots_are_well_formed_with_gaps_zeros_and_signs() -> None:
    rows = [Bar("a <b> & c", None, "not run"), Bar("d", 0.0, "0"), Bar("e", 5.0, "5", end=2.0)]
    drawn = [Line("one", [(0.0, 0.0)], "#000"), Line("none", [], "#000")]

    for picture in (
        bars("t", "u", {"<g>": rows}),
        ranges("t", "u", rows),
        lines("t", "u", [], drawn),
    ):
        ElementTree.fromstring(picture)


def test_claims_are_drawn_for_whoever_was_measured_at_more_than_one_level() -> None:
    many, one = Entry(OURS[0]), Entry(OTHER)
    for entry, levels in ((many, FULL.levels), (one, FULL.levels[:1])):
        for level in levels:
            entry.found.add(behind(level), 1_000.0)

    picture = plots(outcome(many, one))["peers-claims.svg"]

    assert OURS[0].name in picture
    assert OTHER.name not in picture
    assert "peers-claims.svg" not in plots(outcome(one))


def test_a_head_start_is_not_in_the_settled_rate() -> None:
    batches = [(0.0, 5_000), (1.0, 10_000), (2.0, 15_000), (3.0, 20_000)]

    assert settled_rate(batches) == 5_000
    assert settled_rate([(0.0, 10), (1.0, 200)]) == 190
    assert settled_rate([(5.0, 200)]) == pytest.approx(200_000)


def test_what_grows_faster_than_the_jobs_is_seen() -> None:
    steady = Soak("a", 10, [mark(60, 100, 500), mark(120, 200, 500)])
    bloated = Soak("b", 10, [mark(60, 100, 500), mark(120, 200, 900)])

    assert growth(steady) == (500, 500)
    assert growth(bloated) == (500, 900)
    assert "bytes per job: 500 and 900" in page(outcome(soaks=[bloated]), [])
    assert "no mark was reached" in page(outcome(soaks=[Soak("c", 10, failures=["it broke"])]), [])


def test_a_system_that_cannot_be_installed_is_a_row_that_says_why(tmp_path: Path) -> None:
    lost = replace(OTHER, program="run_nothing.py")
    run = outcome(Entry(lost))

    install(run, tmp_path)

    assert run.failures == []
    assert "| not installed: there is no program for it |" in page(run, [])


def test_steps_that_would_eat_into_what_is_reserved_have_no_room() -> None:
    budget = Budget(100.0, reserved=60.0)

    assert budget.room(30.0)
    assert not budget.room(41.0)


def test_every_system_is_pinned_and_says_what_it_guarantees() -> None:
    for system in SYSTEMS:
        assert system.program.startswith("run_")
        assert (PROGRAMS / system.program).exists(), system.program
        assert all("==" in package or "@" in package for package in system.packages)
        assert all(vars(system.guarantees).values())
    assert len({system.title for system in SYSTEMS}) == len(SYSTEMS)
