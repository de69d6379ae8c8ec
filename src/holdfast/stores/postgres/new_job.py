"""One new job alone, which is what a single enqueue is: it is written without a working set, in one statement
that also numbers it."""

from msgspec import Struct

from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Change
from holdfast.core.segment import encode_one
from holdfast.failpoint import failpoint
from holdfast.ports import ById, Work
from holdfast.stores.new_jobs import simply_queued
from holdfast.stores.postgres.commit import estimate_deadline
from holdfast.stores.postgres.commit_context import CommitContext, QueryConnection
from holdfast.stores.postgres.notifications import Notice
from holdfast.stores.postgres.rows import detail_text, origin_text
from holdfast.stores.postgres.scan_starts import BEGINNING
from holdfast.stores.postgres.statements import Row, statement
from holdfast.stores.postgres.writes import LaneKey, LanesMissing, lane_key, without_keys
from holdfast.stores.records import spec_text


class NewJob(Struct, frozen=True, gc=False):
    """A job that was written, and its enqueue sequence."""

    change: Change
    seq: int


async def write_new_job(
    connection: QueryConnection, context: CommitContext, work: Work, notice: Notice
) -> NewJob | None:
    """Decide on the job and write it, if its id is fresh, the server's time can be estimated, and there is
    nothing else to write; else return None, with nothing written."""
    one = work.selection
    if not isinstance(one, ById) or not one.fresh or one.lock:
        return None
    clock, time = context.clock, context.time
    now = clock.now() if clock else time.estimate()
    if now is None:
        return None
    try:
        decision = work.decide(None, now, None)
    except Exception:  # the way of all others makes a refusal of it
        return None
    if not simply_queued(decision, timed=True):
        return None
    row = _row(decision.after, decision.own_events[0], context.lanes)
    deadline = None if clock else estimate_deadline(time, now)
    failpoint("postgres.new_job_decided")
    asked = time.begin_reading()
    [(_, _, _, then, seq)] = await connection.write(
        statement("write_new_job", context.schema),
        now,
        deadline,
        BEGINNING if clock else None,
        None if clock else time.steps,
        notice.channel,
        notice.payload(ready=True),
        *row,
    )
    if not clock:
        time.observe(then, asked)  # a step of the clock is found again, and handled, by the next decision
    return NewJob(decision, seq)


def _row(job: Job, event: Event, lanes: dict[LaneKey, int]) -> Row:
    spec, key = job.spec, lane_key(job)
    if key not in lanes:
        raise LanesMissing({key})
    return (
        job.job_id,
        spec.queue,
        key[2],
        spec.priority,
        spec.region,
        spec.executor,
        job.created_at,
        job.correlation_id,
        spec_text(job),
        origin_text(job),
        job.ready_at,
        job.due_at,
        detail_text(job),
        lanes[key],
        without_keys(encode_one(event, 1).text, 1),
    )
