"""The jobs that a plan asks for."""

from datetime import timedelta
from random import Random  # noqa: TID251  # seeded: the same chance every time

import msgspec
from msgspec.structs import replace

from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.testing.simulation.output_store import promise_of
from holdfast.testing.simulation.plan import Plan

EXECUTOR = "slurm"


def requests_of(plan: Plan, chance: Random, promising: Random) -> list[list[JobRequest]]:
    """Return the requests of each client. The client that replaces a dead one has the same."""
    requests: list[list[JobRequest]] = [[] for _ in range(plan.clients)]
    for n in range(plan.jobs):
        named = chance.random() < 0.5
        request = JobRequest(
            spec=_spec(chance, n, timed=plan.timed),
            job_id=f"job-{n}" if named else None,
            request_id=None if named else f"request-{n}",
        )
        if named and chance.random() < 0.2:
            bound = replace(request.spec, executor=EXECUTOR)
            request = replace(request, spec=bound, register=True)
        if plan.validators and promising.random() < 0.6:
            promise = promise_of(promising)
            kept = replace(request.spec, outputs=promise, promised_outputs=promise.count)
            request = replace(request, spec=kept)
        requests[chance.randrange(plan.clients)].append(request)
    return requests


def _spec(chance: Random, number: int, *, timed: bool = False) -> Spec:
    """Return the spec of a job: a short lease, a small budget, sometimes a lock or a deadline; if `timed`,
    half of them with a timeout."""
    return Spec(
        payload=msgspec.Raw(b'{"n":%d}' % number),
        lease=timedelta(seconds=chance.choice((1.5, 2, 3, 4))),
        lock=chance.choice((None, None, "disk", "gpu")),
        priority=chance.choice((5, 5, 0)),
        delay=chance.choice((None, None, timedelta(seconds=1), timedelta(seconds=4))),
        timeout=timedelta(seconds=1.2) if timed and number % 2 else None,
        ttl=chance.choice((None, None, None, None, timedelta(seconds=20))),
        retry=Retry(
            max_failures=chance.randint(1, 4),
            max_crashes=chance.randint(1, 5),
            backoff=timedelta(milliseconds=chance.choice((100, 400, 1500))),
            backoff_max=timedelta(seconds=3),
            on_exhausted=chance.choice(tuple(OnExhausted)),
        ),
    )
