"""Several processes that begin at the same moment, and what each of them found.

A part is an asynchronous generator in `process_roles.py`: what is before its first `yield` is preparation,
what that `yield` gives is the moment to begin, and its second `yield` is the answer.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARTS = Path(__file__).parent / "process_roles.py"
HEAD_START = 0.05
PATIENCE_SECONDS = 600

Part = Callable[..., AsyncGenerator[Any, float]]


@dataclass(frozen=True)
class Answer:
    """What a part found, and when it began and ended by the clock that all processes share."""

    found: Any
    began: float
    ended: float
    cpu_seconds: float


class Group:
    """Parts that wait for the word. Whatever happens, none of them outlives the group."""

    def __init__(self, orders: list[tuple[str, dict[str, Any]]]) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(PARTS), role, json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for role, order in orders
        ]

    def __enter__(self) -> "Group":
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == "ready\n", f"a part said {line!r} and not that it is ready"
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def go(self) -> None:
        moment = time.monotonic() + HEAD_START
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{moment}\n")
            process.stdin.flush()

    def answers(self) -> list[Answer]:
        found = []
        for process in self._processes:
            out, _ = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, f"a part exited with {process.returncode}"
            found.append(Answer(**json.loads(out.splitlines()[-1])))
        return found


def run_together(orders: list[tuple[str, dict[str, Any]]]) -> list[Answer]:
    with Group(orders) as group:
        group.go()
        return group.answers()


def wall_seconds(answers: list[Answer]) -> float:
    return max(a.ended for a in answers) - min(a.began for a in answers)


async def play(part: Part, order: dict[str, Any]) -> None:
    """Be one of the processes."""
    acts = part(**order)
    await anext(acts)
    print("ready", flush=True)
    moment = float(await asyncio.to_thread(sys.stdin.readline))
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
    began, used = time.monotonic(), time.process_time()
    found = await acts.asend(moment)
    answer = Answer(found, began, time.monotonic(), time.process_time() - used)
    async for _ in acts:
        raise AssertionError("a part answers once")
    print(json.dumps(answer.__dict__))
