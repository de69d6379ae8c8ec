"""Jobs as messages of job.v1, and back."""

from contextlib import suppress
from datetime import timedelta

import msgspec

from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.core.limits import (
    LABEL_CHARACTERS_MAX,
    LABELS_MAX,
    OUTPUT_BATCH_BYTES_ADVISED,
)
from holdfast.core.process_spec import ProcessSpec, decode_process_spec, encode_process_spec
from holdfast.core.retry import COMMAND_RETRY
from holdfast.core.spec import COMMAND_KIND, JOB_V1_KIND, Spec
from holdfast.core.state import State
from holdfast.wire.generated.job.v1 import job_pb as pb
from holdfast.wire.mapping import to_timestamp

KINDS = (COMMAND_KIND, JOB_V1_KIND)
VISIBILITY_SECONDS = 300
OWNER_LABEL = "job.v1.owner"
EXIT_CODE_MAX = 2**31 - 1

STATES: dict[State, pb.JobState] = {
    State.PENDING: pb.JobState.SCHEDULED,
    State.SUBMITTING: pb.JobState.SCHEDULED,
    State.QUEUED: pb.JobState.SCHEDULED,
    State.ASSIGNED: pb.JobState.RUNNING,
    State.RUNNING: pb.JobState.RUNNING,
    State.AGGREGATING: pb.JobState.RUNNING,
    State.VALIDATING: pb.JobState.RUNNING,
    State.SUCCEEDED: pb.JobState.COMPLETED,
    State.PARTIAL_SUCCESS: pb.JobState.FAILED,
    State.FAILED: pb.JobState.FAILED,
    State.TIMEOUT: pb.JobState.FAILED,
    State.DEAD_LETTERED: pb.JobState.FAILED,
    State.CANCELLED: pb.JobState.CANCELLED,
}

CONFIG = pb.ExecutionConfig(
    batching=pb.BatchingConfig(
        flush_interval_seconds=2,
        max_batch_size=50,
        max_batch_bytes=OUTPUT_BATCH_BYTES_ADVISED,
        playback_interval_millis=50,
    ),
    heartbeat_interval_seconds=30,
    output_flush_interval_millis=100,
)


def states_of(state: pb.JobState) -> tuple[State, ...]:
    """Return the states that a state of job.v1 stands for; an empty tuple, for unspecified, selects
    all."""
    if state not in (pb.JobState.UNSPECIFIED, *STATES.values()):
        raise Invalid(f"There is no job state {int(state)}.")
    return tuple(one for one, job_v1 in STATES.items() if job_v1 == state)


def spec_of(params: pb.JobParams | None, queue: str) -> Spec:
    """Return the spec of a job. A plain command gets a kind that holdfast workers can run, too."""
    if params is None:
        raise Invalid("There are no job_params: give at least the command to run.")
    labels = dict(params.metadata)
    if params.owner:
        labels[OWNER_LABEL] = params.owner
    kind, payload = COMMAND_KIND, _command(params)
    if payload is None or OWNER_LABEL in params.metadata or not _fits_labels(labels):
        kind, payload, labels = JOB_V1_KIND, msgspec.Raw(params.to_json().encode()), {}
    return Spec(
        kind=kind,
        queue=queue or "default",
        payload=payload,
        lease=timedelta(seconds=VISIBILITY_SECONDS),
        timeout=timedelta(seconds=params.timeout_seconds) if params.timeout_seconds > 0 else None,
        retry=COMMAND_RETRY,
        labels=labels,
    )


def _fits_labels(labels: dict[str, str]) -> bool:
    """Whether metadata fits into labels; else it stays in the payload, for workers of job.v1."""
    longest = max((len(key) + len(value) for key, value in labels.items()), default=0)
    return len(labels) <= LABELS_MAX and longest <= LABEL_CHARACTERS_MAX


_TERMINALS = (pb.ProcessType.UNSPECIFIED, pb.ProcessType.PIPE, pb.ProcessType.PTY)


