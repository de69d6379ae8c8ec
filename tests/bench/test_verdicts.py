"""The table of issue 21: what is held, what is not, and what nobody knows. Nothing here is about speed."""

from dataclasses import replace

import pytest

from environments import NotInstalled
from peers.before import BEFORE, earlier, systems_before
from peers.figures import BULK, DRAIN, HELD, LONG_DRAIN, P50, SINGLE, STORED, UNDISTURBED, WAL, Found
from peers.outcome import Entry
from peers.plan import Plan
from peers.size import QUICK
from peers.systems import OURS, SYSTEMS
from peers.verdicts import LEFT_OUT, NAMES, Bound, held, steadiness, table
from servers import Kind


def entry(name: str, store: Kind, **figures: float) -> Entry:
    whose = OURS if name == BEFORE else name
    found = next(s for s in SYSTEMS if (s.name, s.store) == (whose, store) and s.variant not in LEFT_OUT)
    made = Entry(replace(found, name=name))
    for figure, value in figures.items():
        made.found.add(figure, value)
    return made


def line(lines: list[str], what: str) -> list[str]:
    """The cells of must, goal, measured and whether both are held."""
    [found] = [line for line in lines if line.startswith(f"| {what}")]
    return [cell.strip() for cell in found.split("|")[2:-1]]


@pytest.mark.parametrize(
    ("value", "limit", "least", "expected"),
    [
        (2.0, 2.0, True, True),
        (1.99, 2.0, True, False),
        (50.0, 50.0, False, True),
        (50.1, 50.0, False, False),
        (None, 2.0, True, None),
        (2.0, None, True, None),
    ],
)
def test_a_bound_holds_up_to_its_limit(
    value: float | None, limit: float | None, least: bool, expected: bool | None
) -> None:
    assert Bound("", value, limit, least).held is expected


def test_one_bound_that_is_missed_is_enough_and_one_that_is_unknown_is_not() -> None:
    kept, missed, unknown = Bound("", 2.0, 1.0), Bound("", 1.0, 2.0), Bound("", None, 1.0)

    assert held((kept, kept)) == "yes"
    assert held((kept, unknown)) == "not measured"
    assert held((kept, unknown, missed)) == "no"
    assert held(()) == ""


def test_ours_is_held_against_before_and_against_the_peers() -> None:
    entries = [
        entry(OURS, "PostgreSQL", **{DRAIN: 40_000, BULK: 60_000, WAL: 800, STORED: 950, P50: 4.0}),
        entry(BEFORE, "PostgreSQL", **{DRAIN: 20_000, BULK: 30_000, WAL: 2_500, STORED: 2_000, P50: 3.0}),
        entry("PgQueuer", "PostgreSQL", **{DRAIN: 30_000, BULK: 50_000, SINGLE: 2_000, P50: 5.0}),
        entry("pg-boss", "PostgreSQL", **{DRAIN: 50_000, BULK: 80_000, P50: 9.0}),
    ]

    lines = table(entries, {})

    drain = line(lines, "PostgreSQL drain, two workers, `-c 1000` ")
    assert drain[:2] == ["≥ 2.0 x before · ahead of PgQueuer", "ahead of pg-boss 12"]
    assert "40,000 (before: 20,000, 2 x), 1.33 x PgQueuer, 0.8 x pg-boss" in drain[2]
    assert drain[3:] == ["yes", "no"]
    assert line(lines, "WAL per job")[3:] == ["yes", "no"]
    assert line(lines, "tables and indexes per ended job")[3:] == ["no", "no"]
    assert line(lines, "bulk enqueue, PostgreSQL")[3:] == ["yes", "no"]
    assert "4 (before: 3, 1.33 x) ms, 0.8 x the best peer" in line(lines, "idle p50, PostgreSQL")
    assert line(lines, "idle p50, PostgreSQL")[3:] == ["yes", "yes"]
    assert line(lines, "one awaited enqueue, PostgreSQL")[3:] == ["not measured", "not measured"]


def test_sqlite_is_held_against_the_bare_script_and_half_of_what_it_took_before() -> None:
    limit = Found()
    limit.add(DRAIN, 50_000)
    entries = [
        entry(
            OURS,
            "SQLite",
            **{DRAIN: 36_000, LONG_DRAIN: 32_000, STORED: 480, SINGLE: 1_900, UNDISTURBED: 100, HELD: 89},
        ),
        entry(BEFORE, "SQLite", **{DRAIN: 18_000, STORED: 990}),
        entry("huey", "SQLite", **{DRAIN: 4_000, SINGLE: 2_000}),
    ]

    lines = table(entries, {"SQLite": limit})

    assert line(lines, "SQLite drain, one worker, `-c 1000` ")[3:] == ["yes", "yes"]
    assert "0.64 of the bare script, 8 x huey" in line(lines, "SQLite drain, one worker, `-c 1000`, many")[2]
    assert line(lines, "file bytes per ended job")[3:] == ["yes", ""]
    assert line(lines, "one awaited enqueue, SQLite")[3:] == ["yes", "no"]
    assert line(lines, "drain while another session holds a snapshot, SQLite")[3:] == ["no", "no"]


def test_claims_are_held_against_the_same_claims_alone() -> None:
    figures = {"claim_few_ms": 4.0, "claim_queued_ms": 4.7, "claim_kind_alone_ms": 4.0}
    entries = [entry(OURS, "PostgreSQL", **figures, claim_kind_beside_ms=18.0, page_owner_p99_ms=51.0)]

    lines = table(entries, {})

    queued = line(lines, "claim behind many queued rows, PostgreSQL")
    assert "4.7 ms: 1.18 x" in queued[2]
    assert queued[3] == "yes"
    assert line(lines, "claim behind many dead rows, PostgreSQL")[3] == "not measured"
    assert line(lines, "claim by kind beside many that do not fit, PostgreSQL")[3] == "no"
    assert line(lines, "a page by owner, p99, PostgreSQL")[3] == "no"


def test_a_run_without_us_has_no_such_table() -> None:
    assert table([entry("PgQueuer", "PostgreSQL", drain=1.0)], {}) == []


def test_how_far_the_machine_itself_moved_is_told() -> None:
    limit = Found()
    for rate in (20_000, 30_000, 25_000):
        limit.add(DRAIN, rate)

    assert "1.5 times on SQLite as fast" in steadiness({"SQLite": limit, "PostgreSQL": Found()})
    assert "unknown" in steadiness({})


def test_before_comes_beside_ours_on_the_stores_that_are_measured() -> None:
    ours = [system for system in SYSTEMS if system.ours]
    others = [system for system in SYSTEMS if system.name == "PgQueuer"]

    planned = Plan([*ours, *others], QUICK, before="0123456").all

    assert [system.name for system in planned] == [OURS, OURS, BEFORE, BEFORE, "PgQueuer"]
    assert [system.version for system in planned[2:4]] == ["0123456"] * 2
    assert not any(system.ours for system in systems_before("0123456"))
    assert [system.name for system in Plan(others, QUICK, before="0123456").all] == ["PgQueuer"]


def test_every_system_the_table_speaks_of_is_measured() -> None:
    assert set(NAMES) <= {system.name for system in SYSTEMS} | {BEFORE}


def test_a_revision_that_nobody_has_is_said_to_be_missing() -> None:
    with pytest.raises(NotInstalled, match="no-such-revision"), earlier("no-such-revision"):
        pass
