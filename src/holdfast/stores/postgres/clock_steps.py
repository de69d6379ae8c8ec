"""Steps of the server's clock: noticed by any process, handled once for all of them."""

import os
from datetime import datetime, timedelta

import msgspec

from holdfast.core.clock_step import TOLERANCE, ClockStep, ClockStepSummary, carry_over
from holdfast.core.state import State
from holdfast.stores.postgres.commit_context import CommitContext, QueryConnection
from holdfast.stores.postgres.errors import LockTimeout
from holdfast.stores.postgres.rows import job_of
from holdfast.stores.postgres.server_time import ClockStepped
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.state_rows import ChangedJob
from holdfast.stores.postgres.statements import statement
from holdfast.stores.postgres.writes import Writes
from holdfast.system import machine_name

JOBS_AT_ONCE = 500
SECONDS_MAX = 600


async def refresh(connection: QueryConnection, context: CommitContext, *, external: bool = False) -> None:
    """Read which steps other processes have handled. Raise `ClockStepped` if the clock was set since."""
    asked = context.time.begin_reading()
    [(now, steps)] = await connection.fetch(statement("select_clock", context.schema))
    if not external and context.clock is None and not context.time.observe(now, asked):
        raise ClockStepped
    context.time.steps = steps
    if context.clock is not None:
        context.time.compared = True  # the times are not the server's


async def compare(session: Session, context: CommitContext) -> None:
    """Refresh, and the first time compare the clock with the times in the store. Raise `ClockStepped` if it
    was set back while no process of ours was running."""
    await refresh(session, context)
    if not context.time.compared:
        if await _unnoticed_step(session, context.schema) is not None:
            raise ClockStepped
        context.time.compared = True


async def set_back(session: Session, schema: str) -> tuple[ClockStep | None, bool]:
    """Return by how much the clock was set back since the newest time in the store, and whether this
    process may write. The step is None if that time has passed, as it should."""
    [(newest, now, may_write)] = await session.fetch(statement("select_newest_time", schema))
    if newest is None or newest <= now + TOLERANCE:
        return None, may_write
    return ClockStep(before=newest, after=now), may_write


async def _unnoticed_step(session: Session, schema: str) -> ClockStep | None:
    step, may_write = await set_back(session, schema)
    return step if may_write else None


async def settle(session: Session, context: CommitContext) -> None:
    """Compare the clocks again and, if the server's was set and no other process has handled that yet, move
    all leases, deadlines and waits from its old time to the new one.

    This waits for writers, and they wait for it: a commit names the steps that it knows of, and is refused
    when there are newer ones. A writer that does not end (a transaction of a caller) is waited for only 3
    s: the jobs that it has changed stay as they are.
    """
    try:
        async with session.transaction("SET LOCAL lock_timeout = '3s'", seconds=SECONDS_MAX):
            await session.connection.execute(f"LOCK TABLE {context.schema}.state IN EXCLUSIVE MODE")
            agreed = await _settle(session, context)
    except LockTimeout:
        async with session.transaction(seconds=SECONDS_MAX):
            agreed = await _settle(session, context)
    context.time.accept(*agreed)
    context.time.compared = True
    context.ready_marks.forget()
    context.due_scan.forget()
    context.leased_jobs.forget()


async def _settle(session: Session, context: CommitContext) -> tuple[datetime, float, str]:
    """Return what to accept once this is committed: the time, when it was asked for, and the steps."""
    time, schema = context.time, context.schema
    await session.fetch("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, schema)
    asked = time.begin_reading()
    [(now, text)] = await session.fetch(statement("select_clock", schema))
    steps = steps_of(text)
    step = _rest(time.step(now, asked), steps.total - steps_of(time.steps).total)
    if step is None and not time.compared:
        step = await _unnoticed_step(session, schema)
    if step is not None and not await _has_times_within(session, schema, step):
        jobs = await _move_jobs(session, context, step)
        steps = ClockStepSummary(
            total=steps.total + step.by,
            by=step.by,
            at=now,
            noticed_by=f"process {os.getpid()} on {machine_name()}",
            jobs=jobs,
        )
        text = msgspec.json.encode(steps).decode()
        await session.fetch(statement("put_clock", schema), text)
    return now, asked, text


def _rest(step: ClockStep | None, handled: timedelta) -> ClockStep | None:
    """Return the rest of a step of which other processes have handled the part `handled`."""
    if step is None or step.since is None or abs(step.by - handled) <= TOLERANCE:
        return None
    return ClockStep(before=step.before + handled, after=step.after, since=step.since + handled)


_LOCK = 519612071
"""An advisory lock: two processes that did not get the table lock still run one after the other."""


async def _has_times_within(session: Session, schema: str, step: ClockStep) -> bool:
    """Whether the store has times that the step would have skipped: then the server's clock was not set,
    and it is our own clock that stood still, with the virtual machine that we run in. Rows from before the
    last step do not count, by their transaction ids: a clock that was set back had shown those times."""
    first, last = step.before + TOLERANCE, (step.since or step.before) + step.by - TOLERANCE
    if first >= last:
        return False
    [(found,)] = await session.fetch(statement("select_written_between", schema), first, last)
    return bool(found)


async def _move_jobs(session: Session, context: CommitContext, step: ClockStep) -> int:
    """Move every job that has a lease, a deadline or a wait; return how many there were."""
    first, schema = min(step.before, step.after), context.schema
    rows = await session.fetch(statement("select_time_bound_jobs", schema), first)
    seqs, changed = sorted(row[0] for row in rows), 0
    for start in range(0, len(seqs), JOBS_AT_ONCE):
        some = seqs[start : start + JOBS_AT_ONCE]
        locked = await session.fetch(statement("lock_time_bound_jobs", schema), some)
        found = await session.fetch(statement("select_by_number", schema), [row[0] for row in locked])
        moved = [
            ChangedJob(seq, job, None, after)
            for seq, job in map(job_of, found)
            if (after := carry_over(job, step)) is not job
        ]
        if moved:
            await _write(session, context, moved, step.after)
            changed += len(moved)
    return changed


async def _write(session: Session, context: CommitContext, moved: list[ChangedJob], now: datetime) -> None:
    queued = [job for job in moved if job.after.state is State.QUEUED]
    due = {job.seq: at for job in moved if (at := job.after.due_at) is not None}
    writes = Writes(
        jobs=moved,
        taken=[job.before for job in queued if job.before],
        put=[job.after for job in queued],
        alarm_at=min(due.values(), default=None),
        timed=list(due),
    )
    seqs = {job.after.job_id: job.seq for job in moved}
    parameters = writes.parameters(seqs, context.lanes)
    sql = statement("write_commit", context.schema)
    await session.fetch(sql, 3, now, None, None, None, "", "", *parameters)


def steps_of(text: str) -> ClockStepSummary:
    """Return the steps in their stored text."""
    return msgspec.json.decode(text, type=ClockStepSummary) if text else ClockStepSummary()
