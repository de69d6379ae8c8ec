"""Workers frozen beyond their leases: whatever they still try is refused, where tokens are compared.

`make zombie` is the same for a minute, `python -m verify.zombies` with 1,000 freezes on each store.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.event import Event
from holdfast.ports import Verification
from verify.zombie_record import DONE, FENCED, GRANTED, STOPPED, THAWED, WRITE, Act
from verify.zombie_resources import ASKED, CHECKED, LEDGERS, UNCHECKED, Row
from verify.zombie_scenarios import play, scenarios_of
from verify.zombie_setup import STORES, ZombieSetup, freeze, setups
from verify.zombie_verdict import Evidence, verdict_of

FREEZES, FREEZES_PLANTED, OWNERS = 12, 5, 8
Grounds = Callable[[str], ZombieSetup]
_names = (f"ground_{number}" for number in count())


ENDINGS = ("success", "failure", "timeout", "cancelled")


def act(who: str, token: int, at: float, verb: str, answer: str = DONE, form: str = "") -> Act:
    number = int(at * 10) if verb == WRITE else 0
    return Act(who, verb, at, at, "job-1", token, answer, form, number)


def event(kind: EventType, **attributes: object) -> Event:
    return Event(
        event_type=kind,
        event_class=EventClass.FACT,
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        job_id="job-1",
        fencing_token=1,
        attributes=attributes,
    )


STALE = event(EventType.STALE_WRITE_REJECTED, verb="complete")
EQUAL = Verification(jobs=0, transitions=0, events=0, control=0, mismatches=())
UNEQUAL = replace(EQUAL, events=1)
LATE = [Row(1, "job-1", 2, "new#40"), Row(2, "job-1", 1, "old#60")]
ROWS = {UNCHECKED: LATE, CHECKED: LATE[:1], ASKED: LATE[:1]}
EVIDENCE = Evidence(
    acts=[
        act("old", 1, 1.0, GRANTED),
        act("old", 1, 2.0, STOPPED),
        act("new", 2, 3.0, GRANTED),
        *(act("new", 2, 4.0, WRITE, form=ledger) for ledger in LEDGERS),
        act("old", 1, 5.0, THAWED),
        act("old", 1, 6.0, WRITE, form=UNCHECKED),
        act("old", 1, 6.0, WRITE, FENCED, form=CHECKED),
        act("old", 1, 6.0, WRITE, FENCED, form=ASKED),
        act("old", 1, 7.0, "complete", FENCED, form="success"),
    ],
    rows=ROWS,
    jobs=[],
    events=[event(EventType.REQUEUED), STALE],
    verification=EQUAL,
)
"""An owner was frozen, its successor wrote, and the ledger that checks nothing took both."""


def wrote(ledger: str) -> Evidence:
    """The late write is there as well."""
    return replace(EVIDENCE, rows={**ROWS, ledger: LATE})


def acknowledged(evidence: Evidence, ledger: str) -> Evidence:
    """The late writer was told that its write is there."""
    late = "old", WRITE, ledger
    acts = [
        replace(one, answer=DONE) if (one.who, one.verb, one.form) == late else one for one in evidence.acts
    ]
    return replace(evidence, acts=acts)


def early(ledger: str) -> Evidence:
    """The late write came after the successor's grant, and before its write."""
    rows = {**ROWS, ledger: [LATE[1], LATE[0]]}
    return acknowledged(replace(EVIDENCE, rows=rows), ledger)


def ended(answer: str) -> Evidence:
    return replace(EVIDENCE, acts=[*EVIDENCE.acts[:-1], replace(EVIDENCE.acts[-1], answer=answer)])


@pytest.fixture(scope="module")
def sqlite() -> Iterator[Grounds]:
    with setups("sqlite") as new:
        yield new


@pytest.fixture(scope="module")
def postgres() -> Iterator[Grounds]:
    with setups("postgres") as new:
        yield new


def new_ground(request: pytest.FixtureRequest, kind: str) -> ZombieSetup:
    new: Grounds = request.getfixturevalue(kind)
    return new(next(_names))


@pytest.mark.parametrize("kind", STORES)
def test_a_frozen_owner_is_refused_wherever_tokens_are_compared_and_nowhere_else(
    request: pytest.FixtureRequest, kind: str
) -> None:
    found = freeze(new_ground(request, kind), FREEZES, told=lambda words: None, owners=OWNERS)

    assert found.troubles == []
    assert found.freezes == found.learned >= FREEZES
    assert found.ledgers[UNCHECKED].back > 0
    assert found.ledgers[CHECKED].refused > 0
    assert found.ledgers[CHECKED].back == 0
    assert found.ledgers[ASKED].early == found.ledgers[ASKED].back == 0
    assert all(tried == refused > 0 for tried, refused in found.verbs.values())
    assert {f"complete {ending}" for ending in ENDINGS} <= found.verbs.keys()
    assert found.recorded > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "scenario"), [(kind, scenario) for kind in STORES for scenario in scenarios_of(kind)]
)
def test_a_real_worker_in_trouble_leaves_no_stale_write_behind(
    request: pytest.FixtureRequest, kind: str, scenario: str
) -> None:
    assert play(scenario, new_ground(request, kind)).trouble == ""


def test_a_ledger_that_compares_nothing_is_found_out(request: pytest.FixtureRequest) -> None:
    setup = new_ground(request, "sqlite")

    found = freeze(setup, FREEZES_PLANTED, told=lambda words: None, owners=OWNERS, check=False)

    assert found.ledgers[CHECKED].back > 0
    assert "A ledger that checks took a stale write." in found.troubles


def test_the_judge_finds_nothing_wrong_with_a_zombie_that_was_refused() -> None:
    found = verdict_of(EVIDENCE)

    assert found.troubles == []
    assert (found.freezes, found.learned, found.recorded) == (1, 1, 1)
    assert found.ledgers[UNCHECKED].back == found.ledgers[CHECKED].refused == 1


@pytest.mark.parametrize(
    ("trouble", "planted"),
    [
        ("took a stale write", lambda: acknowledged(wrote(CHECKED), CHECKED)),
        ("took a stale write", lambda: acknowledged(wrote(ASKED), ASKED)),
        ("and that is not so", lambda: wrote(CHECKED)),
        ("and that is not so", lambda: acknowledged(EVIDENCE, CHECKED)),
        ("shows no violation", lambda: replace(EVIDENCE, rows={**ROWS, UNCHECKED: [LATE[0]]})),
        ("was accepted, and it was stale", lambda: ended(DONE)),
        ("was never told", lambda: replace(EVIDENCE, acts=EVIDENCE.acts[:-3])),
        ("not recorded", lambda: replace(EVIDENCE, events=EVIDENCE.events[:1])),
        ("recorded 2 times", lambda: replace(EVIDENCE, events=[*EVIDENCE.events, STALE])),
        ("refused while it held the job", lambda: replace(EVIDENCE, events=[STALE])),
        ("though the registry was asked", lambda: early(ASKED)),
        ("log and state differ", lambda: replace(EVIDENCE, verification=UNEQUAL)),
    ],
)
def test_the_judge_sees_what_is_planted(trouble: str, planted: Callable[[], Evidence]) -> None:
    found = verdict_of(planted())

    assert any(trouble in one for one in found.troubles), found.troubles


def test_a_write_before_the_successors_first_one_keeps_the_order_and_is_told_apart() -> None:
    found = verdict_of(early(CHECKED))

    assert found.troubles == []
    assert (found.ledgers[CHECKED].early, found.ledgers[CHECKED].back) == (1, 0)
