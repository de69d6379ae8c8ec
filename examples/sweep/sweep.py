"""A parameter sweep that is done when its outputs are there: two towns, three epidemics in each.

    python sweep.py

The census of one town has not come when the sweep is first run, so that half of it is missing: a
partial success. The census comes, the job is resumed, and only what was missing is made. Enqueued
once more, nothing is run. In production the worker is a service: holdfast worker sweep:app
"""

import hashlib
import random
import shlex
import subprocess
from pathlib import Path

import holdfast

TOWNS = ("Northam", "Southam")
CENSUS = Path("census")

app = holdfast.App()


@app.job
def sweep(ctx: holdfast.Context) -> None:
    """Make what is not there yet. A task that fails does not stop the others."""
    for task in ctx.tasks():
        try:
            task.save(simulate(task) if task.kind == "simulation" else average(task))
        except FileNotFoundError:
            task.fail(f"no census of {task.params['town']}")
        except holdfast.NotFound:
            task.fail("not all its epidemics are there")
        else:
            print(f"made {task.name}")


def simulate(task: holdfast.TaskHandle) -> dict[str, bytes]:
    """One epidemic: how many are ill, day by day. The seed decides, so it is the same every time."""
    people = int((CENSUS / str(task.params["town"])).read_text())
    rate, chance = float(task.params["rate"]), random.Random(task.seed)
    healthy, ill, days = people - 3, 3, ["ill"]
    while ill:
        risk = 1 - (1 - rate / people) ** ill
        caught = sum(chance.random() < risk for _ in range(healthy))
        cured = sum(chance.random() < 0.2 for _ in range(ill))
        healthy, ill = healthy - caught, ill + caught - cured
        days.append(str(ill))
    return {"days.csv": "\n".join(days).encode()}


def average(task: holdfast.TaskHandle) -> dict[str, bytes]:
    """The mean peak of a town's epidemics. `results` raises NotFound if one of them is not there."""
    curves = [result.files["days.csv"].decode().split() for result in task.results()]
    peaks = [max(map(int, curve[1:])) for curve in curves]
    return {"peak.txt": f"{sum(peaks) / len(peaks):.1f}".encode()}


def study() -> list[holdfast.Task]:
    """2 towns with 3 epidemics each, and the peak of each town: 6 + 2 outputs. Results are named by what
    they are made from, this program included."""
    program = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return list(
        holdfast.study(
            bundle=f"sha256:{program}",
            entrypoint="sweep/simulate",
            parameter_sets=[{"town": town, "rate": 0.4} for town in TOWNS],
            replicates=3,
            targets=["peak"],
        )
    )


def main() -> None:
    tasks = study()
    name = f"sweep-{tasks[0].bundle[7:11]}"
    job = sweep.configure(tasks=tasks, job_id=name).enqueue()
    if not job.job.ended:  # the first time that this program is run here
        run_and_resume(job.job_id)
    again = sweep.configure(tasks=tasks, job_id=f"{name}-again").enqueue()
    shell(f"holdfast why {again.job_id}")


def run_and_resume(job_id: str) -> None:
    CENSUS.mkdir(exist_ok=True)
    (CENSUS / "Northam").write_text("600")
    (CENSUS / "Southam").unlink(missing_ok=True)
    shell("holdfast worker sweep:app --drain")
    shell(f"holdfast outputs --missing {job_id}")
    (CENSUS / "Southam").write_text("900")
    resumed = shell(f"holdfast resume {job_id}").strip()
    shell("holdfast worker sweep:app --drain")
    shell(f"holdfast logs {resumed}")
    shell(f"holdfast outputs {job_id}")


def shell(line: str) -> str:
    """Run a command as a user would type it, print both, and return its output."""
    print(f"$ {line}", flush=True)
    out, err = subprocess.PIPE, subprocess.STDOUT
    done = subprocess.run(shlex.split(line), stdout=out, stderr=err, text=True, check=True)
    print(done.stdout, end="", flush=True)
    return done.stdout


if __name__ == "__main__":
    main()
