"""A Hypothesis state machine for every store: random commands, with the pure core as the model."""

import asyncio
import tempfile
from collections.abc import Awaitable
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)
from msgspec.structs import replace

from holdfast.core.derived_ids import follow_up_id
from holdfast.core.errors import HoldfastError
from holdfast.core.event import Event
from holdfast.core.job import Failure, Job
from holdfast.core.lifecycle import (
    Cancel,
    Change,
    Claim,
    Command,
    Complete,
    CompleteValidation,
    Enqueue,
    Heartbeat,
    Outcome,
    Publish,
    Refusal,
    Release,
    ReportValidation,
    Stopped,
    Success,
)
from holdfast.core.outputs import ValidationResult
from holdfast.core.projection import differences, fold
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State, advances
from holdfast.ports import Clock, Grant, Ids, JobRequest, Ready, Store
from holdfast.testing.fakes import CountingIds, ManualClock
from holdfast.testing.model import Model
from holdfast.testing.world import World, output

SPECS = st.builds(
    Spec,
    queue=st.sampled_from(["default", "default", "default", "other"]),
    priority=st.sampled_from([5, 5, 0]),
    lock=st.sampled_from([None, "disk"]),
    region=st.sampled_from([None, None, None, "eu"]),
    delay=st.sampled_from([None, timedelta(seconds=20), timedelta(seconds=5)]),
    ttl=st.sampled_from([None, None, None, timedelta(seconds=100)]),
    promised_outputs=st.sampled_from([0, 2]),
    retry=st.builds(
        Retry,
        max_failures=st.integers(1, 3),
        max_crashes=st.integers(1, 3),
        on_exhausted=st.sampled_from(OnExhausted),
    ),
)
OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        Success(),
        Success(result={"loss": 0.25}),
        Failure(message="hiccup"),
        Failure(message="no such model", retryable=False),
        Failure(message="killed", exit_code=137, crash=True),
        Failure(message="no argument gift", retryable=False, not_understood=True),
        Failure(message="no such folder", retryable=False, not_started=True),
        Stopped(reason="as asked"),
    ]
)


