"""Functions through a real worker: retries, dead letters, follow-ups, compensation, on both stores."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast.core.catalogue import ReasonCode, Stage
from holdfast.core.retry import OnExhausted, Retry
from holdfast.core.state import State
from tests.worker.function_workers import QUICK, STORES, FunctionWorkers, open_workers

APP = """
from typing import TypedDict

class State(TypedDict):
    page: int

@app.job
async def flaky(ctx: holdfast.Context, times: int):
    print("attempt", ctx.attempt)
    if ctx.attempt <= times: raise holdfast.TransientError(f"not yet {ctx.attempt}")
    return ctx.attempt

@app.job
def permanent(): raise holdfast.PermanentError("never")

@app.job
def invalid(): raise holdfast.ValidationError("nonsense")

@app.job
def typed(n: int): return n

@app.job
async def snoozing(ctx: holdfast.Context):
    if ctx.attempt == 1: raise holdfast.Snooze(0.2, "not now")
    return ctx.attempt

@app.job
def keeps(ctx: holdfast.Context, fresh: bool):
    if ctx.last_checkpoint() is None:
        ctx.checkpoint({"page": 7} if fresh else {"seite": 7})
        raise RuntimeError("once more")
    return ctx.last_checkpoint(State)["page"]

@app.job
def parent(ctx: holdfast.Context, fail: bool):
    ctx.follow_up(typed.call(n=1))
    ctx.follow_up(typed.configure(priority=1).call(n=2))
    if fail and ctx.attempt == 1: raise RuntimeError("after the follow-ups")
    return "parent"

def undo(ctx: holdfast.Context, how: str):
    print("undone in", ctx.attempt, ctx.fencing_token)
    if how == "undo fails": raise RuntimeError("cannot undo")
    if how == "undo dies": os._exit(9)

@app.job(compensate=undo)
def costly(ctx: holdfast.Context, how: str):
    if how == "undo late" and ctx.attempt == 1: raise RuntimeError("first")
    if how == "works": return "done"
    if how == "sleeps":
        Path("asleep").write_text("yes")
        ctx.wait_cancelled()
        ctx.check()
    raise holdfast.PermanentError("broken")

@app.job(compensate=undo, isolation="process")
def costly_apart(how: str):
    if how == "crash": os._exit(139)
    time.sleep(60)
