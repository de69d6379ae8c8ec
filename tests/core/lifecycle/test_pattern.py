"""Jobs that are alike: what a pattern makes of a job is what `decide` makes of it."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from holdfast.core.job import CancelRequest, Failure, Job
from holdfast.core.lifecycle import Cancel, Change, Claim, Complete, Refusal, Stopped, Success, decide
from holdfast.core.lifecycle.commands import Command, Outcome
from holdfast.core.lifecycle.pattern import Pattern, Template, pattern_of, shared_terms
from holdfast.core.outputs import File, OutputPromise
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.core.state import State
from tests.core.sample_jobs import NOW, enqueue

CLAIM = Claim(op_id="c", owner="w", actor="worker:w")
DONE = Complete(op_id="d", token=1, actor="worker:w", outcome=Success())
OUTCOMES: tuple[Outcome, ...] = (
    DONE.outcome,
    Success(),
    Success(result=1),
    Success(where="here"),
    Stopped(),
    Failure(message="no"),
)

specs = st.builds(
    Spec,
    kind=st.sampled_from(["command", "fit"]),
    payload=st.sampled_from([Raw(b"{}"), Raw(b'{"alpha":1}')]),
    lock=st.sampled_from([None, None, None, "disk"]),
    region=st.sampled_from([None, "eu"]),
    executor=st.sampled_from([None, None, "dask"]),
    ttl=st.sampled_from([None, timedelta(seconds=20)]),
    timeout=st.sampled_from([None, timedelta(seconds=10)]),
    promised_outputs=st.sampled_from([0, 0, 3]),
    retry=st.builds(Retry, max_failures=st.sampled_from([1, 5])),
    labels=st.sampled_from([{}, {"study": "a"}]),
)
claims = st.builds(
    Claim,
    op_id=st.sampled_from(["c", "other"]),
    owner=st.sampled_from(["w", "v"]),
    actor=st.just("worker:w"),
    lease=st.sampled_from([None, timedelta(seconds=5)]),
    heartbeat_interval=st.sampled_from([None, timedelta(seconds=3)]),
    region=st.sampled_from([None, "eu", "us"]),
    executor=st.sampled_from([None, None, "dask"]),
    plain=st.booleans(),
    timed=st.booleans(),
)
completions = st.builds(
    Complete,
    op_id=st.sampled_from(["d.1", "d.2"]),
    token=st.sampled_from([1, 1, 2]),
    actor=st.just("worker:w"),
    outcome=st.sampled_from(OUTCOMES),
    compensated=st.sampled_from([None, None, True]),
)
commands = st.one_of(claims, completions)
moments = st.integers(-30, 30).map(lambda seconds: NOW + timedelta(seconds=seconds))


def made(command: Command, job: Job | None) -> Change:
    decision = decide(command, job, NOW)
    assert isinstance(decision, Change)
    return decision


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A queued job, or one that was claimed, cancelled or tried before."""
    job = made(enqueue(draw(specs)), None).after
    job = replace(job, failures=draw(st.integers(0, 1)), ready_at=draw(moments))
    if draw(st.booleans()):
        claim = replace(CLAIM, region=None, executor=job.spec.executor)
        decision = decide(claim, replace(job, ready_at=NOW), NOW)
        job = decision.after if isinstance(decision, Change) else job
    if draw(st.integers(0, 3)) == 0:
        decision = decide(Cancel(op_id="x", actor="user:u"), job, NOW)
        job = decision.after if isinstance(decision, Change) else job
    return job


def like(template: Template, *, payload: bytes = b"[1]", ready_at: object = NOW) -> Job:
    spec = replace(template.job.spec, payload=Raw(payload), name="another", labels={"study": "b"})
    earlier = NOW - timedelta(seconds=7)
    return replace(template.another("job-2", spec, earlier, earlier, NOW), ready_at=ready_at)


@given(jobs(), commands, commands, st.booleans(), moments)
def test_a_pattern_makes_of_a_job_what_decide_makes_of_it(
    job: Job, first: Command, second: Command, same: bool, ready_at: object
) -> None:
    template = Template(job)
    decision = decide(first, job, NOW)
    pattern = pattern_of(template, first, decision) if isinstance(decision, Change) else None
    command = first if same else second
    other = like(template, ready_at=ready_at)
    if pattern is None or (op_id := pattern.match(command, other)) is None:
        return

    change = pattern.change(other, op_id)

    alone = decide(command, other, NOW)
    assert isinstance(alone, Change)
    assert isinstance(decision, Change)
    assert (change.before, change.after, change.events) == (alone.before, alone.after, alone.events)
    assert not (alone.resource)
    assert not (alone.facts)
    assert not (alone.published)
    assert not (alone.made)
    assert change.sample_events == decision.events