class StoreMachine(RuleBasedStateMachine):
    """The state machine. Set `opener` and run it as a TestCase. Grants are used after they are lost,
    too."""

    opener: ClassVar["staticmethod[[Path, Clock, Ids], Awaitable[Store]]"]
    jobs: Bundle[str] = Bundle("jobs")
    grants: Bundle[Grant] = Bundle("grants")

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        clock, ids = ManualClock(), CountingIds()
        store = self.runner.run(_opened(self.opener(Path(self.folder.name), clock, ids)))
        self.world = World(store, clock, ids)
        self.model = Model()
        self.ops = 0
        self.sequence: dict[tuple[str, int], int] = {}

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.world.registry.close())
            self.runner.close()
            self.folder.cleanup()

    def _op(self) -> str:
        self.ops += 1
        return f"op-{self.ops}"

    def _agree(self, got: Job | HoldfastError, expected: Change | Refusal) -> None:
        """Check that the store returns what the core decides: the same job, or the same refusal."""
        if isinstance(expected, Refusal):
            assert isinstance(got, HoldfastError), (got, expected.error)
            assert (type(got), got.message) == (type(expected.error), expected.error.message)
            assert got.version == expected.error.version
        else:
            assert got == expected.after

    async def _try(self, work: Awaitable[Job]) -> Job | HoldfastError:
        try:
            return await work
        except HoldfastError as error:
            return error

    def _act(self, job_id: str, command: Command, work: Awaitable[Job]) -> None:
        expected = self.model.apply(job_id, command, self.world.clock.now())
        got = self.runner.run(self._try(work))
        if isinstance(expected, Refusal) and isinstance(command, Complete | Release):
            first, after = self.model.ends.get((job_id, command.token), (None, None))
            if first is not None and after is not None:
                self._agree_again(got, _same(first, command), after)
                return
        self._agree(got, expected)

    def _agree_again(self, got: Job | HoldfastError, same: bool | None, after: Job) -> None:
        """Check a repeated end: its owner gets the same response again, or a refusal that says so."""
        if isinstance(got, Job):
            assert same is not False
            assert (got.version, got.state) == (after.version, after.state)
        else:
            assert not same
            assert got.message.startswith("You have already ")

    @rule(target=jobs, specs=st.lists(SPECS, min_size=1, max_size=3))
    def enqueue(self, specs: list[Spec]) -> MultipleResults[str]:
        return multiple(*(self._enqueue(spec) for spec in specs))

    def _enqueue(self, spec: Spec) -> str:
        job_id = f"job-{len(self.model.jobs) + 1}"
        command = Enqueue(op_id=job_id, job_id=job_id, spec=spec, actor="user:ana", submitted_by="user:ana")
        request = JobRequest(spec=spec, job_id=job_id)
        self._act(job_id, command, self.world.registry.enqueue(request, actor="user:ana"))
        return job_id

    @rule(
        target=grants,
        owner=st.sampled_from(["w-1", "w-2"]),
        limit=st.integers(1, 3),
        region=st.sampled_from([None, "us"]),
        repeat=st.booleans(),
    )
    def claim(self, owner: str, limit: int, region: str | None, repeat: bool) -> MultipleResults[Grant]:
        op_id, now = self._op(), self.world.clock.now()
        command = Claim(op_id=op_id, owner=owner, actor=f"worker:{owner}", region=region)
        ready = Ready(queues=("default",), op_id=op_id, limit=limit, region=region)
        self.model.expire(now)
        expected: list[Job] = []
        for job_id in self.model.ready(ready, now):
            decision = self.model.apply(job_id, command, now)
            if isinstance(decision, Change):
                expected.append(decision.after)
            if len(expected) == limit:
                break
        grants: list[Grant] = []
        for _ in range(1 + repeat):
            grants = self.runner.run(
                self.world.registry.claim(["default"], owner=owner, limit=limit, op_id=op_id, region=region)
            )
            assert [grant.job for grant in grants] == expected
        return multiple(*grants)

    @rule(grant=grants)
    def heartbeat(self, grant: Grant) -> None:
        command = Heartbeat(token=grant.fencing_token, actor=f"worker:{grant.job.owner}")
        self._act(grant.job_id, command, self.world.registry.heartbeat(grant))

    @rule(grant=grants)
    def publish(self, grant: Grant) -> None:
        key = (grant.job_id, grant.fencing_token)
        self.sequence[key] = self.sequence.get(key, 0) + 1
        event = output(self.sequence[key], world=self.world)
        command = Publish(token=grant.fencing_token, actor=f"worker:{grant.job.owner}", events=(event,))
        self._act(grant.job_id, command, self.world.registry.publish(grant, [event]))

    @rule(
        target=jobs,
        grant=consumes(grants),
        outcome=OUTCOMES,
        compensated=st.sampled_from([None, None, True, False]),
        specs=st.lists(SPECS, max_size=2),
        repeat=st.booleans(),
    )
    def complete(
        self,
        grant: Grant,
        outcome: Outcome,
        compensated: bool | None,
        specs: list[Spec],
        repeat: bool,
    ) -> MultipleResults[str]:
        op_id, actor = self._op(), f"worker:{grant.job.owner}"
        ids = [follow_up_id(grant.job_id, grant.fencing_token, n) for n in range(len(specs))]
        command = Complete(
            op_id=op_id,
            token=grant.fencing_token,
            actor=actor,
            outcome=outcome,
            compensated=compensated,
            follow_ups=tuple(
                Enqueue(op_id=name, job_id=name, spec=spec, actor=actor, submitted_by=actor)
                for name, spec in zip(ids, specs, strict=True)
            ),
        )
        complete = partial(
            self.world.registry.complete,
            grant,
            outcome,
            op_id=op_id,
            compensated=compensated,
            follow_ups=[JobRequest(spec=spec) for spec in specs],
        )
        self._act(grant.job_id, command, complete())
        if repeat and (mine := self._mine(grant.job_id, op_id)):
            for name in (op_id, None):
                again = self.runner.run(complete(op_id=name))
                assert (again.version, again.state) == (mine[-1].offset, mine[-1].to_state)
        return multiple(*(name for name in ids if name in self.model.jobs))

    def _mine(self, job_id: str, op_id: str) -> list[Event]:
        return [event for event in self.model.events[job_id] if event.op_id == op_id]

    @rule(grant=grants, delay=st.sampled_from([None, timedelta(seconds=5)]))
    def release(self, grant: Grant, delay: timedelta | None) -> None:
        op_id = self._op()
        command = Release(
            op_id=op_id,
            token=grant.fencing_token,
            actor=f"worker:{grant.job.owner}",
            delay=delay,
        )
        self._act(grant.job_id, command, self.world.registry.release(grant, op_id=op_id, delay=delay))

    @rule(job_id=jobs, hard=st.booleans())
    def cancel(self, job_id: str, hard: bool) -> None:
        op_id = self._op()
        command = Cancel(op_id=op_id, actor="user:ana", hard=hard)
        work = self.world.registry.cancel(job_id, actor="user:ana", op_id=op_id, hard=hard)
        self._act(job_id, command, work)

    @rule(
        job_id=jobs,
        actor=st.sampled_from(["validator:v-1", "validator:v-2"]),
        done=st.integers(0, 2),
        trouble=st.sampled_from([None, None, "the bucket does not answer"]),
    )
    def report_validation(self, job_id: str, actor: str, done: int, trouble: str | None) -> None:
        command = ReportValidation(actor=actor, done=done, total=2, trouble=trouble)
        work = self.world.registry.report_validation(job_id, actor=actor, done=done, total=2, trouble=trouble)
        self._act(job_id, command, work)

    @rule(
        job_id=jobs,
        verified=st.integers(0, 2),
        override=st.sampled_from([None, None, None, State.SUCCEEDED, State.FAILED]),
        late=st.booleans(),
        repeat=st.booleans(),
    )
    def complete_validation(
        self, job_id: str, verified: int, override: State | None, late: bool, repeat: bool
    ) -> None:
        op_id, job = self._op(), self.model.jobs[job_id]
        found = ValidationResult(verified=verified, missing=2 - verified, names=("a", "b")[verified:])
        command = CompleteValidation(
            op_id=op_id,
            actor="validator:v-1",
            found=found,
            version=job.version - late,
            override=override,
            reason="I know better" if override else None,
        )
        complete = partial(
            self.world.registry.complete_validation,
            job_id,
            found,
            actor=command.actor,
            op_id=op_id,
            version=command.version,
            override=override,
            reason=command.reason,
        )
        self._act(job_id, command, complete())
        if repeat and (mine := self._mine(job_id, op_id)):
            again, kept = self.runner.run(complete()), self.model.jobs[job_id]
            assert (again.version, again.found) == (mine[-1].offset, kept.found)
            assert (again.state, again.ended_at) == (kept.state, kept.ended_at)

    @rule(seconds=st.sampled_from([6, 21, 45, 61, 130]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    @rule()
    def expire(self) -> None:
        expected = self.model.expire(self.world.clock.now())

        assert self.runner.run(self.world.registry.expire()) == expected

    @invariant()
    def store_and_model_are_equal(self) -> None:
        if not hasattr(self, "world"):
            return
        ids = list(self.model.jobs)
        page = self.runner.run(self.world.registry.list_jobs(limit=1000))
        assert [job.job_id for job in page.jobs] == ids
        jobs = self.runner.run(self.world.store.get(ids))
        histories = self.runner.run(self.world.store.histories(ids))
        for job_id, job, history in zip(ids, jobs, histories, strict=True):
            assert job == self.model.jobs[job_id]
            assert [replace(event, log_id=None) for event in history] == self.model.events[job_id]

    @invariant()
    def every_job_keeps_the_law(self) -> None:
        for job_id, events in getattr(self, "model", Model()).events.items():
            job = self.model.jobs[job_id]
            assert [event.offset for event in events] == list(range(1, job.version + 1))
            assert differences(job, fold(reversed([*events, *events]), job_id)) == []
            steps = [(e.attempt or 0, e.to_state) for e in events if e.to_state is not None]
            assert all(advances(a, b) for a, b in pairwise(steps))
            tokens = [e.fencing_token for e in events if e.to_state is State.ASSIGNED]
            assert tokens == sorted(set(tokens))  # type: ignore[type-var]


def _same(first: Complete | Release, second: Complete | Release) -> bool | None:
    """Return whether two outcomes are the same; None where that depends on the state of the job."""
    if isinstance(first, Release) or isinstance(second, Release):
        return isinstance(first, Release) and isinstance(second, Release) and first.delay == second.delay
    succeeded = isinstance(first.outcome, Success)
    if first.outcome != second.outcome or (succeeded and first.follow_ups != second.follow_ups):
        return False
    return True if first.compensated == second.compensated else None


async def _opened(store: Awaitable[Store]) -> Store:
    return await store
