"""The job that every system in Python runs here, and the verbs by which the frame talks to a program."""

import asyncio
import contextlib
import inspect
import json
import os
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["FREEZE_FOLDER"])
URL = os.environ["FREEZE_URL"]
WORKER = os.environ["FREEZE_WORKER"]
QUEUE = os.environ.get("FREEZE_QUEUE", "default")
LOOK_SECONDS = 0.05


def job(number=None, job_id=None):
    """Begin, wait for the file `go-<worker>`, end. `number` is whatever the system counts runs by."""
    with told(number, job_id):
        while not may_go():
            time.sleep(LOOK_SECONDS)
    return f"result of {WORKER}"


async def job_async(number=None, job_id=None, beat=None):
    """The same; `beat` is for systems that ask the handler to say that it is alive."""
    with told(number, job_id):
        while not may_go():
            await asyncio.sleep(LOOK_SECONDS)
            if beat:
                await beat()
    return f"result of {WORKER}"


def may_go():
    return (FOLDER / f"go-{WORKER}").exists()


@contextlib.contextmanager
def told(number, job_id):
    tell("begin", job_id, number=number)
    try:
        yield
    except BaseException as error:
        tell("stopped", job_id, why=type(error).__name__)
        raise
    tell("end", job_id)


def tell(what, job_id, **more):
    line = {"worker": WORKER, "pid": os.getpid(), "what": what, "at": time.time(), "job_id": job_id}
    with (FOLDER / "told.jsonl").open("a") as log:
        log.write(json.dumps({**line, **more}) + "\n")


def main(**verbs):
    """`setup`, `work`, `enqueue`, `state <id>`, `settings`: the answer is the last line, as JSON."""
    answer = verbs[sys.argv[1]](*sys.argv[2:]) if sys.argv[1] in verbs else None
    if inspect.isawaitable(answer):
        answer = asyncio.run(answer)
    print(json.dumps(answer))


def script(name, *words):
    """Become the command that comes with the system, found beside this Python."""
    command = str(Path(sys.executable).parent / name)
    os.execv(command, [command, *words])
