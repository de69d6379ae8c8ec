"""An app for a worker that has nothing of Linux: functions of every kind, by a script that uses it."""

# ruff: noqa: T201

import json
import os
import subprocess
import sys
import time

import holdfast

app = holdfast.App()


@app.job
def add(one: int, other: int) -> int:
    print(f"adding in {os.getpid()}")
    return one + other


@app.job
async def later(ctx: holdfast.Context, number: int) -> int:
    await ctx.checkpoint_async(number)
    return number


@app.job(isolation="process", memory=64 * 1024 * 1024, max_crashes=1)
def hungry() -> None:
    kept = bytearray(256 * 1024 * 1024)
    time.sleep(60)
    print(len(kept))


@app.job(isolation="process")
def apart() -> int:
    return os.getpid()


@app.job(outputs=["model.bin"])
def train(ctx: holdfast.Context) -> None:
    with ctx.output("model.bin") as file:
        file.write(b"weights")


def main() -> None:
    """Enqueue one job of each, have a worker run them, and print what has become of them."""
    with holdfast.Client() as client:
        command = client.enqueue(holdfast.command(["sh", "-c", "echo from a command"]))
        handles = [
            add.enqueue(2, 3),
            later.enqueue(7),
            apart.enqueue(),
            train.enqueue(),
            hungry.enqueue(),
            command,
        ]
        worker = [sys.executable, "-m", "holdfast", "worker", "tests.macos.shop:app", "--commands", "--drain"]
        subprocess.run([*worker, "-c", "4"], check=True, stdin=subprocess.DEVNULL)
        print(json.dumps([_told(client, handle.job_id) for handle in handles]))


def _told(client: holdfast.Client, job_id: str) -> dict[str, object]:
    job = client.status(job_id)
    return {
        "state": job.state,
        "result": job.result,
        "error": job.error.message if job.error else None,
        "output": "".join(chunk.text for chunk in client.logs(job_id, follow=False)),
    }


if __name__ == "__main__":
    main()
