"""The verdict of the zombie test: reads what was tried, what the ledgers took and what the registry keeps.

An act is stale if a higher token had been granted when it was answered. If that grant came while the act
was under way, it may have landed before; whether it went behind a successor, the order of the rows says.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import JobFilter, Registry, Verification
from verify.zombie_record import DONE, FENCED, GRANTED, STOPPED, THAWED, WRITE, Act
from verify.zombie_resources import ASKED, CHECKED, LEDGERS, UNCHECKED, Resources, Row

NEVER = float("inf")
PAGE = 1000


class Evidence(Struct, frozen=True, kw_only=True):
    """All that was left behind."""

    acts: Sequence[Act]
    rows: Mapping[str, Sequence[Row]]
    jobs: Sequence[Job]
    events: Sequence[Event]
    verification: Verification


@dataclass
class Ledger:
    """What came of the stale writes to one ledger.

    `refused` and `back` came after a successor's write: there the check decides. `early` came after the
    successor's grant and before its first write; `under_way` was begun before that grant. Both keep the
    order of tokens.
    """

    refused: int = 0
    back: int = 0
    early: int = 0
    under_way: int = 0

    @property
    def attempted(self) -> int:
        return self.refused + self.back


@dataclass
class Verdict:
    """`acts` counts what stale owners tried at the registry, by what it was and what was answered."""

    freezes: int = 0
    learned: int = 0
    futile: int = 0
    jobs: int = 0
    recorded: int = 0
    acts: Counter[tuple[str, str]] = field(default_factory=Counter)
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    @property
    def verbs(self) -> dict[str, tuple[int, int]]:
        """Tried and refused, by verb and ending."""
        names = dict.fromkeys(name for name, _ in self.acts)
        return {
            name: (
                sum(n for (one, _), n in self.acts.items() if one == name),
                self.acts[name, FENCED],
            )
            for name in names
        }

    @property
    def holds(self) -> bool:
        return not self.troubles


async def gather(acts: Sequence[Act], registry: Registry, resources: Resources) -> Evidence:
    jobs: list[Job] = []
    events: list[Event] = []
    after: str | None = None
    while True:
        page = await registry.list_jobs(JobFilter(), after=after, limit=PAGE)
        jobs += page.jobs
        if (after := page.next) is None:
            break
    cursor: str | None = None
    while (feed := await registry.events(after=cursor, limit=PAGE)).events:
        events += feed.events
        cursor = feed.cursor
    return Evidence(
        acts=acts,
        rows={ledger: await resources.rows(ledger) for ledger in LEDGERS},
        jobs=jobs,
        events=events,
        verification=await registry.verify(),
    )


def verdict_of(evidence: Evidence) -> Verdict:
    found = Verdict(jobs=len(evidence.jobs))
    ends = superseded(evidence.acts)
    _judge_freezes(found, evidence.acts, ends)
    _judge_registry(found, evidence, ends)
    for ledger in LEDGERS:
        _judge_ledger(found, ledger, evidence, ends)
    _judge_jobs(found, evidence)
    if found.ledgers[CHECKED].back or found.ledgers[ASKED].back:
        found.troubles.append("A ledger that checks took a stale write.")
    if not found.ledgers[UNCHECKED].back:
        found.troubles.append("The ledger that checks nothing shows no violation: no zombie wrote.")
    return found


def superseded(acts: Iterable[Act]) -> dict[tuple[str, int], float]:
    """When, for every grant, the next one of the same job was in its owner's hand."""
    grants: dict[str, list[Act]] = defaultdict(list)
    for act in acts:
        if act.verb == GRANTED:
            grants[act.job].append(act)
    return {
        (job, act.token): min((one.ended for one in some if one.token > act.token), default=NEVER)
        for job, some in grants.items()
        for act in some
    }


def _judge_freezes(found: Verdict, acts: Sequence[Act], ends: Mapping[tuple[str, int], float]) -> None:
    """A freeze counts if a successor had the job before it ended. Then the frozen one must hear of it."""
    heard: dict[tuple[str, str, int], float] = {}
    for act in acts:
        if act.answer == FENCED:
            key = act.who, act.job, act.token
            heard[key] = max(act.ended, heard.get(key, 0.0))
    for act in acts:
        if act.verb != THAWED:
            continue
        if ends[act.job, act.token] > act.began:
            found.futile += 1
            continue
        found.freezes += 1
        if heard.get((act.who, act.job, act.token), 0.0) > act.began:
            found.learned += 1
        else:
            found.troubles.append(f"{act.who} was never told that {act.job} is no longer his.")


