"""The closed catalogue of event types: past-tense facts, grouped by what they are for."""

from enum import StrEnum


class EventClass(StrEnum):
    """Where an event comes from, and so whether the projection reads it.

    Only `transition` and `control` events have an offset and feed the projection.
    """

    TRANSITION = "transition"
    CONTROL = "control"
    FACT = "fact"
    WORKER = "worker"
    EXTERNAL = "external"


class EventType(StrEnum):
    """The types of the events that the registry itself writes."""

    REGISTERED = "job_registered"
    SUBMITTING = "job_submitting"
    QUEUED = "job_queued"
    CLAIMED = "job_claimed"
    STARTED = "job_started"
    AGGREGATING = "job_aggregating"
    VALIDATING = "job_validating"
    SUCCEEDED = "job_succeeded"
    PARTIALLY_SUCCEEDED = "job_partially_succeeded"
    FAILED = "job_failed"
    CANCELLED = "job_cancelled"
    DEAD_LETTERED = "job_dead_lettered"
    TIMED_OUT = "job_timed_out"
    REQUEUED = "job_requeued"

    CANCEL_REQUESTED = "job_cancel_requested"
    COMPENSATED = "job_compensated"
    RESTORED = "job_restored"
    OUTPUTS_VERIFIED = "job_outputs_verified"

    ORPHAN_SUSPECTED = "job_orphan_suspected"
    STALE_WRITE_REJECTED = "job_stale_write_rejected"
    PUBLISH_REFUSED = "job_publish_refused"
    REPLAYED = "job_replayed"
    RESUMED = "job_resumed"
    OUTPUTS_UNSEEN = "job_outputs_unseen"
    LEASE_RENEWED = "job_lease_renewed"
    HEARTBEAT = "job_heartbeat"

    # The enum's own hash is a Python function; every event written is counted by its type.
    __hash__ = str.__hash__


CONTROL_TYPES = frozenset(
    {
        EventType.CANCEL_REQUESTED,
        EventType.COMPENSATED,
        EventType.RESTORED,
        EventType.OUTPUTS_VERIFIED,
    }
)
FACT_TYPES = frozenset(
    {
        EventType.ORPHAN_SUSPECTED,
        EventType.STALE_WRITE_REJECTED,
        EventType.PUBLISH_REFUSED,
        EventType.REPLAYED,
        EventType.RESUMED,
        EventType.OUTPUTS_UNSEEN,
        EventType.LEASE_RENEWED,
        EventType.HEARTBEAT,
    }
)
TRANSITION_TYPES = frozenset(set(EventType) - CONTROL_TYPES - FACT_TYPES)


KEY_CREATED = "key_created"
KEY_REVOKED = "key_revoked"
"""The events about API keys: they belong to no job, and only the registry writes them."""


class WorkerEventType(StrEnum):
    """The events that a worker publishes about its own attempt; the numbers of job.v1 follow this order."""

    PROCESS_START = "process_start"
    PROCESS_END = "process_end"
    PROCESS_ERROR = "process_error"
    HEARTBEAT = "heartbeat"
    OUTPUT = "output"
    TERMINAL_RESIZE = "terminal_resize"
    OUTPUT_BATCH = "output_batch"
    CONTAINER_CREATE = "container_create"
    CONTAINER_REMOVE = "container_remove"
    IMAGE_PULL_START = "image_pull_start"
    IMAGE_PULL_PROGRESS = "image_pull_progress"
    IMAGE_PULL_COMPLETE = "image_pull_complete"
    GIT_CLONE_START = "git_clone_start"
    GIT_CLONE_END = "git_clone_end"
    GIT_CLONE_ERROR = "git_clone_error"
    CUSTOM = "custom"


WORKER_TYPES: frozenset[str] = frozenset(WorkerEventType)


class ReasonCode(StrEnum):
    """Why a job became a dead letter."""

    PARSE_ERROR = "parse_error"
    VALIDATION_FAILED = "validation_failed"
    DEPENDENCY_UNAVAILABLE = "dependency_unavailable"
    TIMEOUT = "timeout"
    EXHAUSTED_RETRIES = "exhausted_retries"
    POLICY_VIOLATION = "policy_violation"
    INFRASTRUCTURE_FAILURE = "infrastructure_failure"
    COMPENSATION_FAILED = "compensation_failed"


class Stage(StrEnum):
    """Where in an attempt the failure happened."""

    FETCH = "fetch"
    INPUT = "input"
    EXEC = "exec"
    OUTPUT = "output"
    COMMIT = "commit"
