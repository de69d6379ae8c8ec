"""The invariant checker: it checks every commit when it is made."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from random import Random  # noqa: TID251  # seeded: the same chance every time

from holdfast.core import projection
from holdfast.core.catalogue import EventClass, EventType
from holdfast.core.event import Event
from holdfast.core.job import Flaws, Job
from holdfast.core.lifecycle import Expire
from holdfast.core.limits import (
    NOT_STARTED_MAX,
    NOT_UNDERSTOOD_DELAY_MAX,
    NOT_UNDERSTOOD_MAX,
    OUTPUT_LATE_MAX,
)
from holdfast.core.state import ENDED, LEASED, LEGAL, State, advances
from holdfast.ports import JobRequest
from holdfast.testing.simulation.commit import Commit, Violation

EXPIRER = Expire().actor
EXPIRED_WITHIN = timedelta(seconds=3.5)
"""Two sweeps of a worker, and one second more."""
_ROUNDING_SECONDS = 0.001
GIVEN_BACK = {"not_understood": NOT_UNDERSTOOD_MAX, "not_started": NOT_STARTED_MAX}
"""How often a job is given back free of charge because it was not begun, by cause."""


class Track:
    """What the checker knows about one job."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.chain: list[Event] = []
        self.ops: dict[str, int] = {}
        self.failures = 0
        self.crashes = 0
        self.given_back = dict.fromkeys(GIVEN_BACK, 0)
        self.requeues = 0
        self.token = 0
        self.first_commit = 0
        self.leased_until = 0.0
        """In seconds of the run, which no clock can set."""


