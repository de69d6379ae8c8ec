"""Prune: whole ended jobs with all their events, and old worker output."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.core import segment
from holdfast.core.catalogue import EventType
from holdfast.failpoint import failpoint
from holdfast.ports import PruneResult
from holdfast.stores.postgres.commit_context import QueryConnection
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import statement


async def prune(
    session: Session, schema: str, ended_before: datetime, output_before: datetime, limit: int
) -> PruneResult:
    """Remove up to `limit` jobs and as many batches of output, inside a transaction. A job that has not
    ended keeps its whole log, and with it the partition that the log is in."""

    async def run(name: str, *parameters: object) -> int:
        rows = await session.fetch(statement(name, schema), *parameters)
        return int(rows[0][0]) if rows else 0

    old = await session.fetch(statement("select_prunable", schema), ended_before, limit)
    gone = 0
    if old:
        seqs = [row[0] for row in old]
        await run("raise_token_floor", max(row[4] for row in old))
        failpoint("postgres.floor_raised")
        await run("delete_jobs", seqs, [row[2] for row in old])
        ops = {row[0] for row in await session.fetch(statement("select_old_claims", schema), seqs)}
        gone += await _cut_segments(session, schema, {c for row in old for c in row[5]}, set(seqs), ops)
        await run("delete_claims", sorted(ops))
        gone += await run("delete_events", seqs)
        gone += await run("delete_facts", [row[3] for row in old])
        failpoint("postgres.jobs_deleted")
        counted = Counter((row[1], row[2]) for row in old)
        counts = [(queue, state, -n) for (queue, state), n in counted.items()]
        await run("add_counts", *(list(column) for column in zip(*counts, strict=True)))
    gone += await run("delete_output", output_before, limit)
    return PruneResult(len(old), gone)


async def prunable(
    connection: QueryConnection, schema: str, ended_before: datetime, output_before: datetime
) -> PruneResult:
    """Return how many jobs there are to remove, and how many batches of other jobs' output."""
    query = statement("count_prunable", schema)
    [(jobs, batches)] = await connection.fetch(query, ended_before, output_before)
    return PruneResult(jobs, batches)


async def _cut_segments(
    session: Session, schema: str, commits: set[int], seqs: set[int], ops: set[str]
) -> int:
    """Remove the events of these jobs from the segments of these commits; return how many there were. The
    op_ids of claims are added to `ops`."""
    rows = await session.fetch(statement("lock_segments", schema), sorted(commits))
    removed: list[tuple[int, int]] = []
    cut: list[tuple[int, int, str]] = []
    events = 0
    for commit, place, text in rows:
        keys = segment.keys(text)
        events += sum(key in seqs for key in keys)
        ops |= _claims(text)
        left = segment.without(text, seqs) if not seqs.issuperset(keys) else None
        if left is None:
            removed.append((commit, place))
        else:
            cut.append((commit, place, left))
    for name, changed in (("delete_segments", removed), ("cut_segments", cut)):
        if changed:
            columns: list[Sequence[object]] = [list(column) for column in zip(*changed, strict=True)]
            await session.fetch(statement(name, schema), *columns)
    return events


def _claims(text: str) -> set[str]:
    """Return the op_ids of the claims in a segment."""
    fields = msgspec.json.decode(text)
    if fields["event_type"] != EventType.CLAIMED or "op_id" not in fields:
        return set()
    ops, start = fields["op_id"], fields.get("op_start", "")
    return {ops} if isinstance(ops, str) else {start + op_id for op_id in ops if op_id is not None}
