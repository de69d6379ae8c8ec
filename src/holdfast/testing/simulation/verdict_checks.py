"""The checks of verdicts on outputs: they are compared with what was there since the work was done."""

from collections.abc import Callable

from msgspec.structs import replace

from holdfast.core.catalogue import EventType
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.outputs import ValidationResult
from holdfast.core.state import UNSUCCESSFUL, State
from holdfast.testing.simulation.commit import Commit
from holdfast.testing.simulation.invariant_checker import InvariantChecker
from holdfast.testing.simulation.output_store import FakeOutputStore, Key

_JUDGED = (State.VALIDATING, State.PARTIAL_SUCCESS)
CACHED_TRANSITIONS = 5


class VerdictChecker:
    """When the work of each job was done, under which token, and which outputs count for which job."""

    def __init__(
        self, checker: InvariantChecker, output_store: FakeOutputStore, time: Callable[[], float]
    ) -> None:
        self._checker = checker
        self._output_store = output_store
        self._time = time
        self._done: dict[str, tuple[int, float]] = {}
        self._ended: dict[str, float] = {}
        self._resumed: dict[str, list[str]] = {}

    def check(self, event: Event, commit: Commit) -> None:
        """Check what one event of a job says about its outputs."""
        job, job_id = commit.after, commit.after.job_id
        if event.offset == 1 and job.spec.resumed_from is not None:
            self._resumed.setdefault(job.spec.resumed_from, []).append(job_id)
        if job.spec.outputs is None:
            return
        if commit.before is None and job.ended:
            self._check_cached(job)
        elif event.to_state is State.VALIDATING:
            self._done[job_id] = (event.fencing_token or 0, self._time())
        elif event.event_type == EventType.OUTPUTS_VERIFIED and job.state in UNSUCCESSFUL:
            self._check_beside(event, commit)
        elif event.to_state in UNSUCCESSFUL and event.from_state not in _JUDGED:
            self._ended[job_id] = self._time()
        elif event.from_state in _JUDGED or event.event_type == EventType.OUTPUTS_VERIFIED:
            self._check_verdict(event, commit)

    def _check_cached(self, job: Job) -> None:
        """I36: a job with nothing left to do made every transition at once, and was never claimed."""
        steps = (job.version, job.transition_no)
        found = job.found or ValidationResult()
        whole = steps == (CACHED_TRANSITIONS, CACHED_TRANSITIONS) and job.state is State.SUCCEEDED
        self._checker.expect("I36", whole, f"{job.job_id}: {job.state} at birth, {steps} steps")
        words = f"{job.job_id}: succeeded at birth with {found.missing} missing"
        there = found.missing == 0 and found.verified == job.spec.promised_outputs
        self._checker.expect("I36", there, words)
        self._checker.expect("I36", job.claim_op_id is None, f"{job.job_id}: was claimed at birth")

    def _check_verdict(self, event: Event, commit: Commit) -> None:
        job, before = commit.after, commit.before
        if event.attributes.get("override"):
            kept = before is not None and job.found == before.found
            words = f"{event.event_id}: an override by {event.actor} because of {event.reason!r}"
            self._checker.expect("I35", bool(event.reason) and kept, words)
            return
        if "found" not in event.attributes:
            self._checker.fail("I14", f"{event.event_id}: {job.state} though it was not validated")
        found = job.found or ValidationResult()
        right = {
            State.SUCCEEDED: found.missing == 0,
            State.PARTIAL_SUCCESS: found.missing > 0 and (found.verified > 0 or event.to_state is None),
            State.FAILED: found.verified == 0,
        }.get(job.state, False)
        words = f"{event.event_id}: {job.state} with {found.verified} there, {found.missing} missing"
        self._checker.expect("I14", right, words)
        self._check_findings(event, job, found)

    def _check_beside(self, event: Event, commit: Commit) -> None:
        """I35: a validation of a job that ended without success changes nothing else about it."""
        job, before = commit.after, commit.before
        kept = before is not None and replace(
            before, found=job.found, check=job.check, version=job.version, updated_at=job.updated_at
        )
        self._checker.expect("I35", kept == job, f"{event.event_id}: {job.job_id} is another job now")
        same = before is not None and before.found == job.found
        self._checker.expect("I35", not same, f"{event.event_id}: says what was known")
        self._check_findings(event, job, job.found or ValidationResult())

    def _check_findings(self, event: Event, job: Job, found: ValidationResult) -> None:
        """I14: what was verified was there, and what is missing was not, since the work was done."""
        assert job.spec.outputs is not None  # asked before
        done = self._done.get(job.job_id)
        start = done[1] if done is not None else self._ended[job.job_id]
        keys = [self._keys(job.job_id, name) for name in job.spec.outputs.names]
        there = sum(self._output_store.was_there(each, start) for each in keys)
        lacking = sum(self._output_store.was_missing(each, start) for each in keys)
        words = f"{event.event_id}: {found.verified} of {there} outputs that were there"
        self._checker.expect("I14", found.verified <= there, words)
        words = f"{event.event_id}: {found.missing} of {lacking} outputs that were missing"
        self._checker.expect("I14", found.missing <= lacking, words)

    def _keys(self, job_id: str, name: str) -> dict[Key, float]:
        """Return where an output of this name may be, and since when it counts there."""
        keys: dict[Key, float] = {}
        for member in self._family(job_id):
            if member in self._done:
                token, done = self._done[member]
                keys[member, token, name] = done
        return keys

    def _family(self, job_id: str) -> list[str]:
        return [job_id] + [
            member for child in self._resumed.get(job_id, ()) for member in self._family(child)
        ]