def _command(params: pb.JobParams) -> msgspec.Raw | None:
    """Return the payload of a plain command, or None for one that needs a clone or a container. A
    repository or a commit alone only describes where the command comes from."""
    cloned = params.git_clone is not None and params.git_clone.enabled
    contained = params.container is not None and params.container.enabled
    strange = params.process_type not in _TERMINALS or params.timeout_seconds < 0
    if cloned or contained or strange or not params.command:
        return None
    besides = pb.JobParams(**{name: getattr(params, name) for name in _DESCRIPTIVE})
    return encode_process_spec(
        ProcessSpec(
            argv=(params.command, *params.args),
            env=dict(params.environment),
            cwd=params.working_directory or None,
            pty=params.process_type == pb.ProcessType.PTY,
            job_v1=msgspec.json.decode(besides.to_json()),
        )
    )


_DESCRIPTIVE = ("repository", "commit", "branch", "container", "git_clone")


def _descriptive(command: ProcessSpec) -> pb.JobParams:
    with suppress(ValueError, TypeError, OverflowError):  # not written by holdfast
        text = msgspec.json.encode(command.job_v1)
        return pb.JobParams.from_json(text, ignore_unknown_fields=True)
    return pb.JobParams()


def params_of(spec: Spec) -> pb.JobParams:
    """Return the parameters of a job; empty for a function."""
    if spec.kind == JOB_V1_KIND:
        with suppress(ValueError, TypeError, OverflowError):  # hidden, or not written by holdfast
            return pb.JobParams.from_json(bytes(spec.payload), ignore_unknown_fields=True)
    metadata = dict(spec.labels)
    owner = metadata.pop(OWNER_LABEL, "")
    params = pb.JobParams(metadata=metadata, owner=owner)
    if spec.timeout is not None:
        params.timeout_seconds = int(spec.timeout.total_seconds())
    try:
        command = decode_process_spec(spec.payload) if spec.kind == COMMAND_KIND else None
    except Invalid:  # hidden, or not written by holdfast
        command = None
    if command is not None:
        params.command, params.args = command.argv[0], list(command.argv[1:])
        params.environment = dict(command.env)
        params.working_directory = command.cwd or ""
        params.process_type = pb.ProcessType.PTY if command.pty else pb.ProcessType.PIPE
        besides = _descriptive(command)
        for name in _DESCRIPTIVE if command.job_v1 else ():
            setattr(params, name, getattr(besides, name))
    return params


def job_of(job: Job) -> pb.Job:
    """Return the job as a message of job.v1, with the fields that holdfast added to it."""
    return pb.Job(
        job_id=job.job_id,
        job_params=params_of(job.spec),
        state=STATES[job.state],
        created_at=to_timestamp(job.created_at),
        updated_at=to_timestamp(job.updated_at),
        execution_config=CONFIG,
        queue=job.spec.queue,
        attempt=job.attempt,
        owner=job.owner or "",
        result=result_of(job) if job.ended else None,
        reason=job.reason or (job.error.summary if job.error else ""),
        kind=job.spec.kind,
        cancel_requested=job.cancel is not None,
    )


def result_of(job: Job) -> pb.JobResult:
    """Return how the job ended, as a message of job.v1."""
    succeeded = job.state is State.SUCCEEDED
    failure = job.error
    exit_code = 0 if succeeded or failure is None else failure.exit_code or 1
    if not -EXIT_CODE_MAX <= exit_code <= EXIT_CODE_MAX:
        exit_code = 1
    return pb.JobResult(
        job_id=job.job_id,
        success=succeeded,
        exit_code=exit_code,
        error_message="" if succeeded else _why(job),
        started_at=to_timestamp(job.started_at) if job.started_at else None,
        completed_at=to_timestamp(job.ended_at) if job.ended_at else None,
    )


def _why(job: Job) -> str:
    if job.state is State.PARTIAL_SUCCESS:
        promised = job.spec.promised_outputs
        return f"{job.missing_outputs or 0} of {promised} promised outputs are missing."
    return job.error.summary if job.error else job.reason or f"The job is {job.state}."
