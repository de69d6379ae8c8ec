"""Values over the wire: they come out as they went in, and an invalid one is refused with its name."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.access import Key, Scope
from holdfast.core.catalogue import EventClass, ReasonCode, Stage
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.job import CancelRequest, DeadLetter, Failure, Job, Lease, Progress
from holdfast.core.outputs import File, Output, OutputPromise, ValidationProgress, ValidationResult
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Finding, Grant, JobRequest, Mismatch, Verification
from holdfast.wire import requests, values
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import Mapping, from_duration, from_timestamp, to_duration, to_timestamp

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
maybe = st.none() | texts
moments = st.datetimes(
    datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC), allow_imaginary=False
)
spans = st.timedeltas(timedelta(days=-3660), timedelta(days=3660))
whole = st.integers(0, 2**63 - 1)
maybe_whole = st.none() | whole
pairs = st.dictionaries(texts, texts, max_size=3)
some_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
payloads = some_json.map(lambda value: msgspec.Raw(msgspec.json.encode(value)))
retries = st.builds(
    Retry,
    max_failures=st.integers(1, 100),
    factor=st.floats(1, 10),
    backoff=spans,
    on_exhausted=st.sampled_from(OnExhausted),
)
promises = st.builds(
    OutputPromise,
    files=st.lists(st.builds(File, texts, count=maybe_whole, size=maybe_whole, sha256=maybe), max_size=3).map(
        tuple
    ),
    names=st.lists(texts, max_size=3).map(tuple),
    manifest=maybe,
    entries=whole,
    store=maybe,
    place=maybe,
    resume_attempt=whole,
    original_total=whole,
)
specs = st.builds(
    Spec,
    kind=texts,
    queue=texts,
    payload=payloads,
    name=maybe,
    priority=st.integers(0, 9),
    region=maybe,
    lease=spans,
    timeout=st.none() | spans,
    run_at=st.none() | moments,
    retry=retries,
    labels=pairs,
    promised_outputs=whole,
    outputs=st.none() | promises,
)
found = st.builds(
    ValidationResult,
    verified=whole,
    missing=whole,
    reused=whole,
    names=st.lists(texts, max_size=3).map(tuple),
    report=maybe,
)
checks = st.builds(
    ValidationProgress,
    where=maybe,
    by=maybe,
    until=st.none() | moments,
    done=whole,
    total=whole,
    tries=whole,
    reason=maybe,
    next_at=st.none() | moments,
)
outputs = st.builds(
    Output,
    name=texts,
    path=maybe,
    size=maybe_whole,
    sha256=maybe,
    missing=maybe,
    reused=st.booleans(),
)
failures = st.builds(
    Failure,
    message=texts,
    code=texts,
    retryable=st.booleans(),
    stage=st.sampled_from(Stage),
    exit_code=st.none() | st.integers(-1, 255),
    crash=st.booleans(),
    reason_code=st.none() | st.sampled_from(ReasonCode),
)
jobs = st.builds(
    Job,
    texts,
    specs,
    st.sampled_from(State),
    moments,
    moments,
    moments,
    attempt=whole,
    version=whole,
    lease=st.none()
    | st.builds(Lease, texts, moments, spans, moments, moments, st.none() | spans, st.booleans()),
    cancel=st.none() | st.builds(CancelRequest, actor=texts, requested_at=moments, reason=maybe),
    error=st.none() | failures,
    dead_letter=st.none()
    | st.builds(
        DeadLetter,
        reason_code=st.sampled_from(ReasonCode),
        last_error=texts,
        attempts=whole,
        stage=st.sampled_from(Stage),
        correlation_id=texts,
        last_owner=maybe,
        last_lease_expires_at=st.none() | moments,
    ),
    result=some_json,
    found=st.none() | found,
    check=st.none() | checks,
    handle=st.none() | st.dictionaries(texts, texts, min_size=1, max_size=2),
    progress=st.none() | st.builds(Progress, whole, maybe_whole, maybe),
    checkpoint=some_json,
)
events = st.builds(
    Event,
    texts,
    st.sampled_from(EventClass),
    moments,
    job_id=maybe,
    offset=maybe_whole,
    from_state=st.none() | st.sampled_from(State),
    attempt=maybe_whole,
    attributes=st.dictionaries(texts, some_json, max_size=3),
    sequence=maybe_whole,
    received_at=st.none() | moments,
    data=st.none() | st.binary(max_size=20),
    schema_version=whole,
)
keys = st.builds(
    Key,
    key_id=texts,
    name=texts,
    digest=st.just(""),
    scopes=st.lists(st.sampled_from(Scope), min_size=1, max_size=3).map(tuple),
    queues=st.lists(texts, min_size=1, max_size=3).map(tuple),
    regions=st.lists(texts, max_size=3).map(tuple),
    created_at=moments,
    expires_at=moments,
    revoked_at=st.none() | moments,
    created_by=texts,
)
CASES: list[tuple[Mapping[Any, Any], st.SearchStrategy[Any]]] = [
    (values.JOB, jobs),
    (values.EVENT, events),
    (values.OUTPUT, outputs),
    (
        values.JOB_REQUEST,
        st.builds(JobRequest, spec=specs, request_id=maybe, register=st.booleans()),
    ),
    (
        values.GRANT,
        st.builds(
            Grant,
            job=jobs,
            fencing_token=whole,
            attempt=whole,
            lease_seconds=st.floats(0, 1e6),
            task_token=maybe,
        ),
    ),
    (values.KEY, keys),
    (
        Mapping(requests.ListFilter, pb.JobFilter),
        st.builds(
            requests.ListFilter,
            queue=maybe,
            states=st.lists(st.sampled_from(State), max_size=3).map(tuple),
            labels=pairs,
        ),
    ),
    (values.FINDING, st.builds(Finding, st.just("clock"), st.just("note"), texts, maybe)),
    (
        values.VERIFICATION,
        st.builds(
            Verification,
            jobs=whole,
            transitions=whole,
            events=whole,
            control=whole,
            mismatches=st.lists(
                st.builds(Mismatch, texts, st.lists(texts, max_size=2).map(tuple)), max_size=2
            ).map(tuple),
        ),
    ),
]


@pytest.mark.parametrize(("mapping", "strategy"), CASES, ids=lambda one: getattr(one, "value", ""))
def test_what_goes_over_the_wire_comes_back_as_it_was(
    mapping: Mapping[Any, Any], strategy: st.SearchStrategy[Any]
) -> None:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(value=strategy)
    def there_and_back(value: Any) -> None:  # noqa: ANN401
        message = mapping.encode(value)
        binary = type(message).from_binary(message.to_binary())
        plain = type(message).from_json(message.to_json())

        assert mapping.decode(binary) == value
        assert mapping.decode(plain) == value

    there_and_back()


def test_nobody_says_over_the_wire_that_the_outputs_of_a_new_job_are_there() -> None:
    asked = JobRequest(spec=Spec(), found=ValidationResult(verified=1))

    told = values.JOB_REQUEST.decode(values.JOB_REQUEST.encode(asked))

    assert told == JobRequest(spec=Spec())
    assert "found" not in {field.name for field in pb.JobRequest.desc().fields}


@given(span_=spans, moment_=moments)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_times_are_exact_to_the_microsecond(span_: timedelta, moment_: datetime) -> None:
    assert from_duration(to_duration(span_)) == span_
    assert from_timestamp(to_timestamp(moment_)) == moment_


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (pb.Job(), "Job has no spec"),
        (pb.Job(spec=pb.Spec()), "Job has no state"),
        (pb.Job(spec=pb.Spec(), state="lost"), "state cannot be decoded: 'lost'"),
        (pb.Job(spec=pb.Spec(), state="queued"), "Job has no created_at"),
        (pb.Job(spec=pb.Spec(), result="{"), "state"),
    ],
)
def test_a_message_that_makes_no_sense_is_invalid_and_says_why(job: pb.Job, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        values.JOB.decode(job)


NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLAIN = Job("a", Spec(), State.QUEUED, NOW, NOW, NOW)


def test_json_that_is_none_is_invalid() -> None:
    job = values.JOB.encode(PLAIN)
    job.result = "{"

    with pytest.raises(Invalid, match="result cannot be decoded"):
        values.JOB.decode(job)


def test_a_value_that_no_message_can_say_is_invalid() -> None:
    with pytest.raises(Invalid, match="result cannot be written"):
        values.JOB.encode(replace(PLAIN, result=object()))
