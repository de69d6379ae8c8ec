"""The page of verify.postgres_faults: whatever is wrong in its runs, it does not say that it holds."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from holdfast.testing.history import Entry
from holdfast.testing.job_timeline import Violation
from verify.kills_harness import ForkedProcesses
from verify.kills_runs import Load, Tally
from verify.postgres_fault_runs import FAULTS, Fault, Outages
from verify.postgres_faults import Results, section
from verify.postgres_order_runs import Orders
from verify.postgres_race_runs import ChaosResult, Races

LOST = Violation("job-1", "I11", "enqueue op-1 was answered, and is not there")


def outages(*violations: Violation, equal: bool = True, unknown: bool = True, silence: int = 1) -> Outages:
    """A server that went away at 1 s in every way, was back at 2 s, and answered `silence` s later."""
    answers = [("ok", 2 + silence), *([("info", 2)] if unknown else [])]
    return Outages(
        entries=[
            Entry(process="p0", number=n, at_ns=at * 10**9, type=kind)  # type: ignore[arg-type]
            for n, (kind, at) in enumerate(answers)
        ],
        faults=[Fault(name, 10**9, 2 * 10**9) for name in FAULTS],
        violations=list(violations),
        equal=equal,
        events=1,
        commits=1,
        retries=0,
    )


def results() -> Results:
    caught = Tally()
    caught.lost = ["control_kills: done b queued 1"]
    return Results(
        outages=outages(),
        control=outages(LOST),
        claims=Races([1, 1], {1}, commits=100, retries=4),
        acquires=Races([1], {1}, commits=1, retries=20),
        orders=Orders(calls=800, longest_seconds=1.0),
        deadlocks=0,
        deaths=Tally(),
        deaths_control=caught,
        load=Load(cast("ForkedProcesses", None), Path(), 0),
        chaos=ChaosResult(jobs=10, lost=[], wrong=[], commits=100, retries=4),
        seconds=1.0,
    )


def lost(tally: Tally) -> Tally:
    tally.lost = ["load: done a queued 1"]
    return tally


def unlucky(found: Results) -> Load:
    lost(found.load.tally)
    return found.load


FLAWS: dict[str, Callable[[Results], dict[str, object]]] = {
    "a loss in an outage": lambda _: {"outages": outages(LOST)},
    "a record unlike its log": lambda _: {"outages": outages(equal=False)},
    "no answer that was lost": lambda _: {"outages": outages(unknown=False)},
    "a client silent for long": lambda _: {"outages": outages(silence=9)},
    "a control that lost nothing": lambda _: {"control": outages()},
    "two winners": lambda _: {"claims": Races([1, 2], {1}, 100, 0)},
    "two tokens": lambda _: {"acquires": Races([1], {1, 2}, 100, 0)},
    "no winner": lambda _: {"acquires": Races([0], {1}, 100, 0)},
    "claims decided again": lambda _: {"claims": Races([1], {1}, 100, 10)},
    "an error in a batch": lambda _: {"orders": Orders(errors=["Unavailable()"])},
    "a batch that took long": lambda _: {"orders": Orders(longest_seconds=9.0)},
    "a loss at a failpoint": lambda _: {"deaths": lost(Tally())},
    "a control that was not killed": lambda _: {"deaths_control": Tally()},
    "a loss under load": lambda found: {"load": unlucky(found)},
    "a job claimed twice": lambda _: {"chaos": ChaosResult(jobs=1, lost=["job-1"], wrong=[])},
    "a job that did not end": lambda _: {"chaos": ChaosResult(jobs=1, lost=[], wrong=["job-1"])},
    "workers that decide again": lambda _: {
        "chaos": ChaosResult(jobs=1, lost=[], wrong=[], commits=100, retries=10)
    },
}


@pytest.mark.parametrize("short", [False, True])
def test_a_run_in_which_nothing_went_wrong_holds(short: bool) -> None:
    page, holds = section(results(), short=short)

    assert holds, page
    assert "**holds**" in page


def test_a_short_run_may_lose_no_answer() -> None:
    found = results()
    fields = {name: getattr(found, name) for name in Results.__struct_fields__}
    spared = Results(**{**fields, "outages": outages(unknown=False)})

    assert section(spared, short=True)[1]
    assert not section(spared, short=False)[1]


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_run_with_a_flaw_does_not_hold(flaw: str) -> None:
    found = results()
    fields = {name: getattr(found, name) for name in Results.__struct_fields__}

    page, holds = section(Results(**{**fields, **FLAWS[flaw](found)}), short=False)

    assert not holds
    assert "**DOES NOT HOLD**" in page
    assert "- **wrong**: " in page
