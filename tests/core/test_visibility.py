"""Visibility: which jobs a caller may know of."""

import pytest
from msgspec.structs import replace

from holdfast.core.access import ANONYMOUS, Principal, Scope
from holdfast.core.job import Job
from holdfast.core.outputs import ValidationResult
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.core.visibility import (
    HOLDER_TEXTS,
    REFUSED_FOR_HOLDER,
    WAITS_FOR_HOLDER,
    can_read_all,
    can_see,
    can_see_all,
    is_submitter,
    submitter,
)
from holdfast.testing.fakes import EPOCH

KEY = "0123456789ab"
QUEUED = Job("job-1", Spec(queue="a1", region="eu"), State.QUEUED, EPOCH, EPOCH, EPOCH)
DONE = replace(QUEUED, state=State.SUCCEEDED, submitted_by="key:ana")


def holder(*scopes: Scope, queues: str = "*", regions: tuple[str, ...] = ()) -> Principal:
    return Principal("ana", frozenset(scopes), (queues,), regions, KEY)


def test_a_submitter_is_known_by_its_key() -> None:
    assert submitter(holder()) == "key:ana"
    assert submitter(ANONYMOUS) == "user:anonymous"


@pytest.mark.parametrize("scope", Scope)
def test_what_is_out_of_reach_is_seen_with_no_scope(scope: Scope) -> None:
    assert not can_see(holder(scope, queues="b*"), DONE)
    assert not can_see(holder(scope, regions=("us",)), DONE)
    assert can_see(ANONYMOUS, DONE)


def test_a_submitter_sees_its_own() -> None:
    assert can_see(holder(Scope.SUBMIT), DONE)
    assert not can_see(holder(Scope.SUBMIT), replace(DONE, submitted_by="key:bob"))
    assert not is_submitter(holder(Scope.WORK), DONE)
    assert is_submitter(holder(Scope.SUBMIT, queues="a1", regions=("eu",)), DONE)


def test_observers_see_all_in_their_reach() -> None:
    assert can_see(holder(Scope.OBSERVE, queues="a*", regions=("eu",)), DONE)
    assert can_see(holder(Scope.ADMIN), DONE)
    assert not can_see(holder(Scope.DATA, Scope.KEYS), QUEUED)


def test_workers_see_what_is_unfinished() -> None:
    worker = holder(Scope.WORK)
    outputs = replace(QUEUED.spec, promised_outputs=1)
    failed = replace(QUEUED, state=State.FAILED)

    assert can_see(worker, QUEUED)
    assert not can_see(worker, replace(DONE, submitted_by=None))
    assert can_see(worker, replace(DONE, state=State.PARTIAL_SUCCESS))
    assert can_see(worker, replace(DONE, spec=replace(DONE.spec, resumed_from="job-0")))
    assert not can_see(worker, failed)
    assert can_see(worker, replace(failed, spec=outputs))
    assert can_see(worker, replace(failed, spec=outputs, found=ValidationResult(verified=0, missing=1)))


def test_only_observers_of_everything_see_all_there_is() -> None:
    assert can_see_all(ANONYMOUS)
    assert can_see_all(holder(Scope.OBSERVE))
    assert can_see_all(holder(Scope.ADMIN))
    assert not can_see_all(holder(Scope.SUBMIT, Scope.WORK))
    assert not can_see_all(holder(Scope.OBSERVE, queues="a*"))
    assert not can_see_all(holder(Scope.OBSERVE, regions=("eu",)))


def test_only_who_sees_every_job_and_its_data_reads_all() -> None:
    assert can_read_all(ANONYMOUS)
    assert can_read_all(holder(Scope.OBSERVE, Scope.DATA))
    assert not can_read_all(holder(Scope.OBSERVE))
    assert not can_read_all(holder(Scope.DATA))
    assert not can_read_all(holder(Scope.OBSERVE, Scope.DATA, queues="a*"))


@pytest.mark.parametrize("text", [WAITS_FOR_HOLDER, REFUSED_FOR_HOLDER])
def test_every_sentence_about_a_holder_is_known_to_those_who_hide_it(text: str) -> None:
    assert text in HOLDER_TEXTS
    assert "{lock}" in text
    assert "{holder}" in text