"""


@pytest.fixture(scope="module", params=STORES)
def workers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FunctionWorkers]:
    with open_workers(request.param, tmp_path_factory.mktemp(request.param), APP) as workers:
        workers.start("w-1")
        yield workers


def test_four_transient_errors_then_success_are_five_attempts_with_waits(
    workers: FunctionWorkers,
) -> None:
    """Scenarios 18 and 26."""
    retry = Retry(backoff=timedelta(milliseconds=50))
    job_id = workers.enqueue("flaky", {"times": 4}, retry=retry)

    job = workers.succeeded(job_id)

    assert (job.attempt, job.result, job.failures) == (5, 5, 4)
    events = workers.history(job_id)
    again = [event for event in events if event.event_type == "job_requeued"]
    starts = [event for event in events if event.event_type == "job_claimed"][1:]
    waits = [
        (start.occurred_at - wait.occurred_at).total_seconds()
        for wait, start in zip(again, starts, strict=True)
    ]
    assert len(waits) == 4
    assert all(wait <= 0.05 * 2**n + 1 for n, wait in enumerate(waits))
    said = [e for e in workers.log(job_id) if e.stream == "stdout"]
    assert [(e.attempt, e.sequence, e.data) for e in said] == [
        (n, 1, f"attempt {n}\n".encode()) for n in range(1, 6)
    ]


def test_what_always_fails_is_a_dead_letter_with_all_that_is_needed_and_can_be_replayed(
    workers: FunctionWorkers,
) -> None:
    """Scenario 19."""
    job_id = workers.enqueue("flaky", {"times": 2}, retry=Retry(max_failures=2, backoff=timedelta()))

    job = workers.ended(job_id)

    letter = job.dead_letter
    assert letter is not None
    assert (job.state, letter.reason_code) == (State.DEAD_LETTERED, ReasonCode.EXHAUSTED_RETRIES)
    assert (letter.last_error, letter.attempts, letter.stage) == (
        "TransientError: not yet 2",
        2,
        Stage.EXEC,
    )
    assert (letter.correlation_id, letter.last_owner) == (job.correlation, "w-1")
    assert letter.last_lease_expires_at is not None
    twin = workers.use(lambda r: r.replay(job_id, actor="user:ana"))
    assert twin.spec.replayed_from == job_id
    assert workers.ended(twin.job_id).state is State.DEAD_LETTERED
    assert workers.job(job_id).state is State.DEAD_LETTERED
    assert "job_replayed" in [str(e.event_type) for e in workers.log(job_id)]


def test_a_payload_that_does_not_fit_is_parked_without_another_try(
    workers: FunctionWorkers,
) -> None:
    """Scenario 20."""
    job = workers.ended(workers.enqueue("typed", {"n": "many"}))

    assert job.dead_letter is not None
    assert (job.dead_letter.reason_code, job.dead_letter.stage) == (
        ReasonCode.PARSE_ERROR,
        Stage.INPUT,
    )
    assert (job.attempt, job.failures) == (1, 1)


def test_a_permanent_error_ends_the_job_and_a_validation_error_parks_it(
    workers: FunctionWorkers,
) -> None:
    permanent, invalid = workers.enqueue("permanent"), workers.enqueue("invalid")

    failed, parked = workers.ended(permanent), workers.ended(invalid)

    assert (failed.state, failed.attempt, failed.reason) == (State.FAILED, 1, "PermanentError: never")
    assert parked.dead_letter is not None
    assert parked.dead_letter.reason_code is ReasonCode.VALIDATION_FAILED


def test_what_is_too_late_never_runs(workers: FunctionWorkers) -> None:
    job_id = workers.enqueue("typed", {"n": 1}, ttl=timedelta(seconds=1), delay=timedelta(seconds=30))

    job = workers.ended(job_id)

    assert job.dead_letter is not None
    assert job.dead_letter.reason_code is ReasonCode.TIMEOUT
    assert "job_claimed" not in workers.types(job_id)


def test_a_snooze_costs_nothing(workers: FunctionWorkers) -> None:
    job = workers.succeeded(workers.enqueue("snoozing"))

    assert (job.result, job.failures, job.crashes) == (2, 0, 0)


def test_a_checkpoint_is_read_by_the_next_attempt_and_one_of_another_type_parks_the_job(
    workers: FunctionWorkers,
) -> None:
    fresh, old = (
        workers.enqueue("keeps", {"fresh": True}),
        workers.enqueue("keeps", {"fresh": False}),
    )

    assert workers.succeeded(fresh).result == 7
    job = workers.ended(old)
    assert job.state is State.DEAD_LETTERED
    assert (job.attempt, job.checkpoint) == (2, {"seite": 7})
    assert "The checkpoint of an earlier attempt is not of type State" in (job.reason or "")


def test_follow_ups_are_made_with_the_completion_and_not_with_a_failure(
    workers: FunctionWorkers,
) -> None:
    good, late = (
        workers.enqueue("parent", {"fail": False}),
        workers.enqueue("parent", {"fail": True}),
    )

    for job_id in (good, late):
        assert workers.succeeded(job_id).result == "parent"
        made = workers.history(job_id)[-1].attributes["follow_ups"]
        assert isinstance(made, list)
        assert [workers.succeeded(child).result for child in made] == [1, 2]
    children = [job for job in workers.use(lambda r: r.list_jobs(limit=1000)).jobs if job.correlation == late]
    assert len([job for job in children if job.spec.kind == "typed"]) == 2


@pytest.mark.parametrize(
    ("kind", "how", "state", "events"),
    [
        ("costly", "works", State.SUCCEEDED, 0),
        ("costly", "undo works", State.FAILED, 1),
        ("costly", "undo late", State.FAILED, 1),
        ("costly", "undo fails", State.DEAD_LETTERED, 0),
        ("costly", "undo dies", State.DEAD_LETTERED, 0),
        ("costly_apart", "crash", State.FAILED, 1),
        ("costly_apart", "timeout", State.FAILED, 1),
    ],
)
def test_a_compensation_runs_once_after_the_last_failure(
    workers: FunctionWorkers, kind: str, how: str, state: State, events: int
) -> None:
    last = Retry(max_failures=1, max_crashes=1, on_exhausted=OnExhausted.FAIL)
    options = {"timeout": timedelta(seconds=0.3)} if how == "timeout" else {}
    retry = last if kind == "costly_apart" else QUICK
    job_id = workers.enqueue(kind, {"how": how}, retry=retry, **options)

    job = workers.ended(job_id)

    assert job.state is state
    assert workers.types(job_id).count("job_compensated") == events
    if events:
        line = f"undone in {job.attempt} {job.fencing_token}\n"
        assert workers.output(job_id).decode() == line
    if state is State.DEAD_LETTERED:
        assert job.dead_letter is not None
        assert job.dead_letter.reason_code is ReasonCode.COMPENSATION_FAILED


def test_a_cancelled_job_is_compensated(workers: FunctionWorkers) -> None:
    job_id = workers.enqueue("costly", {"how": "sleeps"})
    workers.file("asleep")
    workers.cancel(job_id, hard=False)

    assert workers.ended(job_id).state is State.CANCELLED
    assert workers.types(job_id).count("job_compensated") == 1


def test_record_and_log_agree(workers: FunctionWorkers) -> None:
    workers.assert_consistent()
