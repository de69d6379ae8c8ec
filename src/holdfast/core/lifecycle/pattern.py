"""Jobs that are alike: `decide` decides on one of them, and the same becomes of the others.

Jobs of one template agree in all fields but those of `OWN`, and in all of their spec but `OWN_TERMS`. No rule
that `pattern_of` accepts depends on these, so what it made of one job can be made of every other.
"""

from datetime import datetime
from operator import attrgetter

from msgspec.structs import astuple, replace

from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.lifecycle.commands import Claim, Command, Complete, Success
from holdfast.core.lifecycle.draft import Change
from holdfast.core.spec import Spec
from holdfast.core.state import State

OWN = ("job_id", "spec", "created_at", "updated_at", "ready_at")
"""The fields in which jobs that are alike may differ."""

OWN_TERMS = ("payload", "name", "labels")
"""The fields of a spec in which jobs that are alike may differ."""

shared_terms = attrgetter(*(name for name in Spec.__struct_fields__ if name not in OWN_TERMS))
"""The values of all other fields of a spec. They can be hashed."""

_FIRST = ("job_id", "spec", "state", "created_at", "updated_at", "ready_at")
assert Job.__struct_fields__[: len(_FIRST)] == _FIRST  # `Template.job` passes fields by position


class Template:
    """What some jobs have in common. Two templates may be equal; only jobs of the same one are alike."""

    __slots__ = ("job", "shared")

    def __init__(self, job: Job) -> None:
        """A job of this template."""
        self.job = job
        self.shared = astuple(job)[len(_FIRST) :]

    def another(
        self, job_id: str, spec: Spec, created_at: datetime, updated_at: datetime, ready_at: datetime
    ) -> Job:
        """Return the job of this template that has these fields."""
        return Job(job_id, spec, self.job.state, created_at, updated_at, ready_at, *self.shared)


class Pattern:
    """What a command makes of the jobs of a template: `before` is what they are, `after` what they become.
    The `events` are those of one of the jobs."""

    __slots__ = ("after", "before", "command", "events")

    def __init__(self, before: Template, command: Claim | Complete, change: Change) -> None:
        self.before = before
        self.command = command
        self.after = Template(change.after)
        self.events = change.events

    @property
    def claims(self) -> bool:
        """Whether the jobs are claimed."""
        return type(self.command) is Claim

    def match(self, command: Command | None, job: Job) -> str | None:
        """Return the op_id of a command that makes the same of this job of the template; None if it may make
        something else of it."""
        mine = self.command
        if command is mine or (
            type(command) is Complete is type(mine)
            and command.outcome is mine.outcome
            and command.token == mine.token
            and command.actor == mine.actor
            and command.compensated is None
            and not command.follow_ups
        ):
            return command.op_id if job.ready_at <= self.events[0].occurred_at else None
        return None

    def change(self, job: Job, op_id: str) -> Change:
        """Return the change of this job by a command that matches."""
        after = self.after
        model = after.job
        made = Job(
            job.job_id, job.spec, model.state, job.created_at, model.updated_at, job.ready_at, *after.shared
        )
        return Change(job, made, pattern=self, op_id=op_id)

    def events_of(self, job: Job, op_id: str) -> tuple[Event, ...]:
        """Return the events of the change of this job."""
        return tuple([replace(event, job_id=job.job_id, op_id=op_id) for event in self.events])


def pattern_of(template: Template, command: Command | None, change: Change) -> Pattern | None:
    """Return the pattern of a change that this command made of a job of the template; None when there may be
    something special about it: then every job is decided on its own."""
    before, after = change.before, change.after
    if before is None or after is before or before.spec.lock is not None:
        return None
    if type(command) is Claim and before.state is QUEUED and not command.plain and command.create is None:
        return Pattern(template, command, change)
    if type(command) is Complete and after.state is SUCCEEDED and _returned_nothing(command):
        return Pattern(template, command, change)
    return None


def _returned_nothing(command: Complete) -> bool:
    return command.outcome == _NOTHING and command.compensated is None and not command.follow_ups


_NOTHING = Success()
QUEUED, SUCCEEDED = State.QUEUED, State.SUCCEEDED
