"""Which job stands for another resume of the same one."""

import pytest
from msgspec.structs import replace

from holdfast.core.errors import Conflict
from holdfast.core.job import Job
from holdfast.core.resumption import EarlierResume, check_resumable, current_resume
from holdfast.core.state import ENDED, State
from tests.core.sample_jobs import (
    PERMANENT,
    PROMISING,
    after,
    claim,
    complete,
    enqueue,
    job_in,
    judge,
)

ORIGINAL = job_in(State.PARTIAL_SUCCESS)


@pytest.mark.parametrize("state", State)
def test_a_resume_stands_until_it_ends_and_when_it_succeeded_while_nothing_new_is_found(
    state: State,
) -> None:
    job = replace(job_in(state), job_id="job-1-resume-0000")
    stands = state not in ENDED or state is State.SUCCEEDED

    found = current_resume(ORIGINAL, [EarlierResume(job=job, version=ORIGINAL.version)])
    since = current_resume(ORIGINAL, [EarlierResume(job=job, version=ORIGINAL.version - 1)])
    unknown = current_resume(ORIGINAL, [EarlierResume(job=job, version=None)])

    assert found == (job if stands else None)
    assert since == unknown == (job if state not in ENDED else None)


def test_the_last_one_that_stands_is_it_and_forgotten_ones_are_not() -> None:
    first, last = (replace(job_in(State.QUEUED), job_id=f"r-{n}") for n in range(2))
    failed = job_in(State.FAILED)
    earlier = [
        EarlierResume(job=first, version=1),
        EarlierResume(job=last, version=1),
        EarlierResume(job=failed, version=1),
        EarlierResume(job=None, version=1),
    ]

    assert current_resume(ORIGINAL, earlier) == last
    assert current_resume(ORIGINAL, [EarlierResume(job=None, version=ORIGINAL.version)]) is None
    assert current_resume(ORIGINAL, []) is None


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (job_in(State.SUCCEEDED), "is succeeded: not resumable. Only a job that has ended"),
        (job_in(State.FAILED), "is failed: not resumable. Only a job that has ended"),
        (job_in(State.VALIDATING), "is validating: not resumable. Only a job that has ended"),
        (
            after(enqueue(PROMISING), claim(), complete(PERMANENT)),
            "is failed: it is not known yet what it lacks. Validate first: validate --force",
        ),
        (
            after(enqueue(PROMISING), claim(), complete(PERMANENT), judge(8, 0)),
            "is failed: not resumable. All that it promised is there.",
        ),
    ],
)
def test_only_what_is_known_to_lack_something_is_resumed(job: Job, words: str) -> None:
    with pytest.raises(Conflict) as caught:
        check_resumable(job)

    assert words in str(caught.value)
    assert (caught.value.job_id, caught.value.version) == (job.job_id, job.version)
    assert check_resumable(ORIGINAL) is ORIGINAL
