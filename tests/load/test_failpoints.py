"""The failpoints: each is in the catalogue, each is passed, and none does anything unless armed."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.failpoint import arm, failpoint
from holdfast.stores.cas.documents import Document, LoadedDocument
from holdfast.stores.cas.event_recorder import EventRecorder
from holdfast.stores.cas.outbox import OutboxBatch
from holdfast.stores.cas.revision import (
    DecidedStep,
    DecidedSteps,
    Proposal,
    RemainingOutbox,
    decide_steps,
    revise,
)
from tests.load.cas_process import crash, crash_at_each
from verify.kills import failpoints
from verify.kills_harness import ROOT, ForkedProcesses
from verify.kills_runs import rehearse
from verify.postgres_race_runs import PostgresProcesses
from verify.postgres_race_runs import rehearse as rehearse_postgres
from verify.postgres_server import PostgresServer

_ENTRY = re.compile(r"^\| `([a-z_]+\.[a-z_]+)` \| ([A-Z].+\.) \|$", re.MULTILINE)


def catalogue() -> list[str]:
    """The names in the documentation, each with its sentence."""
    page = (ROOT / "docs" / "failpoints.md").read_text("utf-8")
    return [name for name, _ in _ENTRY.findall(page)]


def test_the_catalogue_lists_every_failpoint_of_the_code_once_and_no_other() -> None:
    assert Counter(catalogue()) == Counter(failpoints().keys())


def test_a_failpoint_is_in_one_place() -> None:
    assert {name: n for name, n in failpoints().items() if n > 1} == {}


@pytest.mark.long
def test_every_failpoint_is_passed(tmp_path: Path) -> None:
    with ForkedProcesses() as processes:
        scenarios = rehearse(processes, tmp_path)
    with PostgresServer(fast=True) as server, PostgresProcesses(server) as processes:
        tables = rehearse_postgres(processes, tmp_path)
    passed = set(asyncio.run(crash(None, 0))).union(*scenarios.values(), *tables.values())

    assert failpoints().keys() - passed == set()


@pytest.mark.long
def test_a_document_store_that_dies_at_any_failpoint_loses_nothing_acknowledged() -> None:
    deaths = asyncio.run(crash_at_each(short=True))

    assert deaths.keys() == {name for name in failpoints() if name.startswith("cas.")}


async def no_facts(self: EventRecorder, home: str, events: Sequence[Event], batch: OutboxBatch) -> int:
    return len(events)


def no_output(
    record: Job | None, steps: Sequence[DecidedStep], now: datetime, locks: dict[str, ResourceLock]
) -> DecidedSteps:
    decided = decide_steps(record, steps, now, locks)
    return replace(decided, events=tuple(e for e in decided.events if e.sequence is None))


def no_debts(
    loaded: LoadedDocument,
    proposal: Proposal,
    kept: RemainingOutbox,
    *,
    tag: str,
    nonce: str,
    order: int,
) -> Document:
    paid = replace(proposal, pending_facts=())
    return revise(loaded, paid, kept, tag=tag, nonce=nonce, order=order)


@pytest.mark.parametrize(
    ("function", "broken", "words"),
    [
        ("holdfast.stores.cas.event_recorder.EventRecorder._append", no_facts, "was recorded on"),
        ("holdfast.stores.cas.writer.decide_steps", no_output, "was published"),
        ("holdfast.stores.cas.writer.revise", no_debts, "is a replay of"),
    ],
    ids=["facts", "output", "what one job owes to another"],
)
def test_a_document_store_that_forgets_what_it_has_acknowledged_is_found_out(
    function: str, broken: Callable[..., object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function, broken)

    with pytest.raises(AssertionError, match=words):
        asyncio.run(crash_at_each(short=True))


def test_a_failpoint_tells_its_name_to_whoever_has_armed_it_and_else_to_nobody() -> None:
    told: list[str] = []

    failpoint("test.before")
    arm(told.append)
    failpoint("test.armed")
    arm(None)
    failpoint("test.after")

    assert told == ["test.armed"]
