"""A thumbnail service: pictures in, small pictures out, each in a process of its own.

    python thumbnails.py

makes some pictures, queues a thumbnail of each, runs a worker until nothing is left, and prints the
results. In production the worker is a service: holdfast worker thumbnails:app
"""

import os
import subprocess
from pathlib import Path
from typing import TypedDict

import holdfast
from images import Broken, Picture, read_ppm, shrink, sunrise, write_png, write_ppm

MIB = 1024 * 1024

app = holdfast.App()


class Thumbnail(TypedDict):
    """What a job returns."""

    path: str
    width: int
    height: int


@app.job(
    isolation="process",
    memory=160 * MIB,
    timeout=60,
    retry=holdfast.Retry(max_failures=10, max_crashes=1),  # soon again: a picture is late by seconds
)
def thumbnail(ctx: holdfast.Context, source: str, target: str, width: int = 64) -> Thumbnail:
    """Shrink one picture. It may run twice, so what it leaves behind is always one whole file."""
    picture = load(Path(source))
    ctx.log.info("%s has %d x %d pixels", source, picture.width, picture.height)
    small = shrink(picture, width)
    unfinished = Path(f"{target}.{ctx.job_id}.{ctx.fencing_token}")
    unfinished.write_bytes(write_png(small))
    os.replace(unfinished, target)
    return {"path": target, "width": small.width, "height": small.height}


def load(source: Path) -> Picture:
    """Return the picture. Raise an error that says whether another try can help."""
    try:
        return read_ppm(source.read_bytes())
    except FileNotFoundError as error:
        raise holdfast.TransientError(f"{source} has not arrived yet") from error
    except Broken as error:
        raise holdfast.ValidationError(f"{source}: {error}") from error


def main() -> None:
    folder = Path("pictures")
    folder.mkdir(exist_ok=True)
    for name, width, height in (("dawn", 320, 200), ("noon", 200, 320)):
        (folder / f"{name}.ppm").write_bytes(write_ppm(sunrise(width, height)))
    (folder / "broken.ppm").write_bytes(b"P6 100 100 255\nnot that many bytes")
    with (folder / "huge.ppm").open("wb") as huge:  # 300 MB of black, which take no room on disk
        huge.truncate(huge.write(b"P6 10000 10000 255\n") + 10_000 * 10_000 * 3)

    names = ("dawn", "noon", "broken", "huge", "late")
    jobs = {
        name: thumbnail.configure(name=name).enqueue(
            source=f"pictures/{name}.ppm", target=f"pictures/{name}.png"
        )
        for name in names
    }
    with subprocess.Popen(["holdfast", "worker", "thumbnails:app", "--drain"]) as worker:
        deliver_late(jobs["late"].job_id, folder / "late.ppm")
        worker.wait(timeout=60)
    for name, job in jobs.items():
        try:
            print(f"{name}: {job.result(timeout=60)}")
        except holdfast.JobFailed as error:
            print(f"{name}: {error.job.state}, {error.job.reason}")


def deliver_late(job_id: str, path: Path) -> None:
    """Write the last picture after its job has failed once without it."""
    with holdfast.Client(app.url) as client:
        for event in client.events(job_id):
            if event.event_type == "job_requeued":
                break
    path.write_bytes(write_ppm(sunrise(160, 160)))


if __name__ == "__main__":
    main()
