"""The follow-ups of simulated handlers if they succeed, and their compensation if they fail."""

from datetime import timedelta
from random import Random  # noqa: TID251  # seeded: the same chance every time

import msgspec
from msgspec.structs import replace

from holdfast.core.job import Failure
from holdfast.core.lifecycle import Outcome, is_last_failure
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobRequest
from holdfast.worker.executor import Ending

_RETRY = Retry(
    max_failures=2,
    max_crashes=3,
    backoff=timedelta(milliseconds=400),
    backoff_max=timedelta(seconds=3),
)


def follow_ups_of(grant: Grant) -> tuple[JobRequest, ...]:
    """Return the follow-ups of an attempt, the same at every call. A follow-up has none."""
    if grant.job.correlation_id is not None:
        return ()
    chance = Random(f"{grant.job_id}/{grant.fencing_token}")
    return tuple(
        JobRequest(
            spec=Spec(
                payload=msgspec.Raw(b'{"follows":%d}' % number),
                lease=timedelta(seconds=chance.choice((1.5, 2, 3))),
                lock=chance.choice((None, None, "disk")),
                delay=chance.choice((None, None, timedelta(seconds=2))),
                retry=_RETRY,
            )
        )
        for number in range(chance.choice((0, 0, 1, 2)))
    )


def compensated(grant: Grant, end: Outcome) -> bool | None:
    """Return how the compensation of the last attempt ended, if there was one."""
    if not isinstance(end, Failure) or not is_last_failure(grant.job, end):
        return None
    return Random(f"{grant.job_id}/{grant.fencing_token}/end").choice((None, True, False))


def with_follow_ups(grant: Grant, ending: Ending) -> Ending:
    """Return the same ending, with compensation and follow-ups."""
    return replace(
        ending,
        compensated=compensated(grant, ending.outcome),
        follow_ups=msgspec.json.encode(follow_ups_of(grant)),
    )
