"""The record of a job: derived from `Job`, and readable as it was written before."""

from datetime import UTC, datetime, timedelta

from holdfast.core.catalogue import ReasonCode, Stage
from holdfast.core.job import CancelRequest, DeadLetter, Failure, Flaws, Job, Lease, Progress
from holdfast.core.outputs import ValidationProgress, ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.stores.records import COLUMNS, detail_text, job_from, spec_text

T = datetime(2026, 11, 1, 9, 0, 0, 5, tzinfo=UTC)
STORED = (
    '{"lease":{"owner":"w1","expires_at":"2026-11-01T09:01:00.000005Z","ttl":"PT60S",'
    '"granted_at":"2026-11-01T09:00:00.000005Z","heartbeat_at":"2026-11-01T09:00:00.000005Z",'
    '"heartbeat_interval":"PT20S"},"claim_op_id":"op-1","cancel":{"actor":"user:a",'
    '"requested_at":"2026-11-01T09:00:00.000005Z"},"deadline_at":"2026-11-01T09:00:00.000005Z",'
    '"started_at":"2026-11-01T09:00:00.000005Z","reason":"why","error":{"message":"m","crash":true},'
    '"dead_letter":{"reason_code":"timeout","last_error":"e","attempts":2,"stage":"exec",'
    '"correlation_id":"c"},"result":{"a":1},"found":{"verified":1,"missing":2,"names":["x"]},'
    '"handle":{"h":"1"},"submitted_by":"user:b","correlation_id":"c","trace_id":"t","traceparent":"tp",'
    '"heartbeats":3,"published":4,"progress":{"done":1,"total":2,"message":"m"},"checkpoint":[1],'
    '"check":{"where":"host:/work","done":1},"not_understood":1,'
    '"completed_at":"2026-11-01T09:00:00.000005Z","flaws":{"missed":1},"published_bytes":9,"not_started":1}'
)
"""The detail of `JOB`, as d324064 wrote it."""

JOB = Job(
    job_id="job-1",
    spec=Spec(kind="resize", queue="images"),
    state=State.RUNNING,
    created_at=T,
    updated_at=T + timedelta(seconds=2),
    ready_at=T + timedelta(seconds=1),
    attempt=2,
    version=5,
    transition_no=4,
    failures=1,
    crashes=3,
    fencing_token=7,
    lease=Lease("w1", T + timedelta(seconds=60), timedelta(seconds=60), T, T, timedelta(seconds=20)),
    claim_op_id="op-1",
    cancel=CancelRequest(actor="user:a", requested_at=T),
    deadline_at=T,
    started_at=T,
    ended_at=T + timedelta(seconds=3),
    reason="why",
    error=Failure(message="m", crash=True),
    dead_letter=DeadLetter(
        reason_code=ReasonCode.TIMEOUT,
        last_error="e",
        attempts=2,
        stage=Stage.EXEC,
        correlation_id="c",
    ),
    result={"a": 1},
    found=ValidationResult(verified=1, missing=2, names=("x",)),
    handle={"h": "1"},
    submitted_by="user:b",
    correlation_id="c",
    trace_id="t",
    traceparent="tp",
    heartbeats=3,
    published=4,
    progress=Progress(1, 2, "m"),
    checkpoint=[1],
    check=ValidationProgress(where="host:/work", done=1),
    not_understood=1,
    completed_at=T,
    flaws=Flaws(missed=1),
    published_bytes=9,
    not_started=1,
)


def test_a_record_from_before_is_read_and_written_byte_by_byte() -> None:
    columns = tuple(getattr(JOB, name) for name in COLUMNS[:-1])

    read = job_from((*columns, '{"kind":"resize","queue":"images"}', STORED))

    assert read == JOB
    assert detail_text(JOB) == STORED
    assert spec_text(JOB) == '{"kind":"resize","queue":"images"}'


def test_every_field_of_a_job_is_in_the_sample() -> None:
    """Otherwise the test above proves less than it says."""
    blank = Job("", JOB.spec, State.QUEUED, T, T, T)

    defaults = [name for name in Job.__struct_fields__[6:] if getattr(JOB, name) == getattr(blank, name)]

    assert defaults == []
