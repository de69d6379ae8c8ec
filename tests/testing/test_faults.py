"""Faults for users' tests: what is not safe to repeat is found, and what is safe passes."""

import asyncio
from typing import Any

import pytest

from holdfast import App, Context, HoldfastError, PermanentError, State
from holdfast.sdk.job_function import JobFunction
from holdfast.testing import faults

app = App("sqlite:////nowhere/at/all.db")
charges: list[str] = []
said: list[str] = []
wrote: list[int] = []
tokens: dict[str, int] = {}
follow_ups: list[str] = []


@app.job
async def charge(ctx: Context, order: str) -> None:
    ctx.progress(0, 1)
    charges.append(order)


@app.job
def charge_plainly(order: str) -> None:
    charges.append(order)


@app.job
async def charge_once(ctx: Context, order: str) -> None:
    ctx.progress(0, 1)
    if order not in charges:
        charges.append(order)
    ctx.emit("charged", order=order)
    await ctx.checkpoint_async(order)


@app.job
def charge_once_plainly(ctx: Context, order: str) -> None:
    ctx.progress(0, 1)
    if order not in charges:
        charges.append(order)
    ctx.emit("charged", order=order)
    ctx.checkpoint(order)


@app.job
async def overwrite(ctx: Context) -> None:
    ctx.progress(0, 1)
    wrote.append(ctx.attempt)


@app.job
async def overwrite_fenced(ctx: Context) -> None:
    ctx.progress(0, 1)
    if ctx.fencing_token < tokens.get("shelf", 0):
        raise PermanentError("a later owner was here")
    tokens["shelf"] = ctx.fencing_token
    wrote.append(ctx.attempt)


@app.job(max_crashes=1)
async def fragile(ctx: Context) -> None:
    ctx.progress(0, 1)


@app.job
async def swallow(ctx: Context) -> None:
    """It catches what nobody should, and goes on as if nothing had happened."""
    try:
        ctx.progress(0, 1)
    except BaseException:
        said.append("caught")
    try:
        await ctx.checkpoint_async("from beyond")
    except BaseException:
        said.append("caught again")


@app.job
async def heed(ctx: Context) -> None:
    try:
        ctx.progress(0, 1)
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        said.append(f"cancelled {ctx.cancelled}")
        raise
    said.append(f"attempt {ctx.attempt} done")


@app.job
def look_at_lease(ctx: Context) -> None:
    ctx.progress(0, 1)
    said.append(f"attempt {ctx.attempt} has {ctx.lease.total_seconds():.0f} s")


@app.job
def save(ctx: Context) -> None:
    try:
        ctx.checkpoint(ctx.attempt)
    except HoldfastError:
        said.append(f"attempt {ctx.attempt} was refused")
        raise
    said.append(f"saved by attempt {ctx.attempt}")


@app.job
async def follow(ctx: Context) -> None:
    ctx.follow_up(note.call(attempt=ctx.attempt))


@app.job
async def note(attempt: int) -> None:
    follow_ups.append(f"after attempt {attempt}")


def forget() -> None:
    for kept in (charges, said, wrote, tokens, follow_ups):
        kept.clear()


def charged_once() -> None:
    assert len(charges) == 1, f"charged {len(charges)} times"


def nothing_wrong() -> None: ...


def test_a_handler_that_is_not_safe_is_found_with_each_fault_that_breaks_it() -> None:
    with pytest.raises(faults.NotSafe) as found:
        faults.check(app, charge.call(order="o-1"), setup=forget, invariant=charged_once)

    title, *lines = str(found.value).splitlines()
    assert title == "charge is not safe to repeat."
    assert lines == [
        "A crash after it has returned breaks it: charged 2 times",
        "A lost lease at its 1st ctx.progress breaks it: charged 2 times",
        "A lost lease after it has returned breaks it: charged 2 times",
        "A duplicate delivery at its 1st ctx.progress breaks it: charged 2 times",
        "A duplicate delivery after it has returned breaks it: charged 2 times",
        "An outage of the store at its 1st ctx.progress breaks it: charged 2 times",
        "An outage of the store after it has returned breaks it: charged 2 times",
    ]


def test_a_handler_without_a_context_is_struck_at_its_end() -> None:
    with pytest.raises(faults.NotSafe, match="A crash after it has returned"):
        faults.check(app, charge_plainly.call(order="o-1"), setup=forget, invariant=charged_once)


