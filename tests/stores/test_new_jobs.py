"""New jobs: which are alike, and the texts of their specs."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast.core import segment
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Change, Enqueue, decide
from holdfast.core.outputs import OutputPromise
from holdfast.core.process_spec import ProcessSpec, encode_process_spec
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Decision
from holdfast.stores.new_jobs import events_alike, runs, simply_queued, spec_texts
from holdfast.stores.records import spec_text

NOW = datetime(2026, 11, 1, 9, tzinfo=UTC)
SPEC = Spec(kind="resize", queue="images", payload=Raw(b'{"n":1}'), retry=Retry(factor=2.0))
JOB = Job("job-1", SPEC, State.QUEUED, NOW, NOW, NOW, version=1, transition_no=1)


def command(**more: object) -> Job:
    payload = encode_process_spec(ProcessSpec(argv=("true",), **more))  # type: ignore[arg-type]
    return replace(JOB, spec=Spec(payload=payload))


def test_jobs_that_differ_only_in_ids_and_payloads_are_a_run() -> None:
    other = replace(JOB, job_id="job-2", spec=replace(SPEC, payload=Raw(b'{"n":2}')))
    third = replace(JOB, job_id="job-3", spec=replace(SPEC, queue="other"))

    assert runs([JOB, other, third, JOB]) == [[JOB, other], [third], [JOB]]
    assert runs([]) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (JOB, replace(JOB, ready_at=NOW + timedelta(seconds=1))),
        (JOB, replace(JOB, fencing_token=1)),
        (JOB, replace(JOB, trace_id="t")),
        (JOB, replace(JOB, state=State.PENDING)),
        (JOB, replace(JOB, spec=replace(SPEC, labels={"a": "b"}))),
        (JOB, replace(JOB, spec=replace(SPEC, lock="disk"))),
        (JOB, replace(JOB, spec=replace(SPEC, outputs=OutputPromise(names=("a",), store="s")))),
        # Equal, and yet not the same:
        (JOB, replace(JOB, spec=replace(SPEC, retry=Retry(factor=2)))),
        (replace(JOB, result=1), replace(JOB, result=True)),
        (replace(JOB, checkpoint=[1]), replace(JOB, checkpoint=[1.0])),
        # For different workers:
        (command(), command(secrets=("TOKEN",))),
    ],
)
def test_jobs_that_are_written_in_other_ways_are_not_in_one_run(first: Job, second: Job) -> None:
    assert list(map(len, runs([first, second]))) == [1, 1]
    assert list(map(len, runs([second, first]))) == [1, 1]


def test_commands_for_the_same_workers_are_a_run() -> None:
    assert list(map(len, runs([command(), command(env={"A": "b"}), command(secrets=("TOKEN",))]))) == [2, 1]


@pytest.mark.parametrize("labels", [{}, {"payload": "x"}, {"a": '"payload":null', "b": "\\u0000payload"}])
def test_the_specs_of_a_run_are_read_back_as_they_were(labels: dict[str, str]) -> None:
    payloads = [b"null", b"1", b'"\\u0000payload"', b'{"a":"\xc3\xa4"}', b"[1,\n2]"]
    jobs = [replace(JOB, spec=replace(SPEC, payload=Raw(payload), labels=labels)) for payload in payloads]

    texts = spec_texts(jobs)

    assert [msgspec.json.decode(text, type=Spec) for text in texts] == [job.spec for job in jobs]
    assert spec_texts(jobs[1:2]) == [spec_text(jobs[1])] == texts[1:2]


COMMAND = Enqueue(op_id="op", job_id="job-1", spec=SPEC, actor="user:ana")
MADE = decide(COMMAND, None, NOW)
assert isinstance(MADE, Change)


@pytest.mark.parametrize("change", [{}, {"correlation_id": "c"}, {"trace_id": "t"}, {"submitted_by": "ana"}])
def test_one_new_job_in_the_queue_is_simply_queued(change: dict[str, object]) -> None:
    delayed = replace(COMMAND, spec=replace(SPEC, delay=timedelta(seconds=1)))
    assert simply_queued(decide(delayed, None, NOW))
    assert simply_queued(decide(replace(COMMAND, **change), None, NOW, None, 7))
    due = replace(COMMAND, spec=replace(SPEC, ttl=timedelta(hours=1)))
    assert simply_queued(decide(due, None, NOW), timed=True)


@pytest.mark.parametrize(
    "decision",
    [
        decide(COMMAND, MADE.after, NOW),  # there already
        decide(COMMAND, replace(MADE.after, spec=Spec()), NOW),  # there, and another
        decide(replace(COMMAND, register=True), None, NOW),
        decide(replace(COMMAND, spec=replace(SPEC, lock="disk")), None, NOW),
        decide(replace(COMMAND, spec=replace(SPEC, ttl=timedelta(hours=1))), None, NOW),
        replace(MADE, own_events=MADE.own_events * 2),
        replace(MADE, resource=ResourceLock("disk")),
        replace(MADE, facts=MADE.own_events),
        replace(MADE, made=(MADE,)),
        replace(MADE, published=MADE.own_events),
    ],
)
def test_what_has_more_to_write_is_not_simply_queued(decision: Decision) -> None:
    assert not simply_queued(decision)


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ({"job_id": "job-2", "op_id": "op-2"}, True),
        ({"job_id": "job-2", "actor": "user:ben"}, False),
        ({"job_id": "job-2", "trace_id": "t"}, False),
        ({"offset": 2}, False),
        ({"job_id": "job-2", "op_id": None}, False),
    ],
)
def test_events_are_alike_that_differ_in_their_jobs_and_ops(change: dict[str, object], alike: bool) -> None:
    assert isinstance(MADE, Change)
    [event] = MADE.own_events
    other = replace(event, **change)
    assert events_alike([event, other]) is alike
    assert events_alike([event, event, other]) is alike
    if alike:
        keys = {"job-1": 1, "job-2": 2}
        [one] = segment.encode([event, other], lambda job_id: keys[job_id or ""])
        [same] = segment.encode_alike([event], [1, 2], ["op", "op-2"])
        assert one == same
