"""Prune: whole ended jobs with all their events, and old worker output."""

from collections import Counter
from datetime import datetime

from holdfast.failpoint import failpoint
from holdfast.ports import PruneResult
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
        await run("delete_jobs", seqs)
        await run("delete_claims", seqs)
        gone += await run("delete_events", seqs)
        gone += await run("delete_facts", [row[3] for row in old])
        failpoint("postgres.jobs_deleted")
        counted = Counter((row[1], row[2]) for row in old)
        counts = [(queue, state, -n) for (queue, state), n in counted.items()]
        await run("add_counts", counts)
    gone += await run("delete_output", output_before, limit)
    return PruneResult(len(old), gone)
