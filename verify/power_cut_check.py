"""The check after a power cut: is everything there that was acknowledged, and does the store go on?"""

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from holdfast.sdk.open import open_registry
from verify.environment import damage
from verify.power_cut_load import Line, job_line


@dataclass
class Found:
    """What was lost, what is damaged, and what was written to see that the store works again."""

    lost: list[Line] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    written: list[Line] = field(default_factory=list)


async def check(path: Path, lines: list[Line]) -> Found:
    found = Found()
    try:
        found.damage += damage(path)
        registry = await open_registry(f"sqlite:///{path}")
        try:
            found.lost += await _missing(registry, lines)
            verification = await registry.verify()
            if not verification.equal:
                found.damage.append(f"log and state differ: {verification.mismatches[:3]}")
            found.written += await _go_on(registry)
        finally:
            await registry.close()
    except Exception as error:  # whatever it is, this store cannot be used
        found.damage.append(f"the store cannot be used: {error!r}")
        found.lost = list(lines)
    return found


async def _missing(registry: Registry, lines: list[Line]) -> list[Line]:
    events = await _everything(registry)
    moves = {(e.job_id, e.offset): e for e in events if e.offset is not None}
    output = {(e.job_id, e.fencing_token, e.sequence) for e in events}
    ids = list(dict.fromkeys(line.job_id for line in lines))
    jobs: dict[str, Job] = {}
    for start in range(0, len(ids), 500):
        jobs |= {j.job_id: j for j in await registry.status_many(ids[start : start + 500]) if j}
    missing: list[Line] = []
    for line in lines:
        job = jobs.get(line.job_id)
        if line.kind == "line":
            there = (line.job_id, line.token, line.number) in output
        elif line.kind == "beat":
            held = job is not None and job.leased and job.fencing_token == line.token
            there = job is not None and (not held or job.checkpoint == line.number)
        else:
            move = moves.get((line.job_id, line.number))
            there = job is not None and move is not None and job.version >= line.number
            there = there and move is not None and move.to_state in (None, line.state)
        if not there:
            missing.append(line)
    return missing


async def _everything(registry: Registry) -> list[Event]:
    events: list[Event] = []
    cursor: str | None = None
    while True:
        page = await registry.events(after=cursor, limit=1000)
        if not page.events:
            return events
        events += page.events
        cursor = page.cursor


async def _go_on(registry: Registry) -> list[Line]:
    """One job from its start to its end."""
    made = await registry.enqueue(JobRequest(spec=Spec(queue="after")), actor="user:ana")
    [grant] = await registry.claim(["after"], owner="w-after")
    done = await registry.complete(grant, Success())
    return [job_line(made), job_line(grant.job), job_line(done)]
