"""The final checks: the store returns at the end what the checker saw during the run."""

from collections import Counter
from collections.abc import Sequence

from holdfast.core.catalogue import EventType
from holdfast.core.derived_ids import follow_up_id
from holdfast.core.event import Event, fact_id
from holdfast.core.state import LEASED, State
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.testing.simulation.actors import Journal
from holdfast.testing.simulation.invariant_checker import InvariantChecker


async def check_final_state(
    registry: LocalRegistry, checker: InvariantChecker, journals: list[Journal]
) -> None:
    """Compare everything in a store at rest with what the checker saw."""
    verification = await registry.verify()
    checker.expect("I5", verification.equal, f"verify: {verification.mismatches}")
    tracks = {job_id: track for job_id, track in checker.jobs.items() if track.job is not None}
    for job_id, track in tracks.items():
        kept = [event.event_id for event in await registry.history(job_id)]
        wanted = [event.event_id for event in track.chain]
        checker.expect("I13", kept == wanted, f"{job_id}: its log has changed")
    seen = Counter(track.job.state for track in tracks.values() if track.job is not None)
    counts = {state: count for state, count in (await registry.counts()).items() if count}
    checker.expect("I21", counts == dict(seen), f"counted {counts}, not {dict(seen)}")
    await _check_events(registry, checker)
    # Only now: on documents, a read of the events delivers what a dead writer had not delivered.
    for made, link in (
        (checker.replays, EventType.REPLAYED),
        (checker.resumed, EventType.RESUMED),
    ):
        for (original, _), job_id in made.items():
            linked = fact_id(original, link, job_id) in checker.seen
            checker.expect("I28", linked, f"{original}: does not know its {link} {job_id}")
    for (job_id, token), requests in checker.planned.items():
        _check_follow_ups(checker, job_id, token, requests)
    for journal in journals:
        await _check_reader(registry, checker, journal)


def _check_follow_ups(
    checker: InvariantChecker, job_id: str, token: int, requests: Sequence[JobRequest]
) -> None:
    """I34: a job that succeeded has its follow-ups, once each; one that did not has none."""
    names = [follow_up_id(job_id, token, n) for n in range(len(requests))]
    jobs = [track.job for name in names if (track := checker.jobs.get(name)) and track.job]
    ends = [e for e in checker.track(job_id).chain if e.fencing_token == token]
    won = [e for e in ends if e.from_state in LEASED and e.to_state in _WON]
    wanted = [request.spec for request in requests] if won else []
    words = f"{job_id} under {token}: {len(jobs)} of {len(wanted)} follow-ups"
    checker.expect("I34", [job.spec for job in jobs] == wanted, words)
    listed = [name for event in ends for name in _names(event)]
    checker.expect("I34", listed == (names if won else []), f"{job_id}: lists {listed}")


_WON = (State.SUCCEEDED, State.VALIDATING)


def _names(event: Event) -> list[str]:
    names = event.attributes.get("follow_ups", [])
    return names if isinstance(names, list) else []


async def _check_reader(registry: LocalRegistry, checker: InvariantChecker, journal: Journal) -> None:
    """I19: a reader that has followed the events all along has missed none when it has caught up."""
    while True:
        page = await registry.events(after=journal.cursor, limit=100)
        if not page.events:
            break
        journal.read(page)
    missed = sorted(set(checker.seen) - journal.seen)
    checker.expect("I19", not missed, f"not seen by a reader of the events: {missed[:5]}")


async def _check_events(registry: LocalRegistry, checker: InvariantChecker) -> None:
    """I19: the log has every event that was committed, and each job's in order."""
    seen: set[str] = set()
    last: dict[str, int] = {}
    cursor: str | None = None
    while True:
        page = await registry.events(after=cursor, limit=100)
        if not page.events:
            break
        cursor = page.cursor
        for event in page.events:
            if event.offset is not None and event.job_id and event.event_id not in seen:
                words = f"{event.event_id} after offset {last.get(event.job_id)}"
                checker.expect("I19", event.offset > last.get(event.job_id, 0), words)
                last[event.job_id] = event.offset
            seen.add(event.event_id)
    missing = sorted(set(checker.seen) - seen)
    checker.expect("I19", not missing, f"not in the log: {missing[:5]}")
    invented = sorted(seen - set(checker.seen))
    checker.expect("I19", not invented, f"never committed: {invented[:5]}")
