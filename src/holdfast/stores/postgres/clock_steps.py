"""Steps of the server's clock: noticed by a process that knows better, dealt with once for all of them."""

import os
from datetime import datetime, timedelta

import msgspec

from holdfast.core.clock_step import TOLERANCE, Step, Steps, carried
from holdfast.stores.postgres.errors import Busy
from holdfast.stores.postgres.place import Place, Speaks
from holdfast.stores.postgres.rows import job_of, update_row
from holdfast.stores.postgres.server_time import Stepped
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import statement
from holdfast.system import machine

JOBS_AT_ONCE = 500
SECONDS_MAX = 600


async def look(connection: Speaks, place: Place, *, ours: bool = True) -> None:
    """Take in which steps were dealt with by others. Raise `Stepped` if the clock does not fit."""
    asked = place.time.ask()
    [(now, steps)] = await connection.fetch(statement("select_clock", place.schema))
    if ours and place.clock is None and not place.time.hear(now, asked):
        raise Stepped
    place.time.steps = steps
    if place.clock is not None:
        place.time.compared = True  # the times are not the server's


async def compare(session: Session, place: Place) -> None:
    """Look, and the first time compare the clock with the times in the store. Raise `Stepped` if it was set
    back while no process of ours was there to notice."""
    await look(session, place)
    if not place.time.compared:
        if await _unseen(session, place.schema) is not None:
            raise Stepped
        place.time.compared = True


async def set_back(session: Session, schema: str) -> tuple[Step | None, bool]:
    """By how much the clock was set back since the last time that the store was told, and whether this
    process may write. None if that time is past, as it should be."""
    [(told, now, may_write)] = await session.fetch(statement("select_newest", schema))
    if told is None or told <= now + TOLERANCE:
        return None, may_write
    return Step(before=told, after=now), may_write


async def _unseen(session: Session, schema: str) -> Step | None:
    step, may_write = await set_back(session, schema)
    return step if may_write else None


async def settle(session: Session, place: Place) -> None:
    """Compare the clocks again and, if the server's was set and no other process has dealt with it yet, carry
    what was measured by its old time over to the new one.

    Writers are waited for, and wait: what they decide afterwards names the steps they know of, and is
    refused otherwise. A writer that does not end (a transaction of a caller's own) is not waited for longer
    than a moment: the jobs that it has changed stay as they are.
    """
    try:
        async with session.transaction("SET LOCAL lock_timeout = '3s'", seconds=SECONDS_MAX):
            await session.connection.execute(f"LOCK TABLE {place.schema}.job IN EXCLUSIVE MODE")
            agreed = await _settle(session, place)
    except Busy:
        async with session.transaction(seconds=SECONDS_MAX):
            agreed = await _settle(session, place)
    place.time.accept(*agreed)
    place.time.compared = True
    for marks in (place.ready, place.due):
        marks.forget()
    place.held.forget()


async def _settle(session: Session, place: Place) -> tuple[datetime, float, str]:
    """What to accept once this is committed: the time, when it was asked for, and the steps."""
    time, schema = place.time, place.schema
    await session.fetch("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, schema)
    asked = time.ask()
    [(now, text)] = await session.fetch(statement("select_clock", schema))
    steps = steps_of(text)
    step = _rest(time.step(now, asked), steps.total - steps_of(time.steps).total)
    if step is None and not time.compared:
        step = await _unseen(session, schema)
    if step is not None and not await _was_told(session, schema, step):
        jobs = await _carry(session, schema, step)
        steps = Steps(
            total=steps.total + step.by,
            by=step.by,
            at=now,
            noticed_by=f"process {os.getpid()} on {machine()}",
            jobs=jobs,
        )
        text = msgspec.json.encode(steps).decode()
        await session.fetch(statement("put_clock", schema), text)
    return now, asked, text


def _rest(step: Step | None, dealt: timedelta) -> Step | None:
    """What is left of a step of which others have dealt with so much: it begins with what they made of it."""
    if step is None or step.since is None or abs(step.by - dealt) <= TOLERANCE:
        return None
    return Step(before=step.before + dealt, after=step.after, since=step.since + dealt)


_LOCK = 519612071
"""Of two processes without the lock on the table, one comes second."""


async def _was_told(session: Session, schema: str, step: Step) -> bool:
    """Whether the server's clock has told times that a step would have left out: then it was not set, and it
    is our own clock that stood still, with the virtual machine that we run in. What was written before the
    last step does not count, going by the transactions: a clock that was set back had told those times."""
    first, last = step.before + TOLERANCE, (step.since or step.before) + step.by - TOLERANCE
    if first >= last:
        return False
    [(told,)] = await session.fetch(statement("select_told", schema), first, last)
    return bool(told)


async def _carry(session: Session, schema: str, step: Step) -> int:
    """Carry over every job that has a lease, a deadline or a wait; returns how many there were."""
    first = min(step.before, step.after)
    rows = await session.fetch(statement("select_measured", schema), first)
    seqs, changed = sorted(row[0] for row in rows), 0
    for start in range(0, len(seqs), JOBS_AT_ONCE):
        some = seqs[start : start + JOBS_AT_ONCE]
        locked = await session.fetch(statement("lock_measured", schema), some)
        found = [job_of(row) for row in locked]
        moved = [
            update_row(seq, job, None, after)
            for seq, job in found
            if (after := carried(job, step)) is not job
        ]
        if moved:
            await session.fetch(statement("update_jobs", schema), moved)
            changed += len(moved)
    return changed


def steps_of(text: str) -> Steps:
    """The steps in the text that is kept of them."""
    return msgspec.json.decode(text, type=Steps) if text else Steps()
