"""The reckoning: what the store itself says at the end is what the witness saw all along."""

from collections import Counter
from collections.abc import Sequence

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event, fact_id
from holdfast.core.naming import follow_up_id
from holdfast.core.state import LEASED, State
from holdfast.ports import Request
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
    for made, link in (
        (witness.replays, EventType.REPLAYED),
        (witness.resumed, EventType.RESUMED),
    ):
        for (original, _), job_id in made.items():
            linked = fact_id(original, link, job_id) in witness.seen
            witness.expect("I28", linked, f"{original}: does not know its {link} {job_id}")
    for (job_id, token), wishes in witness.wished.items():
        _check_follow_ups(witness, job_id, token, wishes)
    for journal in journals:
        await _read_on(registry, witness, journal)


def _check_follow_ups(witness: Witness, job_id: str, token: int, wishes: Sequence[Request]) -> None:
    """I34: a job that succeeded has its follow-ups, once each; one that did not has none."""
    names = [follow_up_id(job_id, token, n) for n in range(len(wishes))]
    jobs = [track.job for name in names if (track := witness.jobs.get(name)) and track.job]
    ends = [e for e in witness.track(job_id).chain if e.fencing_token == token]
    won = [e for e in ends if e.from_state in LEASED and e.to_state in _WON]
    wanted = [wish.spec for wish in wishes] if won else []
    words = f"{job_id} under {token}: {len(jobs)} of {len(wanted)} follow-ups"
    witness.expect("I34", [job.spec for job in jobs] == wanted, words)
    listed = [name for event in ends for name in _names(event)]
    witness.expect("I34", listed == (names if won else []), f"{job_id}: lists {listed}")


_WON = (State.SUCCEEDED, State.VALIDATING)


def _names(event: Event) -> list[str]:
    names = event.attributes.get("follow_ups", [])
    return names if isinstance(names, list) else []


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
