"""Rebuild: every record made again from the log, in one transaction.

The log is what is written once: the rows of `job`, segments, events and facts. All other tables follow from
them.
"""

from collections.abc import Sequence
from contextlib import suppress

from holdfast.core import segment
from holdfast.core.errors import Conflict, Corrupt
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.rebuild import claims_of, remake
from holdfast.ports import RebuildResult
from holdfast.stores.postgres.clock_steps import steps_of
from holdfast.stores.postgres.errors import LockTimeout
from holdfast.stores.postgres.event_log import checked_keys, decoded
from holdfast.stores.postgres.rows import detail_text, events_of, job_of
from holdfast.stores.postgres.sessions import Session
from holdfast.stores.postgres.statements import Row, statement

JOBS_AT_ONCE = 500
SEGMENTS_AT_ONCE = 50
SECONDS_MAX = 6 * 3600
SETTINGS = (
    "SET LOCAL lock_timeout = '3s'",
    "SET LOCAL idle_in_transaction_session_timeout = '10min'",  # much is decoded between two statements
    # Whole tables are read and written here, which the settings of a store's sessions would make slow.
    "SET LOCAL enable_seqscan = on",
    "SET LOCAL enable_hashjoin = on",
    "SET LOCAL plan_cache_mode = auto",
)
_TABLES = ("ready", "state", "alarm", "rare", "claim", "queue_count", "resource")


async def rebuild(session: Session, schema: str, *, check: bool) -> RebuildResult:
    """Make all records again; with `check`, undo that. All writers wait meanwhile."""
    tables = ", ".join(f"{schema}.{table}" for table in _TABLES)
    try:
        async with session.transaction(*SETTINGS, seconds=SECONDS_MAX):
            await session.connection.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")
            await session.connection.execute("SAVEPOINT rebuild")
            result = await _Rebuild(session, schema).run()
            if check:
                await session.connection.execute("ROLLBACK TO SAVEPOINT rebuild")
    except LockTimeout as error:
        raise Conflict("The store is in use: stop every worker and server that uses it first.") from error
    return result


class _Rebuild:
    """A rebuild inside a transaction that has locked all that it writes."""

    def __init__(self, session: Session, schema: str) -> None:
        self._session = session
        self._schema = schema

    async def run(self) -> RebuildResult:
        await self._execute("begin_rebuild")
        await self._note_commits()
        [(_, steps)] = await self._fetch("select_clock")
        clock_was_set = steps_of(steps).at is not None
        jobs = missing = different = last = 0
        while rows := await self._fetch("select_origins", last, JOBS_AT_ONCE):
            origins = dict(map(job_of, rows))
            stored = await self._stored_records(list(origins))
            published = await self._published(origins)
            records = {
                seq: remake(
                    origins[seq],
                    events,
                    stored.get(seq),
                    published=published[seq],
                    clock_was_set=clock_was_set,
                )
                for seq, events in (await self._histories(origins)).items()
            }
            await self._write(records)
            jobs += len(records)
            missing += len(records) - len(stored)
            different += sum(records[seq] is not job for seq, job in stored.items())
            last = rows[-1][0]
        await self._execute("fill_lists")
        [(lists,)] = await self._fetch("count_list_differences")
        await self._execute("end_rebuild")
        return RebuildResult(jobs=jobs, missing=missing, different=different, lists=lists)

    async def _note_commits(self) -> None:
        """Note which commits have events of which jobs: all segments are read for that, a few at a time."""
        commit = place = -1
        while rows := await self._fetch("select_segments_after", commit, place, SEGMENTS_AT_ONCE):
            found = {(key, row[0]) for row in rows for key in checked_keys(row)}
            await self._fetch("add_commits", *map(list, zip(*found, strict=True)))
            commit, place, _ = rows[-1]
        await self._execute("analyze_commits")

    async def _fetch(self, name: str, *parameters: object) -> Sequence[Row]:
        return await self._session.fetch(statement(name, self._schema), *parameters)

    async def _execute(self, name: str) -> None:
        """Run all statements of this name."""
        await self._session.connection.execute(statement(name, self._schema), timeout=SECONDS_MAX)

    async def _stored_records(self, seqs: list[int]) -> dict[int, Job]:
        """Return the stored records of these jobs that can be read."""
        stored: dict[int, Job] = {}
        for row in await self._fetch("select_stored_records", seqs):
            with suppress(Corrupt):
                seq, job = job_of(row)
                stored[seq] = job
        return stored

    async def _published(self, origins: dict[int, Job]) -> dict[int, dict[int, int]]:
        """Return, for each of these jobs, the last sequence that was published under each token."""
        found: dict[int, dict[int, int]] = {seq: {} for seq in origins}
        rows = await self._fetch("select_last_published", min(origins), max(origins))
        for seq, token, sequence in rows:
            found[seq][token] = sequence
        return found

    async def _histories(self, origins: dict[int, Job]) -> dict[int, list[Event]]:
        """Return the registry events of these jobs, and note their claims."""
        events: dict[int, list[Event]] = {seq: [] for seq in origins}
        seqs = {job.job_id: seq for seq, job in origins.items()}
        for row in await self._fetch("select_old_histories", list(seqs)):
            for event in events_of(row):
                events[seqs[event.job_id or ""]].append(event)
        job_ids: dict[segment.JobKey, str | None] = {seq: job.job_id for seq, job in origins.items()}
        found = await self._fetch("select_commits_of_jobs", min(origins), max(origins))
        commits = [commit for (commit,) in found]
        for start in range(0, len(commits), SEGMENTS_AT_ONCE):
            for row in await self._fetch("select_segments", commits[start : start + SEGMENTS_AT_ONCE]):
                for event in decoded(row, job_ids):
                    events[seqs[event.job_id or ""]].append(event)
        claims = [(e.op_id, e.log_id, seq) for seq, log in events.items() for e in claims_of(log)]
        if claims:
            await self._fetch("add_claimed", *map(list, zip(*claims, strict=True)))
        return events

    async def _write(self, records: dict[int, Job]) -> None:
        """Write the states of these jobs."""
        await self._fetch("delete_states_between", min(records), max(records))
        rows = [
            (
                seq,
                job.fencing_token,
                job.ready_at,
                job.updated_at,
                job.due_at,
                job.ended_at,
                job.attempt,
                job.version,
                job.transition_no,
                job.failures,
                job.crashes,
                job.state,
                job.owner,
                detail_text(job),
            )
            for seq, job in records.items()
        ]
        await self._fetch("insert_states", *map(list, zip(*rows, strict=True)))