def _judge_registry(found: Verdict, evidence: Evidence, ends: Mapping[tuple[str, int], float]) -> None:
    """Every act of a stale owner is refused and recorded; nobody else is refused."""
    recorded = Counter(
        (event.job_id, event.fencing_token, event.attributes["verb"])
        for event in evidence.events
        if event.event_type == EventType.STALE_WRITE_REJECTED
    )
    expired = {
        (event.job_id, event.fencing_token)
        for event in evidence.events
        if event.event_type == EventType.REQUEUED
    }
    refused = set()
    for act in evidence.acts:
        if act.verb in (GRANTED, STOPPED, THAWED, WRITE):
            continue
        grant = act.job, act.token
        words = f"{act.verb} {act.form} of {act.job} by {act.who} under token {act.token}"
        if act.answer == FENCED:
            refused.add((*grant, act.verb))
            if grant not in expired:
                found.troubles.append(f"{words} was refused while it held the job.")
        if act.began > ends[grant] and act.answer in (DONE, FENCED):
            found.acts[f"{act.verb} {act.form}".strip(), act.answer] += 1
            if act.answer == DONE:
                found.troubles.append(f"{words} was accepted, and it was stale.")
    found.recorded = len(refused & recorded.keys())
    found.troubles += [f"not recorded: {one}" for one in sorted(refused - recorded.keys())]
    found.troubles += [f"recorded {n} times: {one}" for one, n in recorded.items() if n > 1]


def _judge_ledger(
    found: Verdict, name: str, evidence: Evidence, ends: Mapping[tuple[str, int], float]
) -> None:
    ledger = found.ledgers[name] = Ledger()
    behind = gone_back(evidence.rows[name])
    taken = {row.who for row in evidence.rows[name]}
    for act in evidence.acts:
        if act.verb != WRITE or act.form != name:
            continue
        row = f"{act.who}#{act.number}"
        if (row in taken) != (act.answer == DONE) and act.answer in (DONE, FENCED):
            found.troubles.append(f"{name}: {row} was answered {act.answer}, and that is not so.")
        if act.ended <= ends[act.job, act.token]:
            continue
        if act.answer == FENCED:
            ledger.refused += 1
        elif row in behind:
            ledger.back += 1
        elif act.answer == DONE and act.began <= ends[act.job, act.token]:
            ledger.under_way += 1
        elif act.answer == DONE:
            ledger.early += 1
    unseen = len(behind) - ledger.back
    if unseen and name != UNCHECKED:
        ledger.back += unseen
    if name == ASKED and ledger.early:
        found.troubles.append(f"{ledger.early} stale writes passed though the registry was asked.")


def gone_back(rows: Iterable[Row]) -> set[str]:
    """The writes that came behind one with a higher token."""
    seen: Counter[str] = Counter()
    behind = set()
    for row in rows:
        if row.token < seen[row.job]:
            behind.add(row.who)
        seen[row.job] = max(seen[row.job], row.token)
    return behind


def _judge_jobs(found: Verdict, evidence: Evidence) -> None:
    """Each has succeeded once, with the word of its last owner; log and state are equal."""
    successes = Counter(e.job_id for e in evidence.events if e.event_type == EventType.SUCCEEDED)
    granted: Counter[str] = Counter()
    for act in evidence.acts:
        if act.verb == GRANTED:
            granted[act.job] = max(granted[act.job], act.token)
    for job in evidence.jobs:
        token = job.result.get("token") if isinstance(job.result, dict) else None
        if job.state is not State.SUCCEEDED or successes[job.job_id] != 1:
            found.troubles.append(f"{job.job_id} is {job.state}, after {successes[job.job_id]} ends.")
        elif not token == job.fencing_token == granted[job.job_id]:
            found.troubles.append(f"{job.job_id} has the result of token {token}.")
    if not evidence.verification.equal:
        found.troubles.append(f"log and state differ: {evidence.verification.mismatches[:3]}")
