"""Trace context: what is one, what is kept of it, and that every event of a job says it."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.core.catalogue import EventClass
from holdfast.core.errors import Fenced, Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Command, Complete, Enqueue, Expire, Publish, Restore, Success
from holdfast.core.projection import differences, fold
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.trace import check_trace, trace_id_of, traceparent_of
from tests.core.sample_jobs import (
    LATER,
    NOW,
    PERMANENT,
    TRANSIENT,
    aggregate,
    cancel,
    changed,
    claim,
    complete,
    enqueue,
    heartbeat,
    publish,
    refused,
    release,
    said,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
IDS = ("order-7", TRACE)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (PARENT, PARENT),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"00-{TRACE}-{SPAN}-ff", PARENT),
        (f"00-{TRACE}-{SPAN}-fe", f"00-{TRACE}-{SPAN}-00"),
        (f"cc-{TRACE}-{SPAN}-01", PARENT),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later", PARENT),
        (f"00-{'0' * 31}1-{'0' * 15}1-01", f"00-{'0' * 31}1-{'0' * 15}1-01"),
    ],
)
def test_a_context_is_kept_as_version_00_writes_it(given: str, kept: str) -> None:
    assert traceparent_of(given) == kept
    assert trace_id_of(kept) == kept[3:35]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "00",
        PARENT[:-1],
        PARENT + "0",
        PARENT + "-more",
        " " + PARENT,
        PARENT + "\n",
        PARENT.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE}-{SPAN[:-1]}g-01",
        f"00-{TRACE}-{SPAN}-0g",
    ],
)
def test_what_is_no_context_says_nothing(given: str) -> None:
    assert traceparent_of(given) is None


def test_a_context_says_the_id_of_its_trace() -> None:
    assert check_trace(None, None) == (None, None)
    assert check_trace("mine", None) == ("mine", None)
    assert check_trace(None, PARENT) == (TRACE, PARENT)
    assert check_trace(TRACE, f"cc-{TRACE}-{SPAN}-ff") == (TRACE, PARENT)


def test_a_wrong_context_and_two_traces_are_refused_in_plain_words() -> None:
    with pytest.raises(Invalid) as wrong:
        check_trace(None, "x" * 100)
    assert wrong.value.message == (
        f"traceparent '{'x' * 65} … [shortened]' is not valid: write 00, the trace in 32 hex digits, the span"
        " in 16 and the flags in 2, with dashes between them."
    )
    with pytest.raises(Invalid) as two:
        check_trace("mine", PARENT)
    assert two.value.message == "trace_id and traceparent name two traces: give one of them."


def traced(spec: Spec = Spec()) -> Enqueue:
    return replace(enqueue(spec), correlation_id=IDS[0], trace_id=TRACE, traceparent=PARENT)


def lived(*steps: Command | timedelta, spec: Spec = Spec()) -> tuple[Job, list[Event]]:
    """The job after these steps, with every event on its way."""
    change = changed(None, traced(spec))
    job, events, now = change.after, [*change.events], NOW
    for step in steps:
        if isinstance(step, timedelta):
            now += step
            continue
        change = changed(job, step, now)
        job = change.after
        events += [*change.events, *change.published, *change.facts]
    return job, events


MINUTE = timedelta(seconds=61)
LIVES: list[Callable[[], tuple[Job, list[Event]]]] = [
    lambda: lived(claim(), heartbeat(), aggregate(), complete(Success())),
    lambda: lived(claim(), publish(1, 2), complete(PERMANENT)),
    lambda: lived(claim(), complete(TRANSIENT), spec=Spec(retry=Retry(max_failures=1))),
    lambda: lived(claim(), release(), claim("again"), complete(TRANSIENT, token=2)),
    lambda: lived(claim(), cancel(), Restore(op_id="r", actor="system:restore")),
    lambda: lived(cancel()),
    lambda: lived(claim(), MINUTE, Expire()),
    lambda: lived(claim(heartbeat_interval=timedelta(seconds=5)), timedelta(seconds=11), Expire()),
]


@pytest.mark.parametrize("life", LIVES)
def test_every_event_of_a_job_says_what_it_is_tied_to(
    life: Callable[[], tuple[Job, list[Event]]],
) -> None:
    job, events = life()

    assert (job.correlation_id, job.trace_id, job.traceparent) == (*IDS, PARENT)
    assert {(event.correlation_id, event.trace_id) for event in events} == {IDS}
    chain = [event for event in events if event.offset is not None]
    untied = [replace(event, correlation_id=None, trace_id="another") for event in chain]
    assert differences(job, fold(untied, "job-1")) == []


def test_the_lives_have_events_of_every_class_that_the_registry_writes() -> None:
    classes = {event.event_class for life in LIVES for event in life()[1]}

    assert classes == {
        EventClass.TRANSITION,
        EventClass.CONTROL,
        EventClass.FACT,
        EventClass.WORKER,
    }


def test_a_refused_owner_is_told_of_and_recorded_with_what_the_job_is_tied_to() -> None:
    job, _ = lived(claim(), release(), claim("again"))

    refusal = refused(job, complete(Success(), token=1), LATER)

    assert isinstance(refusal.error, Fenced)
    assert (refusal.error.correlation_id, refusal.error.trace_id) == IDS
    [fact] = refusal.facts
    assert (fact.correlation_id, fact.trace_id) == IDS


def test_an_error_about_a_job_that_nobody_tied_to_anything_says_its_own_id() -> None:
    job = changed(changed(None, enqueue()).after, claim()).after

    error = refused(job, claim("another")).error

    assert (error.correlation_id, error.trace_id) == ("job-1", None)
    none = refused(None, heartbeat()).error
    assert (none.correlation_id, none.trace_id) == (None, None)


def test_what_a_worker_ties_its_events_to_goes_before_what_the_job_is_tied_to() -> None:
    job, _ = lived(claim())
    own = said(1, correlation_id="theirs", trace_id="theirs-too", span_id="s")
    command = Publish(token=1, actor="worker:w", events=(own, said(2)))

    first, second = changed(job, command).published

    assert (first.correlation_id, first.trace_id, first.span_id) == ("theirs", "theirs-too", "s")
    assert (second.correlation_id, second.trace_id, second.span_id) == (*IDS, None)


def test_an_event_is_correlated_with_its_job_when_nobody_said_otherwise() -> None:
    [event] = changed(None, enqueue()).events

    assert (event.correlation_id, event.correlation) == (None, "job-1")
    assert replace(event, correlation_id="order-7").correlation == "order-7"
    assert replace(event, job_id=None).correlation is None


@pytest.mark.parametrize(
    ("own", "trace"),
    [
        ({}, (TRACE, PARENT)),
        ({"trace_id": "mine"}, ("mine", None)),
        ({"trace_id": "b" * 32, "traceparent": f"00-{'b' * 32}-{SPAN}-00"}, ("b" * 32, "own")),
    ],
)
def test_a_follow_up_is_part_of_the_trace_unless_it_names_one(
    own: dict[str, str], trace: tuple[str, str | None]
) -> None:
    job, _ = lived(claim())
    asked = Enqueue(op_id="a", job_id="a", spec=Spec(), actor="worker:w", **own)  # type: ignore[arg-type]
    ending = complete(Success())
    command = Complete(
        op_id=ending.op_id, token=1, actor=ending.actor, outcome=Success(), follow_ups=(asked,)
    )

    [made] = changed(job, command).made

    kept = own.get("traceparent") if trace[1] == "own" else trace[1]
    assert (made.after.trace_id, made.after.traceparent) == (trace[0], kept)
    assert [(e.correlation_id, e.trace_id) for e in made.events] == [("order-7", trace[0])]
