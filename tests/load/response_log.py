"""A log of the responses of a registry, and what a store lacks of them."""

from collections.abc import Iterable, Mapping, Sequence

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.state import ENDED, State
from holdfast.ports import Grant

OutputId = tuple[str | None, int | None, int | None]
Logs = Mapping[str, Sequence[Event]]
"""The log of every job that is there."""


class ResponseLog:
    """Moves, published output and recorded facts, and what of them a prune was asked to take."""

    def __init__(self) -> None:
        self._moves: dict[tuple[str, int], State] = {}
        self._output: set[OutputId] = set()
        self._facts: dict[str, str | None] = {}
        self._old_jobs: set[str] = set()
        self._old_output: set[OutputId] = set()
        self._pruned = False

    def moved(self, *jobs: Job) -> None:
        self._moves |= {(job.job_id, job.version): job.state for job in jobs}

    def published(self, grant: Grant, events: Sequence[Event]) -> None:
        self._output |= {(grant.job_id, grant.fencing_token, event.sequence) for event in events}

    def recorded(self, events: Sequence[Event]) -> None:
        self._facts |= {event.event_id: event.job_id for event in events}

    def pruning(self) -> None:
        """From now on, what has ended and what was published may be gone."""
        self._old_jobs = {job_id for (job_id, _), state in self._moves.items() if state in ENDED}
        self._old_output = set(self._output)

    def pruned(self) -> None:
        """From now on, it is gone."""
        self._pruned = True

    def lacks(self, logs: Logs) -> list[str]:
        """What was answered, and is not so. Facts about no job are in no log, but in the feed."""
        gone = self._old_jobs - logs.keys()
        states = {job_id: _states(log) for job_id, log in logs.items()}
        lines = {_output_id(event) for log in logs.values() for event in log}
        ids = {(event.job_id, event.event_id) for log in logs.values() for event in log}
        found = [
            f"{job_id} was {state} at version {version}"
            for (job_id, version), state in self._moves.items()
            if job_id not in gone and states.get(job_id, {}).get(version) is not state
        ]
        kept = {output_id for output_id in self._output - self._old_output if output_id[0] not in gone}
        found += [f"{output_id} was published" for output_id in kept - lines]
        found += [
            f"{event_id} was recorded on {job_id}"
            for event_id, job_id in self._facts.items()
            if job_id not in (None, *gone) and (job_id, event_id) not in ids
        ]
        if self._pruned:
            found += [f"{job_id} was pruned" for job_id in self._old_jobs & logs.keys()]
            found += [f"{output_id} was pruned" for output_id in self._old_output & lines]
        return found

    def untold(self, feed: set[str]) -> list[str]:
        """The facts about no job that the feed does not have."""
        return [e for e, job_id in self._facts.items() if job_id is None and e not in feed]


def unlinked(jobs: Iterable[Job | None], logs: Logs) -> list[str]:
    """The replays that the log of their original does not name, where the original is still there."""
    replays = [(job.job_id, job.spec.replayed_from or "") for job in jobs if job]
    named = {
        (event.attributes or {}).get("replayed_as")
        for log in logs.values()
        for event in log
        if event.event_type == EventType.REPLAYED
    }
    return [
        f"{job_id} is a replay of {original}"
        for job_id, original in replays
        if original in logs and job_id not in named
    ]


def _states(log: Sequence[Event]) -> dict[int, State]:
    """The state of the job at each version."""
    states: dict[int, State] = {}
    state = State.PENDING
    for event in log:
        if event.offset is not None:
            state = event.to_state or state
            states[event.offset] = state
    return states


def _output_id(event: Event) -> OutputId:
    return event.job_id, event.fencing_token, event.sequence
