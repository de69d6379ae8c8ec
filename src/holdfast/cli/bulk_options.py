"""Which jobs a command is for: those that are named, or all that match its filters."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import wraps
from typing import TypeVar

import click
from msgspec import Struct

from holdfast.cli.durations import Since
from holdfast.cli.job_argument import complete_jobs, newest_option
from holdfast.cli.options import Pair
from holdfast.core.bulk import JobSelection
from holdfast.core.state import ENDED, State

ACTIVE = (State.QUEUED, State.ASSIGNED, State.RUNNING, State.AGGREGATING, State.VALIDATING)
STATE_GROUPS = {"active": ACTIVE, "ended": tuple(state for state in State if state in ENDED)}
STATE_CHOICE = click.Choice([*STATE_GROUPS, *(state.value for state in State)])
NEEDED = "Name the jobs, or say which: --state, --queue, --kind, --label, --since, or --all."

F = TypeVar("F", bound=Callable[..., object])


class Chosen(Struct, frozen=True, kw_only=True):
    """Which jobs were asked for, and whether to ask before anything is done."""

    job_ids: tuple[str, ...]
    queue: str | None
    kind: str | None
    states: tuple[State, ...]
    labels: dict[str, str]
    since: datetime | timedelta | None
    everything: bool
    yes: bool

    @property
    def one(self) -> str | None:
        """The job, if a single one is named."""
        return self.job_ids[0] if len(self.job_ids) == 1 else None

    def selection(self, now: datetime) -> JobSelection:
        since = now - self.since if isinstance(self.since, timedelta) else self.since
        return JobSelection(
            job_ids=self.job_ids,
            queue=self.queue,
            kind=self.kind,
            states=self.states,
            labels=self.labels,
            since=since,
        )


def states_of(words: Sequence[str]) -> tuple[State, ...]:
    """Return the states that these names and names of groups mean, each once."""
    chosen = [state for word in words for state in STATE_GROUPS.get(word) or (State(word),)]
    return tuple(dict.fromkeys(chosen))


def bulk_options(command: F) -> F:
    """Jobs by id or by filters, as `chosen`."""

    @click.argument("job_ids", metavar="[JOB]...", nargs=-1, shell_complete=complete_jobs)
    @newest_option
    @click.option(
        "--state", "-s", "words", multiple=True, type=STATE_CHOICE, metavar="STATE", help="All in this state."
    )
    @click.option("--queue", "-q", help="All in this queue.")
    @click.option("--kind", help="All of this kind of work.")
    @click.option("--label", "labels", type=Pair(), multiple=True, metavar="K=V", help="All with this label.")
    @click.option(
        "--since",
        type=Since(),
        metavar="TIME",
        help="All that ended since then or, if they have not, were created: 2h, 2030-01-31T09:00.",
    )
    @click.option("--all", "everything", is_flag=True, help="All that this command applies to.")
    @click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
    @wraps(command)
    def wrapped(
        *,
        job_ids: tuple[str, ...],
        words: tuple[str, ...],
        queue: str | None,
        kind: str | None,
        labels: tuple[tuple[str, str], ...],
        since: datetime | timedelta | None,
        everything: bool,
        yes: bool,
        **own: object,
    ) -> object:
        filters = bool(words or queue or kind or labels or since)
        if job_ids and (filters or everything):
            raise click.UsageError("Name jobs, or say which by options; not both.")
        if not (job_ids or filters or everything):
            raise click.UsageError(NEEDED)
        chosen = Chosen(
            job_ids=tuple(dict.fromkeys(job_ids)),
            queue=queue,
            kind=kind,
            states=states_of(words),
            labels=dict(labels),
            since=since,
            everything=everything,
            yes=yes,
        )
        return command(chosen=chosen, **own)

    return wrapped  # type: ignore[return-value]