def pattern(job: Job, command: Command) -> Pattern | None:
    return pattern_of(Template(job), command, made(command, job))


QUEUED = made(enqueue(Spec(kind="fit")), None).after
CLAIMED = made(CLAIM, QUEUED).after


def test_jobs_are_alike_in_all_terms_but_their_own() -> None:
    spec = Spec(kind="fit", name="a", labels={"study": "a"})

    assert shared_terms(spec) == shared_terms(Spec(kind="fit", payload=Raw(b"1"), name="b"))
    assert shared_terms(spec) != shared_terms(replace(spec, queue="other"))
    promise = OutputPromise(files=(File("a"),), store="s")
    assert hash(shared_terms(replace(spec, outputs=promise, run_at=NOW))) != hash(shared_terms(spec))


def test_claims_and_returns_of_plain_jobs_have_patterns() -> None:
    claimed, done = pattern(QUEUED, CLAIM), pattern(CLAIMED, DONE)

    assert claimed is not None
    assert claimed.claims
    assert claimed.after.job.state is State.ASSIGNED
    assert done is not None
    assert not done.claims
    assert done.after.job.state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("job", "command"),
    [
        (QUEUED, replace(CLAIM, plain=True)),
        (CLAIMED, CLAIM),
        (made(enqueue(Spec(kind="fit", lock="disk")), None).after, CLAIM),
        (CLAIMED, replace(DONE, outcome=Success(result=1))),
        (CLAIMED, replace(DONE, outcome=Failure(message="no"))),
        (CLAIMED, replace(DONE, compensated=True)),
        (CLAIMED, replace(DONE, follow_ups=(replace(enqueue(Spec(kind="fit")), job_id="job-3"),))),
        (replace(CLAIMED, spec=Spec(kind="fit", promised_outputs=1)), DONE),
        (CLAIMED, Cancel(op_id="x", actor="user:u")),
    ],
    ids=[
        "plain",
        "repeat",
        "lock",
        "result",
        "failure",
        "compensated",
        "follow-ups",
        "outputs",
        "other command",
    ],
)
def test_what_is_special_has_no_pattern(job: Job, command: Command) -> None:
    assert pattern(job, command) is None


def test_a_new_job_has_no_pattern() -> None:
    command = replace(CLAIM, create=enqueue(Spec(kind="fit")))

    assert pattern_of(Template(QUEUED), command, made(command, None)) is None


@pytest.mark.parametrize(
    "command",
    [
        replace(DONE, token=2),
        replace(DONE, actor="worker:v"),
        replace(DONE, outcome=Success(result=1)),
        replace(DONE, compensated=False),
        replace(DONE, follow_ups=(replace(enqueue(Spec(kind="fit")), job_id="job-3"),)),
        CLAIM,
    ],
    ids=["token", "actor", "outcome", "compensated", "follow-ups", "claim"],
)
def test_a_completion_that_says_something_else_does_not_fit(command: Command) -> None:
    done = pattern(CLAIMED, DONE)
    assert done is not None

    assert done.match(replace(DONE, op_id="d.2"), like(done.before)) == "d.2"
    assert done.match(command, like(done.before)) is None


def test_a_claim_does_not_fit_a_job_that_is_not_ready() -> None:
    claimed = pattern(QUEUED, CLAIM)
    assert claimed is not None
    later = like(claimed.before, ready_at=NOW + timedelta(microseconds=1))

    assert claimed.match(CLAIM, like(claimed.before)) == CLAIM.op_id
    assert claimed.match(CLAIM, later) is None
    assert isinstance(decide(CLAIM, later, NOW), Refusal)


def test_a_cancelled_job_that_returns_is_like_another_that_was_cancelled() -> None:
    request = CancelRequest(actor="user:u", requested_at=NOW)
    done = pattern(replace(CLAIMED, cancel=request), DONE)

    assert done is not None
    assert done.change(like(done.before), "d.2").after.cancel == request
