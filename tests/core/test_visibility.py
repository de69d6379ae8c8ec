"""Visibility: which jobs a caller may know of."""

import pytest
from msgspec.structs import replace

from holdfast.core.access import ANYONE, Principal, Scope
from holdfast.core.job import Job
from holdfast.core.outputs import Found
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.core.visibility import owns, sees, sees_all, submitter
from holdfast.testing.fakes import EPOCH

KEY = "0123456789ab"
QUEUED = Job("job-1", Spec(queue="a1", region="eu"), State.QUEUED, EPOCH, EPOCH, EPOCH)
DONE = replace(QUEUED, state=State.SUCCEEDED, submitted_by="key:ana")


def holder(*scopes: Scope, queues: str = "*", regions: tuple[str, ...] = ()) -> Principal:
    return Principal("ana", frozenset(scopes), (queues,), regions, KEY)


def test_a_submitter_is_known_by_its_key() -> None:
    assert submitter(holder()) == "key:ana"
    assert submitter(ANYONE) == "user:anonymous"


@pytest.mark.parametrize("scope", Scope)
def test_what_is_out_of_reach_is_seen_with_no_scope(scope: Scope) -> None:
    assert not sees(holder(scope, queues="b*"), DONE)
    assert not sees(holder(scope, regions=("us",)), DONE)
    assert sees(ANYONE, DONE)


def test_a_submitter_sees_its_own() -> None:
    assert sees(holder(Scope.SUBMIT), DONE)
    assert not sees(holder(Scope.SUBMIT), replace(DONE, submitted_by="key:bob"))
    assert not owns(holder(Scope.WORK), DONE)
    assert owns(holder(Scope.SUBMIT, queues="a1", regions=("eu",)), DONE)


def test_observers_see_all_in_their_reach() -> None:
    assert sees(holder(Scope.OBSERVE, queues="a*", regions=("eu",)), DONE)
    assert sees(holder(Scope.ADMIN), DONE)
    assert not sees(holder(Scope.DATA, Scope.KEYS), QUEUED)


def test_workers_see_what_is_unfinished() -> None:
    worker = holder(Scope.WORK)
    outputs = replace(QUEUED.spec, promised_outputs=1)
    failed = replace(QUEUED, state=State.FAILED)

    assert sees(worker, QUEUED)
    assert not sees(worker, replace(DONE, submitted_by=None))
    assert sees(worker, replace(DONE, state=State.PARTIAL_SUCCESS))
    assert sees(worker, replace(DONE, spec=replace(DONE.spec, resumed_from="job-0")))
    assert not sees(worker, failed)
    assert sees(worker, replace(failed, spec=outputs))
    assert sees(worker, replace(failed, spec=outputs, found=Found(verified=0, missing=1)))


def test_only_observers_of_everything_see_all_there_is() -> None:
    assert sees_all(ANYONE)
    assert sees_all(holder(Scope.OBSERVE))
    assert sees_all(holder(Scope.ADMIN))
    assert not sees_all(holder(Scope.SUBMIT, Scope.WORK))
    assert not sees_all(holder(Scope.OBSERVE, queues="a*"))
    assert not sees_all(holder(Scope.OBSERVE, regions=("eu",)))
