"""An app whose handlers leave outputs, some of them or none."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from holdfast import App, Context, Retry, Task, study

app = App("sqlite:////nowhere/at/all.db")
BUNDLE = "sha256:" + "ab" * 32
said: list[str] = []
QUICK = Retry(backoff=timedelta(seconds=1), factor=1)


def tasks(sets: int = 2, replicates: int = 3, target: str | None = "mean") -> Iterator[Task]:
    return study(
        bundle=BUNDLE,
        entrypoint="models.seir/baseline",
        parameter_sets=[{"beta": n / 10} for n in range(sets)],
        replicates=replicates,
        targets=[target] if target else [],
    )


@app.job(outputs=["model.bin", "metrics.json"], max_failures=3, retry=QUICK)
def train(ctx: Context, write: list[str], breaks: str = "") -> int:
    """Write these; `breaks` while that one is open, in the first attempt."""
    for name in write:
        with ctx.output(name) as file:
            file.write(f"{name} of {ctx.fencing_token}".encode())
            if name == breaks and ctx.attempt == 1:
                raise ValueError(f"broke in {name}")
    return ctx.attempt


@app.job(outputs=["model.bin", "metrics.json"], max_failures=3, retry=QUICK)
async def train_async(ctx: Context, write: list[str], breaks: str = "") -> int:
    for name in write:
        async with ctx.output(name) as file:
            file.write(f"{name} of {ctx.fencing_token}".encode())
            if name == breaks and ctx.attempt == 1:
                raise ValueError(f"broke in {name}")
    return ctx.attempt


@app.job(max_failures=3, retry=QUICK)
def sweep(ctx: Context, stop_after: int = 1000, fails: int = -1) -> int:
    """Do the tasks of a study; break off after this many in the first attempt, fail this one."""
    done = 0
    for task in ctx.tasks():
        if done == stop_after and ctx.attempt == 1:
            raise ValueError("broken off")
        said.append(f"{ctx.attempt} {task.name}")
        if task.kind == "aggregation":
            parts = [one.files["table.csv"] for one in task.results()]
            task.save({"mean.csv": b"+".join(parts)})
        elif done == fails:
            task.fail("it diverged")
        else:
            task.save({"table.csv": f"{task.params['beta']} {task.seed}".encode()})
        done += 1
    return done


@app.job(max_failures=3, retry=QUICK)
async def sweep_async(ctx: Context, stop_after: int = 1000, fails: int = -1) -> int:
    done = 0
    async for task in ctx.tasks_async():
        if done == stop_after and ctx.attempt == 1:
            raise ValueError("broken off")
        said.append(f"{ctx.attempt} {task.name}")
        if task.kind == "aggregation":
            parts = [one.files["table.csv"] async for one in task.results_async()]
            await task.save_async({"mean.csv": b"+".join(parts)})
        elif done == fails:
            await task.fail_async("it diverged")
        else:
            await task.save_async({"table.csv": f"{task.params['beta']} {task.seed}".encode()})
        done += 1
    return done


@app.job
def by_path(ctx: Context) -> None:
    """Something else writes the file, by its path."""
    with ctx.output("a.txt") as file:
        Path(file.name).write_bytes(b"by its path")


@app.job
async def waits_for_itself(ctx: Context, how: str) -> None:
    match how:
        case "output":
            with ctx.output("a.txt"):
                pass
        case "tasks":
            for _ in ctx.tasks():
                pass
        case _:
            async for task in ctx.tasks_async():
                task.save({"table.csv": b""})


@app.job
def begets(ctx: Context) -> None:
    ctx.follow_up(train.call(write=["model.bin", "metrics.json"]))
    ctx.follow_up(sweep.configure(tasks=tasks(1, 1)).call())


@app.job(outputs=["model.bin"])
def both(ctx: Context) -> None:
    """Leave outputs of both kinds; unless it was `mended`, its last task fails."""
    with ctx.output("model.bin") as file:
        file.write(b"weights")
    for number, task in enumerate(ctx.tasks()):
        if number == 0 or "mended" in said:
            task.save({"table.csv": b"1"})
            said.append("task")
        else:
            task.fail("it diverged")


@app.job
async def cancels_itself(ctx: Context) -> None:
    """Asks to be cancelled while it does its second task, and goes on as if it had not."""
    async for task in ctx.tasks_async():
        said.append(task.name)
        await task.save_async({"table.csv": b"1"})
        if len(said) == 2:
            await app.background.call_async(lambda client: client.cancel(ctx.job_id))
            await ctx.cancellation()
