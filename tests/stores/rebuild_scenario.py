"""Jobs in every state, and what is taken from a store that is to be rebuilt: all but its log."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import apsw
import asyncpg

from holdfast.core.event import Event
from holdfast.core.job import Job, Progress
from holdfast.core.lifecycle import Success
from holdfast.core.lifecycle.commands import HandoffStep
from holdfast.core.outputs import ValidationResult
from holdfast.core.retry import OnExhausted
from holdfast.core.spec import Spec
from holdfast.ports import Grant, JobFilter, JobRequest
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.records import event_text
from holdfast.testing.verdict_contract import PROMISING, SOME
from holdfast.testing.world import PERMANENT, TRANSIENT, World, output, patient

DERIVED = ("state", "ready", "alarm", "rare", "claim", "queue_count", "resource")
VALIDATOR = "validator:v"
ALL = ValidationResult(verified=8)

Run = Callable[[str], Awaitable[None]]


def sql_on(world: World, folder: Path) -> Run:
    """Return what runs SQL on the tables of the store, past the store. `{}` is the schema of a table."""
    if isinstance(world.store, PostgresStore):
        schema, dsn = world.store._address.schema, world.store._address.url

        async def on_postgres(sql: str) -> None:
            connection = await asyncpg.connect(dsn)
            await connection.execute(sql.replace("{}", f"{schema}."))
            await connection.close()

        return on_postgres

    async def on_sqlite(sql: str) -> None:
        connection = apsw.Connection(str(folder / "jobs.db"))
        connection.execute(sql.replace("{}", "")).fetchall()
        connection.close()

    return on_sqlite


async def wipe(run: Run) -> None:
    """Delete everything that follows from the log."""
    await run(";".join(f"DELETE FROM {{}}{table}" for table in DERIVED))


async def fill(world: World) -> dict[str, Grant]:
    """Make jobs in every state; return the grants of those that are leased."""
    registry = world.registry
    await _endings(world)
    await _outputs(world)
    world.clock.advance(3)
    await world.enqueue("delayed", delay=timedelta(hours=1))
    await world.enqueue("deadline", ttl=timedelta(hours=2))
    await world.enqueue("urgent", priority=1, region="eu", executor=None)
    await world.enqueue("asked", executor="gpu", kind="train", labels={"team": "blue"})
    await registry.enqueue(JobRequest(spec=Spec(), job_id="pending", register=True), actor="user:ana")
    request = JobRequest(spec=Spec(), job_id="handed", register=True, correlation_id="c", trace_id="a" * 32)
    await registry.enqueue(request, actor="user:ana")
    await registry.handoff("handed", HandoffStep.BEGIN, actor="sync:k8s")
    await registry.handoff("handed", HandoffStep.DONE, actor="sync:k8s", handle={"pod": "p-1"})
    for job_id in ("locked", "waits"):
        await world.enqueue(job_id, lock="disk")
    for job_id in ("released", "later", "lost"):
        await world.enqueue(job_id)
    for job_id in ("released", "later"):
        grant = await registry.acquire(job_id, owner="w3")
        await registry.release(grant, delay=timedelta(minutes=5) if job_id == "later" else None)
    await registry.acquire("lost", owner="w4")
    await world.lapse()
    grants = await _leases(world)
    world.clock.advance(1)
    return grants


async def _endings(world: World) -> None:
    registry = world.registry
    for job_id in ("done", "failed", "dead", "cancelled", "original", "one", "retried"):
        exhausted = OnExhausted.FAIL if job_id in ("failed", "original") else OnExhausted.DEAD_LETTER
        tries = patient(5 if job_id == "retried" else 1, on_exhausted=exhausted)
        await world.enqueue(job_id, retry=tries, lock="disk" if job_id == "done" else None)
    await registry.complete(
        await registry.acquire("done", owner="w"), Success(result={"n": 1.0, "text": "a\0b"})
    )
    await registry.complete(await registry.acquire("one", owner="w"), Success(result=1))
    for job_id in ("failed", "original"):
        await registry.complete(await registry.acquire(job_id, owner="w"), PERMANENT)
    for job_id in ("dead", "retried"):
        await registry.complete(await registry.acquire(job_id, owner="w"), TRANSIENT)
    await registry.cancel("cancelled", actor="user:ana", reason="no")
    await registry.replay("original", actor="user:ana", replay_id="again")


async def _outputs(world: World) -> None:
    registry = world.registry
    for job_id in ("validating", "partial"):
        await registry.enqueue(JobRequest(spec=PROMISING, job_id=job_id), actor="user:ana")
        grant = await registry.acquire(job_id, owner="w", op_id=f"claim-{job_id}")
        await registry.complete(grant, Success(where="box:/data"))
    await registry.complete_validation("partial", SOME, actor=VALIDATOR)
    cached = JobRequest(spec=PROMISING, job_id="cached", found=ALL)
    await registry.enqueue(cached, actor=VALIDATOR)
    await world.enqueue("parent")
    grant = await registry.acquire("parent", owner="w")
    await registry.publish(grant, [output(1, world=world)])
    follow_up = JobRequest(spec=Spec(kind="mail", queue="mail"))
    await registry.complete(grant, Success(), follow_ups=[follow_up])


async def _leases(world: World) -> dict[str, Grant]:
    registry = world.registry
    grants = {}
    for job_id in ("running", "stopping", "busy"):
        await world.enqueue(job_id, queue="leased", ttl=timedelta(hours=1) if job_id == "busy" else None)
    for grant in await registry.claim(["leased"], owner="w5", op_id="claim-three", limit=3):
        grants[grant.job_id] = grant
    await registry.heartbeat(grants["running"], progress=Progress(1, 2), checkpoint={"step": 7})
    await registry.heartbeat(grants["stopping"])
    await registry.cancel("stopping", actor="user:ana")
    grants["locked"] = await registry.acquire("locked", owner="w6", op_id="claim-locked")
    made = JobRequest(spec=Spec(), job_id="made")
    grants["made"] = await registry.acquire("made", owner="w7", op_id="claim-made", create=made)
    return grants


async def records(world: World) -> dict[str, Job]:
    page = await world.store.list_jobs(JobFilter(), after=None, limit=1000)
    assert page.next is None
    return {job.job_id: job for job in page.jobs}


async def claim_order(world: World, queues: Sequence[str] = ("default", "mail")) -> list[str]:
    """Claim all that can be claimed, one after the other."""
    order = []
    for executor in (None, "gpu"):
        while grants := await world.registry.claim(queues, owner="w9", executor=executor):
            order += [grant.job_id for grant in grants]
    return order


async def log(world: World) -> list[Event]:
    return list((await world.store.events(after=None, limit=1000)).events)


OLD_ROW = """
INSERT INTO {0}.event (log_id, place, job, event_offset, transition_no, event_type, event_class, from_state,
                       to_state, attempt, fencing_token, op_id, actor, occurred_at, body)
SELECT $1, 1, seq, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14::text::json
FROM {0}.job WHERE job_id = $2
"""


async def write_as_before_segments(world: World) -> None:
    """Move all events of a PostgreSQL store to rows of their own, as they were before migration 4."""
    assert isinstance(world.store, PostgresStore)
    address = world.store._address
    rows = [
        (e.log_id, e.job_id, e.offset, e.transition_no, e.event_type, e.event_class, e.from_state, e.to_state,
         e.attempt, e.fencing_token, e.op_id, e.actor, e.occurred_at, event_text(e))
        for history in await world.store.histories(list(await records(world)))
        for e in history
    ]  # fmt: skip
    connection = await asyncpg.connect(address.url)
    await connection.executemany(OLD_ROW.format(address.schema), rows)
    await connection.execute(f"DELETE FROM {address.schema}.segment")
    await connection.close()
