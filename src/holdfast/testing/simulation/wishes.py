"""What simulated handlers wish for: follow-ups if they succeed, a compensation if they fail for good."""

from datetime import timedelta
from random import Random  # noqa: TID251  # seeded: the same chance every time

import msgspec
from msgspec.structs import replace

from holdfast.core.job import Failure
from holdfast.core.lifecycle import Outcome, is_last
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import Grant, Request
from holdfast.worker.executor import Ending

_RETRY = Retry(
    max_failures=2,
    max_crashes=3,
    backoff=timedelta(milliseconds=400),
    backoff_max=timedelta(seconds=3),
)


def follow_ups_of(grant: Grant) -> tuple[Request, ...]:
    """What an attempt asks for, whoever asks, as often as it is asked. A follow-up asks for none."""
    if grant.job.correlation_id is not None:
        return ()
    chance = Random(f"{grant.job_id}/{grant.fencing_token}")
    return tuple(
        Request(
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
    """How the compensation went that the last attempt ran, if it ran one."""
    if not isinstance(end, Failure) or not is_last(grant.job, end):
        return None
    return Random(f"{grant.job_id}/{grant.fencing_token}/end").choice((None, True, False))


def wishing(grant: Grant, ending: Ending) -> Ending:
    """The same end, with all wishes."""
    return replace(
        ending,
        compensated=compensated(grant, ending.outcome),
        follow_ups=msgspec.json.encode(follow_ups_of(grant)),
    )