@pytest.mark.parametrize("job", [charge_once, charge_once_plainly])
def test_a_safe_handler_passes_under_every_fault_at_every_place(
    job: JobFunction[..., None, Any],
) -> None:
    trials = faults.check(app, job.call(order="o-1"), setup=forget, invariant=charged_once)

    places = [
        "at its 1st ctx.progress",
        "at its 1st ctx.emit",
        "before its 1st checkpoint is stored",
        "after its 1st checkpoint is stored",
        "after it has returned",
    ]
    assert [trial.where for trial in trials] == places * 4
    assert {(trial.attempts, trial.state) for trial in trials} == {(2, State.SUCCEEDED)}
    assert all(trial.refused for trial in trials)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (faults.lost_lease, "its lease was lost (a test)"),
        (
            faults.duplicate_delivery,
            "Token 1 holds nothing: the job is succeeded, attempt 2.",
        ),
        (faults.store_outage, "the store could not be reached before the lease ended"),
    ],
)
def test_the_first_attempt_ends_for_the_reason_of_its_fault(fault: faults.Fault, why: str) -> None:
    trials = faults.check(
        app,
        charge_once.call(order="o-1"),
        setup=forget,
        invariant=charged_once,
        faults=[fault],
    )

    assert {why for trial in trials for why in trial.refused} == {why}


def test_a_checkpoint_of_a_late_owner_is_refused() -> None:
    seen: list[list[str]] = []

    faults.check(
        app,
        save.call(),
        setup=forget,
        invariant=lambda: seen.append(list(said)),
        faults=[faults.duplicate_delivery],
    )

    assert seen[1] == ["saved by attempt 2", "attempt 1 was refused"]


def newest_wins() -> bool:
    return wrote[-1] == max(wrote)


def test_a_late_owner_that_overwrites_is_found_and_the_token_stops_it() -> None:
    with pytest.raises(faults.NotSafe) as found:
        faults.check(app, overwrite.call(), setup=forget, invariant=newest_wins)

    assert str(found.value).splitlines() == [
        "overwrite is not safe to repeat.",
        "A duplicate delivery at its 1st ctx.progress breaks it: the invariant does not hold.",
    ]
    faults.check(app, overwrite_fenced.call(), setup=forget, invariant=newest_wins)


def test_a_job_that_ends_otherwise_than_without_a_fault_is_found() -> None:
    with pytest.raises(faults.NotSafe, match="the job is dead_lettered, not succeeded"):
        faults.check(app, fragile.call(), invariant=nothing_wrong, faults=[faults.crash])


def test_what_breaks_without_any_fault_is_said_so() -> None:
    with pytest.raises(faults.NotSafe, match="breaks without any fault: the invariant does not"):
        faults.check(app, note.call(attempt=1), invariant=lambda: False)


def test_an_invariant_that_raises_is_quoted() -> None:
    with pytest.raises(faults.NotSafe, match=r"the invariant raises KeyError\('o-1'\)"):
        faults.check(app, note.call(attempt=1), invariant=lambda: tokens["o-1"])


def test_nothing_is_heard_of_a_handler_after_its_crash() -> None:
    seen: list[list[str]] = []

    [trial, *_] = faults.check(
        app,
        swallow.call(),
        setup=forget,
        invariant=lambda: seen.append(list(said)),
        faults=[faults.crash],
    )

    assert trial.attempts == 2
    assert seen[1] == ["caught", "caught again"]


def test_a_handler_whose_lease_is_lost_is_cancelled_and_runs_again() -> None:
    seen: list[list[str]] = []

    faults.check(
        app,
        heed.call(),
        setup=forget,
        invariant=lambda: seen.append(list(said)),
        faults=[faults.lost_lease],
    )

    assert seen[1] == ["cancelled True", "attempt 2 done"]


def test_a_duplicate_runs_while_the_first_stands_still() -> None:
    seen: list[list[str]] = []

    faults.check(
        app,
        look_at_lease.call(),
        setup=forget,
        invariant=lambda: seen.append(list(said)),
        faults=[faults.duplicate_delivery],
    )

    assert seen[1] == ["attempt 2 has 60 s", "attempt 1 has 0 s"]


def test_follow_ups_are_made_once_under_every_fault() -> None:
    def once() -> None:
        assert len(follow_ups) == 1, follow_ups

    faults.check(app, follow.call(), setup=forget, invariant=once)


def test_of_many_places_the_first_and_the_last_are_taken() -> None:
    trials = faults.check(
        app,
        charge_once.call(order="o-1"),
        setup=forget,
        invariant=charged_once,
        faults=[faults.crash],
        places_max=2,
    )

    assert [trial.where for trial in trials] == ["at its 1st ctx.progress", "after it has returned"]


async def test_faults_are_checked_in_a_coroutine() -> None:
    await faults.check_async(app, charge_once.call(order="o-1"), setup=forget, invariant=charged_once)
