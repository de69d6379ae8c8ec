"""A pipeline of commands: fetch, sort, summarise, each a job of its own, then a follow-up.

    python pipeline.py

runs the pipeline for two days at once. In production the worker is a service:
holdfast worker pipeline:app --commands
"""

import subprocess
from pathlib import Path

import holdfast

STEPS = {
    "fetch": "seq 200000 | awk -v day=$DAY '{print $1 * 7919 % (10007 + day)}' > $DAY.txt",
    "sort": "sort -n $DAY.txt > $DAY.sorted",
    "summarise": "echo $(uniq $DAY.sorted | wc -l) of $(wc -l < $DAY.sorted) numbers differ",
}

app = holdfast.App()


@app.job
async def pipeline(ctx: holdfast.Context, day: int, folder: str) -> str:
    """Submit one command after the other. While one runs this job snoozes, and occupies no worker."""
    output = ""
    async with holdfast.AsyncClient(app.url) as client:
        for name, script in STEPS.items():
            step = await client.submit(
                ["sh", "-ec", script],
                cwd=folder,
                env={"DAY": str(day)},
                name=f"{name} {day}",
                lock="disk" if name == "sort" else None,  # one sort at a time, on all machines
                correlation_id=ctx.correlation_id,
                request_id=f"{ctx.job_id}-{name}",  # the same id again gives the same job again
            )
            job = await client.status(step.job_id)
            if not job.ended:
                raise holdfast.Snooze(0.2, f"{name} is running")
            if job.state != holdfast.State.SUCCEEDED:
                raise holdfast.PermanentError(f"{name} ended {job.state}: {job.reason}")
            output = "".join([piece.text async for piece in client.logs(step.job_id)])
    summary = output.strip()
    ctx.follow_up(announce.call(day=day, summary=summary))
    return summary


@app.job
def announce(day: int, summary: str) -> None:
    """Enqueued in the same commit that ends the pipeline with success: never without it, never twice."""
    print(f"Day {day}: {summary}.")


def main() -> None:
    folder = Path("data").absolute()
    folder.mkdir(exist_ok=True)
    jobs = [pipeline.configure(name=f"pipeline {day}").enqueue(day=day, folder=str(folder)) for day in (1, 2)]
    command = ["holdfast", "worker", "pipeline:app", "--commands", "--drain"]
    with subprocess.Popen(command) as worker, holdfast.Client(app.url) as client:
        for job in jobs:
            print(job.result(timeout=60))
        worker.wait(timeout=60)
        for last in client.list(kind="announce"):
            for piece in client.logs(last.job_id):
                print(piece.text, end="")


if __name__ == "__main__":
    main()
