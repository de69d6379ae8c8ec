"""The reckoning: what the store itself says at the end is what the witness saw all along."""

from collections import Counter

from holdfast.core.catalogue import EventType
from holdfast.core.event import fact_id
from holdfast.registry.local import LocalRegistry
from holdfast.testing.simulation.people import Journal
from holdfast.testing.simulation.witness import Witness


async def reckon(registry: LocalRegistry, witness: Witness, journals: list[Journal]) -> None:
    """Ask a store at rest for everything it has."""
    verification = await registry.verify()
    witness.expect("I5", verification.equal, f"verify: {verification.mismatches}")
    tracks = {job_id: track for job_id, track in witness.jobs.items() if track.job is not None}
    for job_id, track in tracks.items():
        kept = [event.event_id for event in await registry.history(job_id)]
        wanted = [event.event_id for event in track.chain]
        witness.expect("I13", kept == wanted, f"{job_id}: its log has changed")
    seen = Counter(track.job.state for track in tracks.values() if track.job is not None)
    counts = {state: count for state, count in (await registry.counts()).items() if count}
    witness.expect("I21", counts == dict(seen), f"counted {counts}, not {dict(seen)}")
    await _read_feed(registry, witness)
    # Asked now: on documents, who reads the feed tells what a dead writer has left owing.
    for (original, _), job_id in witness.replays.items():
        linked = fact_id(original, EventType.REPLAYED, job_id) in witness.seen
        witness.expect("I28", linked, f"{original}: does not know its replay {job_id}")
    for journal in journals:
        await _read_on(registry, witness, journal)


async def _read_on(registry: LocalRegistry, witness: Witness, journal: Journal) -> None:
    """I19: whoever has followed the feed all along has missed nothing when it has caught up."""
    while True:
        page = await registry.feed(after=journal.cursor, limit=100)
        if not page.events:
            break
        journal.read(page)
    missed = sorted(set(witness.seen) - journal.seen)
    witness.expect("I19", not missed, f"passed over by the feed: {missed[:5]}")


async def _read_feed(registry: LocalRegistry, witness: Witness) -> None:
    """I19: the feed has every event that was committed, and each job's in order."""
    seen: set[str] = set()
    last: dict[str, int] = {}
    cursor: str | None = None
    while True:
        page = await registry.feed(after=cursor, limit=100)
        if not page.events:
            break
        cursor = page.cursor
        for event in page.events:
            if event.offset is not None and event.job_id and event.event_id not in seen:
                words = f"{event.event_id} after offset {last.get(event.job_id)}"
                witness.expect("I19", event.offset > last.get(event.job_id, 0), words)
                last[event.job_id] = event.offset
            seen.add(event.event_id)
    missing = sorted(set(witness.seen) - seen)
    witness.expect("I19", not missing, f"never came by in the feed: {missing[:5]}")
    invented = sorted(seen - set(witness.seen))
    witness.expect("I19", not invented, f"never committed: {invented[:5]}")
