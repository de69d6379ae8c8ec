"""The job of the scenarios with real workers: writes to the ledgers with the fence it got at its start.

Its code is as stubborn as a job's code can be: it notes every refusal, and goes on.
"""

import asyncio
import os
import time
from pathlib import Path

import holdfast
from holdfast.core.errors import HoldfastError
from holdfast.fencing import Fence
from verify.zombie_record import DONE, GRANTED, WRITE, Act, Record
from verify.zombie_resources import CHECKED, UNCHECKED, Resources, open_resources

GUARD = "guard"
BEAT_SECONDS = 0.05
WRITES = 5
SECONDS_MAX = 120.0

app = holdfast.App()


@app.job
async def ledger(ctx: holdfast.Context, resources: str, record: str, finish: str) -> int:
    """Write until the file `finish` is there; a later attempt only a few times, unless it has to stay."""
    writer = Writer(ctx, open_resources(resources), Record(Path(record)))
    writer.note(GRANTED)
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        await writer.write(UNCHECKED)
        await writer.write(CHECKED)
        writer.guard()
        if writer.is_done(Path(finish)):
            break
        await asyncio.sleep(BEAT_SECONDS)
    return ctx.fencing_token


class Writer:
    """`who` is the process it runs in; a guard's `number` is the wall clock at that time."""

    def __init__(self, ctx: holdfast.Context, resources: Resources, record: Record) -> None:
        self._ctx = ctx
        self._fence: Fence = ctx.guard()
        self._resources = resources
        self._record = record
        self._who = str(os.getpid())
        self.rounds = 0

    def is_done(self, finish: Path) -> bool:
        stays = self._ctx.attempt == 1 or finish.with_name("stay").exists()
        return finish.exists() or (self.rounds >= WRITES and not stays)

    async def write(self, name: str) -> None:
        began, answer = time.monotonic(), DONE
        try:
            await self._resources.write(name, self._fence, f"{self._who}#{self.rounds}")
        except HoldfastError as error:
            answer = type(error).__name__
        self.note(WRITE, began, answer, name, self.rounds)

    def guard(self) -> None:
        began, answer = time.monotonic(), DONE
        try:
            self._ctx.guard()
        except HoldfastError as error:
            answer = type(error).__name__
        self.note(GUARD, began, answer, number=int(time.time()))
        self.rounds += 1

    def note(
        self,
        verb: str,
        began: float = 0.0,
        answer: str = DONE,
        form: str = "",
        number: int = 0,
    ) -> None:
        now = time.monotonic()
        act = Act(
            who=self._who,
            verb=verb,
            began=began or now,
            ended=now,
            job=self._ctx.job_id,
            token=self._ctx.fencing_token,
            answer=answer,
            form=form,
            number=number,
        )
        self._record.write(act)
