"""The working set of one commit: jobs as stored, decisions in order, and what is to be written.

Shared by the stores that commit many jobs at once; each of them only reads and writes the rows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import zip_longest

from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job, ResourceLock
from holdfast.core.lifecycle import Change, Refusal
from holdfast.core.lifecycle.pattern import Pattern, Template, pattern_of
from holdfast.core.state import State
from holdfast.ports import ById, Decision, Due, Ready, Work

_QUEUED = State.QUEUED
GROUP_MIN = 8
"""The fewest jobs that are written as a group."""


class Group:
    """Jobs that one pattern has changed, as they were and as they are now, and the op_id of each change."""

    __slots__ = ("after", "before", "op_ids", "pattern")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.before: list[Job] = []
        self.after: list[Job] = []
        self.op_ids: list[str] = []

    def remove(self, job_id: str) -> Change:
        """Take a job out; return its change."""
        n = next(n for n, job in enumerate(self.before) if job.job_id == job_id)
        before, after, op_id = self.before.pop(n), self.after.pop(n), self.op_ids.pop(n)
        return Change(before, after, self.pattern.events_of(after, op_id))


class Batch:
    """The working set of one commit.

    `jobs` and `resources` are read once and then follow the decisions, so that the second claimer of
    a job in the same batch sees the first one's claim. `stored` has each job as it was read or last
    written; the write is conditional on its version.
    """

    def __init__(
        self,
        works: Sequence[Work],
        now: datetime,
        read_lock: Callable[[str], ResourceLock],
        floor: int = 0,
    ) -> None:
        """`read_lock` reads a resource lock; the token of a job whose id was used before starts above
        `floor`."""
        self.works = works
        self.now = now
        self.floor = floor
        self._read_lock = read_lock
        self._claims: dict[str, int] = {}
        self.by_id: list[tuple[int, ById]] = []
        self._others: list[tuple[int, Ready | Due]] = []
        for n, work in enumerate(works):
            if isinstance(work.selection, ById):
                self.by_id.append((n, work.selection))
            else:
                self._others.append((n, work.selection))
        self.jobs: dict[str, Job | None] = {}
        self.stored: dict[str, Job] = {}
        self.resources: dict[str, ResourceLock] = {}
        self.decisions: list[list[Decision]] = [[] for _ in works]
        self.created: dict[str, Job] = {}
        self.updated: dict[str, Job] = {}
        self.touched: dict[str, Job] = {}
        self.taken: dict[str, ResourceLock] = {}
        self.events: list[Event] = []
        self.published: list[tuple[Event, ...]] = []
        self.facts: list[Event] = []
        self.templates: dict[str, Template] = {}
        self.groups: list[Group] = []
        self._latest: dict[Template, Group] = {}
        self._grouped: dict[str, Group] = {}

    @property
    def due_limit(self) -> int:
        return sum(due.limit for _, due in self._others if isinstance(due, Due))

    @property
    def lanes(self) -> dict[tuple[object, ...], list[tuple[int, Ready]]]:
        """The claims, grouped by the jobs they choose from: one query serves a whole group."""
        lanes: dict[tuple[object, ...], list[tuple[int, Ready]]] = {}
        for n, ready in self._others:
            if isinstance(ready, Ready):
                lanes.setdefault(ready.candidate_key, []).append((n, ready))
        return lanes

    def load(self, jobs: Iterable[Job], templates: Iterable[Template | None] = ()) -> None:
        """Add jobs as they are stored, with the template of each if it has one; a job that the batch has
        already changed stays as it is."""
        known = self.jobs
        for job, template in zip_longest(jobs, templates):
            job_id = job.job_id
            if job_id not in known:
                known[job_id] = self.stored[job_id] = job
                if template is not None:
                    self.templates[job_id] = template

    def decide(self, n: int, job_id: str, lock: str | None = None) -> Decision:
        """Let work `n` decide on the job as the batch has it now, and add the change to what is written."""
        job = self.jobs.get(job_id)
        template = self.templates.get(job_id) if self.templates else None
        if template is not None and job is not None and (group := self._latest.get(template)) is not None:
            op_id = group.pattern.match(self.works[n].command, job)
            if op_id is not None:
                return self._keep_alike(n, group, job, op_id)
        key = lock if job is None else job.spec.lock
        resource = self._resource(key) if key else None
        try:
            if job is None and self.floor:
                decision = self.works[n].decide(job, self.now, resource, self.floor)
            else:
                decision = self.works[n].decide(job, self.now, resource)
        except Exception as error:
            # One caller's broken request must not fail the others in the batch.
            decision = Refusal(Invalid(f"The request cannot be decided: {error!r}"), job)
        if template is not None and job is not None and isinstance(decision, Change) and self._may_be_many(n):
            pattern = pattern_of(template, self.works[n].command, decision)
            if pattern is not None:
                self._latest[template] = group = Group(pattern)
                self.groups.append(group)
                return self._keep_alike(n, group, job, pattern.command.op_id)
        self.decisions[n].append(decision)
        if isinstance(decision, Change) and decision.after is not decision.before:
            self._keep(job_id, decision)
        return decision

    def _may_be_many(self, n: int) -> bool:
        """Whether it pays to look for jobs that are alike."""
        selection = self.works[n].selection
        return (len(self.by_id) if isinstance(selection, ById) else selection.limit) >= GROUP_MIN

    def _keep_alike(self, n: int, group: Group, job: Job, op_id: str) -> Change:
        job_id = job.job_id
        change = group.pattern.change(job, op_id)
        self.decisions[n].append(change)
        if job_id in self._grouped:
            self._keep(job_id, change)
            return change
        self.jobs[job_id] = change.after
        self.templates[job_id] = group.pattern.after
        self._grouped[job_id] = group
        group.before.append(job)
        group.after.append(change.after)
        group.op_ids.append(op_id)
        return change

    def _ungroup(self, job_id: str) -> None:
        """Write the job on its own."""
        change = self._grouped.pop(job_id).remove(job_id)
        self.updated[job_id] = change.after
        self.events.extend(change.events)

    def split_small_groups(self) -> None:
        """Write the jobs of small groups on their own: a group costs as much as some jobs."""
        for group in self.groups:
            if len(group.after) < GROUP_MIN:
                for job in list(group.after):
                    self._ungroup(job.job_id)
        self.groups = [group for group in self.groups if group.after]

    def _resource(self, key: str) -> ResourceLock:
        if key not in self.resources:
            self.resources[key] = self._read_lock(key)
        return self.resources[key]

    def decide_by_id(self) -> None:
        """Run the works that name one job, in order."""
        for n, one in self.by_id:
            self.decide(n, one.job_id, one.lock)

    def decide_due(self, job_ids: Iterable[str]) -> None:
        """Share the due jobs among the works that select due jobs, in order."""
        rest = iter(job_ids)
        for n, due in self._others:
            if isinstance(due, Due):
                for _, job_id in zip(range(due.limit), rest, strict=False):
                    self.decide(n, job_id)

    def decide_repeated(self, n: int, op_id: str, job_ids: Iterable[str]) -> None:
        """Run a repeated claim on the jobs that it claimed before and that are still leased under it."""
        for job_id in job_ids:
            job = self.jobs.get(job_id)
            if job is not None and job.lease is not None and job.claim_op_id == op_id:
                self.decide(n, job_id)

    def first_claims(self, lane: list[tuple[int, Ready]]) -> list[tuple[int, Ready]]:
        """Return the claims of the lane whose op_id occurs for the first time in this batch."""
        return [(n, ready) for n, ready in lane if self._claims.setdefault(ready.op_id, n) == n]

    def decide_duplicates(self, lane: list[tuple[int, Ready]]) -> None:
        """Run the other claims of the lane (each repeats an earlier one) on the jobs the earlier one
        got."""
        for n, ready in lane:
            first = self._claims[ready.op_id]
            if first != n:
                got = [d.after.job_id for d in self.decisions[first] if isinstance(d, Change)]
                self.decide_repeated(n, ready.op_id, got)

    def decide_ready(self, lane: list[tuple[int, Ready]], job_ids: Iterable[str]) -> None:
        """Share the ready jobs among the claims of a lane. A job that is refused (its lock was taken
        within this batch) is not offered to another claim."""
        rest = iter(job_ids)
        for n, ready in lane:
            wanted = ready.limit
            for job_id in rest:
                wanted -= isinstance(self.decide(n, job_id), Change)
                if not wanted:
                    break

    @property
    def makes_ready(self) -> bool:
        """Whether the write may make a job claimable: by a job that becomes queued, or a lock released."""
        written = (self.created, self.updated)
        return any(job.state is _QUEUED for jobs in written for job in jobs.values()) or any(
            resource.holder is None for resource in self.taken.values()
        )

    def queue_changes(self) -> tuple[list[Job], list[Job]]:
        """Return the jobs that the write puts into the queue, and (as they were) those it takes out of it.
        A job whose place changes is in both."""
        put = [job for job in self.created.values() if job.state is _QUEUED]
        taken = [job for g in self.groups if g.pattern.before.job.state is _QUEUED for job in g.before]
        for job_id, job in self.updated.items():
            before = self.stored[job_id]
            was, stays = before.state is _QUEUED, job.state is _QUEUED
            moved = was and stays and before.ready_at != job.ready_at
            if was and (moved or not stays):
                taken.append(before)
            if stays and (moved or not was):
                put.append(job)
        return put, taken

    def untimed(self) -> list[tuple[Job, datetime]]:
        """Return the written jobs that no earlier alarm covers, and when each is due: those that are due
        sooner than before.

        An alarm is set for the jobs of one commit, at the time when the first of them is due. When it goes
        off, each of them is looked at, and those that are not due yet get a new one. So a job that is due
        later than before needs none.
        """
        new = [(job, due) for job in self.created.values() if (due := job.due_at) is not None]
        for jobs in (self.updated, self.touched):
            for job_id, job in jobs.items():
                if (due := job.due_at) is not None:
                    earlier = self.stored[job_id].due_at
                    if earlier is None or due < earlier:
                        new.append((job, due))
        for group in self.groups:
            earlier, due = group.pattern.before.job.due_at, group.pattern.after.job.due_at
            if due is not None and (earlier is None or due < earlier):
                new += [(job, due) for job in group.after]
        return new

    def alike_events(self) -> list[tuple[tuple[Event, ...], list[Group]]]:
        """Return the groups whose events are alike, and these events as any one of the jobs has them."""
        found: list[tuple[tuple[Event, ...], list[Group]]] = []
        for group in self.groups:
            events = tuple([replace(event, job_id=None, op_id=None) for event in group.pattern.events])
            for known, groups in found:
                if events == known:
                    groups.append(group)
                    break
            else:
                found.append((events, [group]))
        return found

    def count_changes(self) -> list[tuple[str, State, int]]:
        """Return the change in the number of jobs of each queue and state. It is stored with the commit,
        so that no reader has to count the jobs."""
        stored, updated = self.stored, self.updated.values()
        moved = Counter([(job.spec.queue, job.state) for job in self.created.values()])
        moved.update([(job.spec.queue, job.state) for job in updated])
        moved.subtract(Counter([(job.spec.queue, stored[job.job_id].state) for job in updated]))
        for group in self.groups:
            queue, jobs = group.pattern.after.job.spec.queue, len(group.after)
            moved[queue, group.pattern.after.job.state] += jobs
            moved[queue, group.pattern.before.job.state] -= jobs
        return [(queue, state, jobs) for (queue, state), jobs in moved.items() if jobs]

    def mark_written(self) -> None:
        """Start over with nothing to write: all changes so far are in the store."""
        self.stored.update(self.created)
        self.stored.update(self.updated)
        self.stored.update(self.touched)
        for group in self.groups:
            self.stored.update({job.job_id: job for job in group.after})
        for kept in (self.created, self.updated, self.touched, self.taken, self._grouped, self._latest):
            kept.clear()
        self.groups.clear()
        for noted in (self.events, self.published, self.facts):
            noted.clear()

    def _keep(self, job_id: str, change: Change) -> None:
        self.templates.pop(job_id, None)
        if job_id in self._grouped:
            self._ungroup(job_id)
        self.jobs[job_id] = after = change.after
        if change.before is None or job_id in self.created:
            self.created[job_id] = after
        elif change.sample_events or job_id in self.updated:
            self.updated[job_id] = after
            self.touched.pop(job_id, None)
        else:
            self.touched[job_id] = after
        if change.resource is not None:
            self.resources[change.resource.key] = change.resource
            self.taken[change.resource.key] = change.resource
        self.events.extend(change.events)
        if change.facts:
            self.facts.extend(change.facts)
        if change.published:
            self.published.append(change.published)
        for made in change.made:
            if self.jobs.get(made.after.job_id) is None:
                self._keep(made.after.job_id, made)
