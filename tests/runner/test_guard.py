"""`ctx.guard`: the fence of a job for its lock, a resource, or itself."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context, Fenced, Invalid
from holdfast.fencing import Fence, sqlite
from holdfast.testing import memory_app


def test_a_guard_is_for_the_lock_of_the_job_or_for_the_job_itself() -> None:
    app = App()
    seen: list[Fence] = []

    @app.job(lock="order-{order_id}")
    def pay(ctx: Context, order_id: int) -> None:
        seen.extend([ctx.guard(), ctx.guard("ledger")])

    @app.job
    async def note(ctx: Context) -> None:
        seen.append(ctx.guard())

    with memory_app(app) as bench:
        paid, noted = pay.enqueue(17), note.enqueue()
        bench.drain()
        assert paid.job.spec.lock == "order-17"

    lock = "order-17"
    assert seen[0] == Fence(resource=lock, token=1, job_id=paid.job_id, lock=lock)
    assert seen[1] == Fence(resource="ledger", token=1, job_id=paid.job_id, lock=lock)
    assert seen[2] == Fence(resource=noted.job_id, token=1, job_id=noted.job_id)


def test_a_job_without_a_lock_cannot_guard_what_other_jobs_write_to() -> None:
    app = App()

    @app.job(max_failures=1)
    def pay(ctx: Context) -> None:
        ctx.guard("account-17")

    with memory_app(app) as bench:
        job = pay.enqueue()
        bench.drain()
        failed = job.refresh().error

    assert failed is not None
    assert not failed.retryable
    assert "has no lock" in failed.message
    assert "@app.job(lock=...)" in failed.message


def test_jobs_of_one_lock_get_tokens_of_one_order() -> None:
    """Scenario 14, with the second job's token above the first one's."""
    app = App()
    tokens: list[int] = []

    @app.job(lock="account-{account}")
    def pay(ctx: Context, account: int, amount: int = 5) -> None:
        tokens.append(ctx.guard().token)

    with memory_app(app) as bench:
        first, second = (pay.enqueue(17) for _ in range(2))
        other = pay.enqueue(18)
        bench.drain()
        assert {job.job.spec.lock for job in (first, second)} == {"account-17"}
        assert other.job.spec.lock == "account-18"

    assert sorted(tokens) == [1, 1, 2]


def test_a_zombie_learns_it_from_its_guard_when_its_lease_is_over() -> None:
    app = App()
    learnt: list[str] = []

    @app.job(lease=10)
    def pay(ctx: Context) -> str:
        if ctx.attempt == 1:
            bench.clock.advance(11)
            try:
                ctx.guard()
            except Fenced as error:
                learnt.append(error.message)
                raise
        return "paid"

    with memory_app(app) as bench:
        job = pay.enqueue()
        bench.drain()
        assert job.result() == "paid"

    assert learnt == ["The lease has run out: another worker may own the job."]


def test_a_stale_fence_is_refused_where_the_work_has_its_effect(tmp_path: Path) -> None:
    """Two jobs on one resource: the first one's late write meets what the second one has done."""
    app = App()
    bank = sqlite3.connect(tmp_path / "bank.db", check_same_thread=False)
    sqlite.install(bank)
    bank.execute("CREATE TABLE payment (job TEXT)")
    late: list[Fence] = []

    def pay_under(fence: Fence) -> None:
        with bank:
            sqlite.admit(bank, fence)
            bank.execute("INSERT INTO payment VALUES (?)", (fence.job_id,))

    @app.job(lock="account-17")
    def pay(ctx: Context) -> None:
        late.append(ctx.guard())
        pay_under(ctx.guard())

    with memory_app(app) as bench:
        jobs = [pay.enqueue().job_id for _ in range(2)]
        bench.drain()

    with pytest.raises(Fenced, match="account-17 has seen token 2"):
        pay_under(late[0])
    assert [row[0] for row in bank.execute("SELECT job FROM payment")] == jobs
    bank.close()


@pytest.mark.parametrize("lock", ["account-17", "account-{account}"])
def test_a_job_without_the_lock_its_function_has_guards_nothing(lock: str) -> None:
    """It was made by name, or before the function had a lock."""
    app = App()

    @app.job(lock=lock)
    def pay(ctx: Context, account: int) -> None:
        ctx.guard()

    with memory_app(app) as bench:
        job = pay.configure(lock=None).enqueue(17)
        bench.drain()
        failed = job.refresh()

    assert failed.error is not None
    assert "enqueued by its kind or by older code" in failed.error.message
    assert failed.attempt == 1  # it can never work


@pytest.mark.parametrize("resource", ["a b", "", 17, ["a"]])
def test_a_resource_has_a_name(resource: Any) -> None:  # noqa: ANN401
    app = App()
    raised: list[Exception] = []

    @app.job(lock="account-17")
    def pay(ctx: Context) -> None:
        try:
            ctx.guard(resource)
        except Invalid as error:
            raised.append(error)

    with memory_app(app) as bench:
        pay.enqueue()
        bench.drain()

    assert "resource" in str(raised[0])