class InvariantChecker:
    """The state of all jobs as they were committed, and the first violation, where the run stops."""

    def __init__(self, chance: Random, time: Callable[[], float]) -> None:
        self._chance = chance
        self._time = time
        self.violation: Violation | None = None
        self.jobs: dict[str, Track] = {}
        self.seen: dict[str, str] = {}
        self.lock_tokens: dict[str, int] = {}
        self.lock_holders: dict[str, set[str]] = {}
        self.replays: dict[tuple[str, str], str] = {}
        self.resumed: dict[tuple[str, str], str] = {}
        self.wanted_again: set[tuple[str, str]] = set()
        self._resumed_for: set[tuple[str, int]] = set()
        self.verdict: Callable[[Event, Commit], None] | None = None
        self.refused: dict[str, str] = {}
        self.published: dict[tuple[str, int], int] = {}
        self.planned: dict[tuple[str, int], Sequence[JobRequest]] = {}
        self.failed_compensations: set[tuple[str, int]] = set()
        self.waits: list[float] = []
        self.unended: dict[str, None] = {}
        self.commits = 0
        self.events = 0
        self.expiries = 0
        self.healed_at: datetime | None = None
        self.lines: list[str] = []

    def fail(self, invariant: str, words: str) -> None:
        if self.violation is None:
            self.violation = Violation(invariant, words)
            self.note(f"VIOLATION {invariant}: {words}")

    def note(self, words: str) -> None:
        """Add a line to the trace of the run."""
        self.lines.append(f"{self._time():9.4f} {words}")

    def expect(self, invariant: str, holds: bool, words: str) -> None:
        if not holds:
            self.fail(invariant, words)

    def track(self, job_id: str) -> Track:
        return self.jobs.setdefault(job_id, Track())

    def recorded(self, events: Sequence[Event]) -> None:
        """Note facts and events outside of any job's chain."""
        for event in events:
            self._once(event)

    def committed(self, commit: Commit) -> None:
        """Check one commit against everything that has to hold after it."""
        after, track = commit.after, self.track(commit.after.job_id)
        self.commits += 1
        chain = [event for event in commit.events if event.offset is not None]
        self.note(
            f"commit {after.job_id} v{after.version} {after.state} token {after.fencing_token}"
            f" {' '.join(event.event_type for event in chain)} of {after.owner}"
        )
        for event in commit.events:
            self._once(event)
        self._follows(commit, track, chain)
        self._check_output(commit, track)
        for event in chain:
            self._check_event(track, event, commit)
            if self.verdict is not None:
                self.verdict(event, commit)
            track.chain.append(event)
        self._check_ops(track, chain)
        self._check_lease(commit)
        self._check_lock(after)
        self._check_fold(commit.before, after, track, chain)
        track.job = after
        waits = after.ended or after.spec.executor is not None  # which nobody runs in the end
        (self.unended.pop if waits else self.unended.setdefault)(after.job_id, None)

    def _once(self, event: Event) -> None:
        self.events += 1
        job_id = event.job_id or ""
        self.expect("I2", event.event_id not in self.seen, f"event {event.event_id} came twice")
        self.seen[event.event_id] = job_id

    def _follows(self, commit: Commit, track: Track, chain: list[Event]) -> None:
        """I1, I2: gapless offsets up to the version, and one event for each transition."""
        before, after = commit.before, commit.after
        version = before.version if before else 0
        offsets = [event.offset for event in chain]
        wanted = list(range(version + 1, version + 1 + len(chain)))
        self.expect("I1", offsets == wanted, f"{after.job_id}: offsets {offsets}, not {wanted}")
        total = len(track.chain) + len(chain)
        self.expect("I1", after.version == total, f"{after.job_id}: version {after.version}, {total} events")
        if track.job is not None and before is not None:
            held = track.job.version == before.version
            self.expect("I1", held, f"{after.job_id}: written over version {track.job.version}")
        moved = sum(event.event_class is EventClass.TRANSITION for event in chain)
        done = after.transition_no - (before.transition_no if before else 0)
        self.expect("I2", moved == done, f"{after.job_id}: {done} transitions, {moved} events")

    def _check_output(self, commit: Commit, track: Track) -> None:
        """I9: output is accepted from the owner, or for a while from the owner that ended the job
        itself."""
        said = [event for event in commit.events if event.event_class is EventClass.WORKER]
        before = commit.before
        if before is not None and before.fencing_token == commit.after.fencing_token:
            self._check_kept(before, commit.after, said)
        if not said or before is None:
            return
        tokens = {event.fencing_token for event in said}
        words = f"{before.job_id}: output of {tokens} taken under {track.token}"
        self.expect("I9", tokens == {track.token}, words)
        if before.lease is None:
            end = next(e for e in reversed(track.chain) if e.from_state in LEASED)
            by_owner = (end.actor or "").startswith("worker:") and end.to_state is not State.QUEUED
            soon = commit.now is None or commit.now - end.occurred_at <= OUTPUT_LATE_MAX
            words = f"{before.job_id}: output taken after {end.event_type} by {end.actor}"
            self.expect("I9", by_owner and soon, words)

    def _check_kept(self, before: Job, after: Job, said: list[Event]) -> None:
        """I14: a sequence that the record counts is in the log, or the record says that it is not."""
        was, now = before.flaws or Flaws(), after.flaws or Flaws()
        counted = after.published - before.published - (now.missed - was.missed)
        stored = sum(event.last_sequence - (event.sequence or 0) + 1 for event in said)
        recorded = counted == stored or now.dropped_bytes > was.dropped_bytes
        words = f"{after.job_id}: {counted} events counted, {stored} stored, and nothing tells why"
        self.expect("I14", recorded, words)

    def _check_ops(self, track: Track, chain: list[Event]) -> None:
        """I2: one op_id writes once, however often it is sent."""
        for op_id in dict.fromkeys(event.op_id or "" for event in chain):
            again = op_id in track.ops
            self.expect("I2", not again, f"{chain[0].job_id}: {op_id} was applied twice")
            denied = self.refused.get(op_id)
            self.expect("I30", denied is None, f"{denied}: refused for sure, and applied after all")
        for event in chain:
            track.ops[event.op_id or ""] = event.offset or 0

    def _check_event(self, track: Track, event: Event, commit: Commit) -> None:
        if event.event_class is not EventClass.TRANSITION:
            return
        target = event.to_state
        assert target is not None  # a transition has one
        last = next((e for e in reversed(track.chain) if e.to_state is not None), None)
        state = last.to_state if last else None
        legal = LEGAL.get((state, target))
        self.expect(
            "I3",
            legal is not None and legal.event == event.event_type and event.from_state == state,
            f"{event.event_id}: {state} to {target} by {event.event_type} from {event.from_state}",
        )
        if last is not None and state is not None:
            forward = advances((last.attempt or 0, state), (event.attempt or 0, target))
            again = state in ENDED and state is not State.PARTIAL_SUCCESS
            self.expect("I4", forward and not again, f"{event.event_id}: {state} back to {target}")
        if event.event_type == EventType.CLAIMED:
            self._check_claim(track, event, commit)
        elif state in LEASED and target not in LEASED:
            self._check_end(track, event, commit)
        if event.offset == 1:
            self._check_creation(event, commit.after)

    def _check_claim(self, track: Track, event: Event, commit: Commit) -> None:
        """I6: tokens rise, per job and per lock. I18: no job is claimed before it is ready."""
        job_id, token = event.job_id or "", event.fencing_token or 0
        self.expect("I6", token > track.token, f"{job_id}: token {token} after {track.token}")
        track.token = max(track.token, token)
        lock = event.attributes.get("lock")
        if isinstance(lock, str):
            newest = self.lock_tokens.get(lock, 0)
            self.expect("I6", token > newest, f"lock {lock}: token {token} after {newest}")
            self.lock_tokens[lock] = max(newest, token)
        ready_at = commit.before.ready_at if commit.before else event.occurred_at
        early = event.occurred_at < ready_at
        self.expect("I18", not early, f"{job_id}: claimed {event.occurred_at}, ready {ready_at}")

    def _check_end(self, track: Track, event: Event, commit: Commit) -> None:
        """I15, I16, I17, I18: how an attempt ends, and what it is charged."""
        retry, after = commit.after.spec.retry, commit.after
        error = event.attributes.get("error")
        said: dict[str, object] = error if isinstance(error, dict) else {}
        if event.actor == EXPIRER:
            late = said.get("code") == "Timeout"
            self._check_expiry(track, event, commit, late=late)
            track.failures += late
            track.crashes += not late
        elif said:
            track.crashes += bool(said.get("crash"))
            track.failures += not said.get("crash")
        counted = (track.failures, track.crashes)
        self.expect(
            "I15",
            counted == (after.failures, after.crashes),
            f"{after.job_id}: {counted} failures and crashes, not {after.failures, after.crashes}",
        )
        spent = track.failures >= retry.max_failures or track.crashes >= retry.max_crashes
        late = after.deadline_at is not None and after.deadline_at <= event.occurred_at
        failed_compensations = (after.job_id, event.fencing_token) in self.failed_compensations
        early = any(said.get(why) and n < GIVEN_BACK[why] for why, n in track.given_back.items())
        final = said.get("retryable") is False and not early
        if event.to_state is State.QUEUED:
            track.requeues += 1
            tried = said or event.actor == EXPIRER
            words = f"{after.job_id}: tried beyond its budget"
            self.expect("I15", not (tried and (spent or final)), words)
            if event.attributes.get("cause") in GIVEN_BACK:
                self._check_given_back(track, event, after)
            elif said:
                self.expect("I15", not early, f"{after.job_id}: not begun, and charged")
                self._check_wait(track, event, after, crash=bool(said.get("crash")))
        elif event.to_state in (State.SUCCEEDED, State.VALIDATING):
            published = self.published.get((after.job_id, event.fencing_token or 0), 0)
            words = f"{after.job_id}: succeeded with {after.published} of {published} events stored"
            self.expect("I14", after.published >= published, words)
        elif event.to_state in (State.DEAD_LETTERED, State.TIMEOUT, State.FAILED):
            due = spent or late or final or failed_compensations
            self.expect("I15", due, f"{after.job_id}: {after.state} too soon")
        attempt = 1 + track.requeues
        self.expect("I15", event.attempt == attempt, f"{after.job_id}: attempt {event.attempt}")

    def _check_expiry(self, track: Track, event: Event, commit: Commit, *, late: bool) -> None:
        """An attempt ends with its lease, or with an earlier timeout that its owner does not keep, and is
        charged accordingly."""
        self.expiries += 1
        before = commit.before
        if before is None or before.lease is None:
            return
        end = before.lease.expires_at
        timeout_at = _timeout_at(before)
        due = timeout_at is not None and timeout_at <= end
        self.expect("I16", late == due, f"{event.job_id}: a timeout at {timeout_at}, lease to {end}")
        if timeout_at is not None:
            end = min(end, timeout_at)
        over = (commit.now or event.occurred_at) - end
        words = f"{event.job_id}: expired {over.total_seconds():+.3f} s from the end of its lease"
        self.expect("I16", over >= timedelta(), words)
        early = track.leased_until - self._time()
        words = f"{event.job_id}: expired {early:.3f} s before its lease had lasted what was promised"
        self.expect("I16", late or commit.now is None or early < _ROUNDING_SECONDS, words)
        if commit.now and self.healed_at and end >= self.healed_at:
            self.expect("I17", over <= EXPIRED_WITHIN, words)

    def _check_wait(self, track: Track, event: Event, after: Job, *, crash: bool) -> None:
        retry = after.spec.retry
        tries = track.crashes if crash else track.failures
        most = min(retry.backoff * retry.factor ** (tries - 1), retry.backoff_max)
        wait = after.ready_at - event.occurred_at
        self.expect("I18", timedelta() <= wait <= most, f"{after.job_id}: waits {wait}, not {most}")
        if most:
            self.waits.append(wait / most)

    def _check_given_back(self, track: Track, event: Event, after: Job) -> None:
        """A job that was given back because it was not understood or not started is counted, waits, and
        ends at last."""
        cause = str(event.attributes["cause"])
        track.given_back[cause] += 1
        times, counted = track.given_back[cause], getattr(after, cause)
        words = f"{after.job_id}: {cause} {counted} times"
        self.expect("I15", counted == times <= GIVEN_BACK[cause], f"{words}, not {times}")
        wanted = min(timedelta(seconds=2 ** (times - 1)), NOT_UNDERSTOOD_DELAY_MAX)
        wait = after.ready_at - event.occurred_at
        self.expect("I18", wait == wanted, f"{words}, waits {wait}, not {wanted}")

    def _check_creation(self, event: Event, job: Job) -> None:
        """I28: one replay_id makes one job, and so does one resume_id."""
        for made, original in (
            (self.replays, job.spec.replayed_from),
            (self.resumed, job.spec.resumed_from if job.spec.replayed_from is None else None),
        ):
            if original is not None:
                key = (original, event.op_id or "")
                first = made.setdefault(key, job.job_id)
                self.expect("I28", first == job.job_id, f"{key} made {first} and {job.job_id}")
                if made is self.resumed:
                    self._check_resumption(key, job)

    def _check_resumption(self, key: tuple[str, str], job: Job) -> None:
        """I28: a job is resumed once for each of its versions, and not while an earlier resume has not
        ended, unless that was requested."""
        original = key[0]
        time = (original, job.spec.outputs.resume_attempt if job.spec.outputs else 0)
        self.expect("I28", time not in self._resumed_for, f"{original}: resumed twice for {time}")
        self._resumed_for.add(time)
        open_ones = [
            other
            for (of, _), other in self.resumed.items()
            if of == original
            and other != job.job_id
            and (found := self.jobs[other].job) is not None
            and not found.ended
        ]
        words = f"{original}: resumed by {job.job_id} beside {open_ones}"
        self.expect("I28", not open_ones or key in self.wanted_again, words)

    def _check_lease(self, commit: Commit) -> None:
        """I16: a lease is as long as promised, from the instant it was given."""
        before, after = commit.before, commit.after
        lease = after.lease
        self.expect("I5", (lease is not None) == after.leased, f"{after.job_id}: lease and state")
        if lease is None or (before is not None and before.lease == lease):
            return
        given = None if before is None else before.lease
        renewed = given is None or given.heartbeat_at != lease.heartbeat_at
        until = lease.heartbeat_at + lease.ttl
        if given is not None and not renewed:  # such as a suspicion, which moves no end
            until = given.expires_at
        for end in (after.deadline_at, _timeout_at(after)) if renewed else ():
            until = until if end is None else min(until, end)
        right = lease.expires_at == until
        self.expect("I16", right, f"{after.job_id}: lease until {lease.expires_at}, not {until}")
        if commit.now is not None and renewed:
            left = (lease.expires_at - commit.now).total_seconds()
            self.track(after.job_id).leased_until = self._time() + left
            right = lease.heartbeat_at == commit.now
            self.expect("I16", right, f"{after.job_id}: given {lease.heartbeat_at}, not now")

    def _check_lock(self, job: Job) -> None:
        """I24: at every commit, at most one job holds a lock."""
        if job.spec.lock is not None:
            holders = self.lock_holders.setdefault(job.spec.lock, set())
            (holders.add if job.leased else holders.discard)(job.job_id)
            self.expect("I24", len(holders) <= 1, f"lock {job.spec.lock}: {sorted(holders)}")

    def _check_fold(self, before: Job | None, after: Job, track: Track, chain: list[Event]) -> None:
        """I5: the record is the fold of its log. I20: in any order, with any repeats."""
        if not chain:
            kept = before is not None and projection.folded_view(before) == projection.folded_view(after)
            self.expect("I5", kept, f"{after.job_id}: changed without an event")
            return
        folded = projection.fold(track.chain, after.job_id)
        found = projection.differences(after, folded)
        self.expect("I5", not found, f"{after.job_id}: {found}")
        mixed = [*track.chain, self._chance.choice(track.chain), self._chance.choice(track.chain)]
        self._chance.shuffle(mixed)
        again = projection.fold(mixed, after.job_id)
        self.expect("I20", again.job == folded.job, f"{after.job_id}: another order, another job")


def _timeout_at(job: Job) -> datetime | None:
    """Return when the attempt times out, if the registry has to enforce that."""
    limit, begun = job.spec.timeout, job.started_at
    if job.lease is None or not job.lease.timed or limit is None or begun is None:
        return None
    return begun + limit
