"""The names in the catalogue stand in every log ever written: none of them changes."""

from holdfast.core.catalogue import (
    CONTROL_TYPES,
    FACT_TYPES,
    TRANSITION_TYPES,
    EventClass,
    EventType,
    ReasonCode,
    Stage,
    WorkerEventType,
)

TRANSITIONS = (
    "registered submitting queued claimed started aggregating validating succeeded"
    " partially_succeeded failed cancelled dead_lettered timed_out requeued"
)
CONTROLS = "cancel_requested compensated restored outputs_verified"
FACTS = (
    "orphan_suspected stale_write_rejected publish_refused replayed resumed outputs_unseen"
    " lease_renewed heartbeat"
)


def test_the_registrys_events_keep_their_names_and_their_class() -> None:
    assert {f"job_{name}" for name in TRANSITIONS.split()} == TRANSITION_TYPES
    assert {f"job_{name}" for name in CONTROLS.split()} == CONTROL_TYPES
    assert {f"job_{name}" for name in FACTS.split()} == FACT_TYPES


def test_a_member_is_called_as_the_name_it_writes() -> None:
    for kind in (EventType, EventClass, WorkerEventType, ReasonCode, Stage):
        for member in kind:
            assert member.name == member.value.removeprefix("job_").upper()


def test_the_classes_say_who_an_event_is_from() -> None:
    assert list(EventClass) == ["transition", "control", "fact", "worker", "external"]


def test_worker_events_keep_the_order_their_numbers_follow() -> None:
    assert " ".join(WorkerEventType) == (
        "process_start process_end process_error heartbeat output terminal_resize output_batch"
        " container_create container_remove image_pull_start image_pull_progress"
        " image_pull_complete git_clone_start git_clone_end git_clone_error custom"
    )


def test_a_dead_letter_names_its_reason_and_its_stage() -> None:
    assert " ".join(ReasonCode) == (
        "parse_error validation_failed dependency_unavailable timeout exhausted_retries"
        " policy_violation infrastructure_failure compensation_failed"
    )
    assert " ".join(Stage) == "fetch input exec output commit"
