"""Clocks that are set, that drift, and that come back as others: leases and delays last what was promised.

`python -m verify.clocks` sets the clock of a PostgreSQL server, and of processes on a SQLite file, while
jobs are held, left and delayed, and prints one section; `--short` does less of it.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import msgspec
from msgspec import Struct

from holdfast.core.errors import Fenced
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import Grant, JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_local
from holdfast.stores.postgres import server_time
from holdfast.system import SystemClock
from verify.environment import say
from verify.faked_clock import FakedClock, SettableServer

ACTOR = "user:ana"
LEASE_SECONDS = 7.0
"""Longer than SQLite takes to believe a wall clock that was set."""
EARLY_SECONDS_MAX = 0.6
"""The drift that is let pass, and half of the longest trip by which two clocks are compared."""
LATE_SECONDS_MAX = 10.0
DRIFT = 0.008
PAUSE_SECONDS = 0.1
ROUND_SECONDS_MAX = 90

Restart = Callable[[float], Awaitable[None]]
"""Stop the server, set its clock by so many seconds, and start it."""


class Case(Struct, frozen=True):
    """What happens to a clock."""

    name: str
    seconds: float = 0.0
    drifts: bool = False
    restarts: bool = False

    @property
    def lease_seconds(self) -> float:
        """A server that starts again is away for a while."""
        return 2 * LEASE_SECONDS if self.restarts else LEASE_SECONDS


CASES = (
    Case("an hour ahead", 3600),
    Case("an hour back", -3600),
    Case("ten minutes ahead", 600),
    Case("ten minutes back", -600),
    Case("fast by 0.8 %", drifts=True),
    Case("opened again, two hours ahead", 7200, restarts=True),
)
SHORT_CASES = (CASES[0], CASES[5])


class Round(Struct, frozen=True, kw_only=True):
    """What came of one case: how long a lease that nobody renewed and a delay lasted, how often a living
    owner was refused, which jobs could be claimed right after, and whether all ended well."""

    store: str
    case: Case
    lease_lasted: float
    delay_lasted: float
    refused: int
    ready: list[str]
    whole: bool

    @property
    def wrong(self) -> list[str]:
        promised, found = self.case.lease_seconds, []
        for name, lasted in (("lease", self.lease_lasted), ("delay", self.delay_lasted)):
            if not promised - EARLY_SECONDS_MAX <= lasted <= promised + LATE_SECONDS_MAX:
                found.append(f"a {name} of {promised:.0f} s lasted {lasted:.1f} s")
        if self.refused:
            found.append(f"a living owner was refused {self.refused} times")
        if self.ready != ["ready"]:
            found.append(f"{self.ready} could be claimed, not the one that was ready")
        if not self.whole:
            found.append("the job of the living owner did not succeed, or a record differs from its log")
        return [f"{self.store}, {self.case.name}: {words}" for words in found]


class Registries:
    """An owner's process, and another's, on one store."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self.owner: LocalRegistry = await open_local(self._url)
        self.other: LocalRegistry = await open_local(self._url)
        for registry in (self.owner, self.other):
            await registry.now()

    async def close(self) -> None:
        await self.owner.close()
        await self.other.close()


class Stage:
    """One store whose clock can be set."""

    def __init__(self, store: str, url: str, clock: FakedClock, restart: Restart | None) -> None:
        self._store = store
        self._clock = clock
        self._restart = restart
        self._open = Registries(url)
        self._refused = 0

    async def play(self, case: Case) -> Round:
        self._clock.set(0)
        await self._open.open()
        try:
            return await asyncio.wait_for(self._play(case), ROUND_SECONDS_MAX)
        finally:
            await self._open.close()
            self._clock.set(0)

    async def _play(self, case: Case) -> Round:
        length = timedelta(seconds=case.lease_seconds)
        owner = self._open.owner
        for job_id in ("held", "left", "ready"):
            await owner.enqueue(JobRequest(spec=Spec(), job_id=job_id), actor=ACTOR)
        held = await owner.acquire("held", owner="w-1", lease=length)
        began = time.monotonic()
        await owner.acquire("left", owner="w-1", lease=length)
        delayed = JobRequest(spec=Spec(queue="later", delay=length), job_id="delayed")
        await owner.enqueue(delayed, actor=ACTOR)
        await self._strike(case)
        claimed = await self._open.other.claim(["default"], owner="w-2", limit=5)
        lasted = await self._watch(case, held, began)
        with suppress(Fenced):
            await self._open.owner.complete(held, Success())
        ended = await self._open.other.status("held")
        return Round(
            store=self._store,
            case=case,
            lease_lasted=lasted["lease"],
            delay_lasted=lasted["delay"],
            refused=self._refused,
            ready=[grant.job_id for grant in claimed],
            whole=ended.state is State.SUCCEEDED and (await self._open.other.verify()).equal,
        )

    async def _strike(self, case: Case) -> None:
        if case.restarts and self._restart is not None:
            await self._restart(case.seconds)
        elif case.restarts:
            await self._open.close()
            self._clock.set(case.seconds)
            await self._open.open()
        else:
            self._clock.set(case.seconds)

    async def _watch(self, case: Case, held: Grant, began: float) -> dict[str, float]:
        """How long the lease of the silent owner and the delay last, by seconds that nobody sets."""
        lasted: dict[str, float] = {}
        while len(lasted) < 2:
            passed = time.monotonic() - began
            if case.drifts:
                self._clock.set(DRIFT * passed)
            try:
                await self._open.owner.heartbeat(held)
            except Fenced:
                self._refused += 1
            other = self._open.other
            await other.expire()
            if (await other.status("left")).state is not State.ASSIGNED:
                lasted.setdefault("lease", time.monotonic() - began)
            if await other.claim(["later"], owner="w-2"):
                lasted.setdefault("delay", time.monotonic() - began)
            if passed > case.lease_seconds + 2 * LATE_SECONDS_MAX:
                return {"lease": passed, "delay": passed, **lasted}
            await SystemClock().sleep(PAUSE_SECONDS)
        return lasted


def on_postgres(cases: tuple[Case, ...], schema: str = "clocks") -> list[Round]:
    """Every case on a server whose clock is set."""
    server = SettableServer()
    with server:

        async def restart(seconds: float) -> None:
            await asyncio.to_thread(server.stop)
            server.clock.set(seconds)
            await asyncio.to_thread(server.start)

        rounds = []
        for n, case in enumerate(cases):
            say(f"PostgreSQL: {case.name}")
            stage = Stage("PostgreSQL", server.url(schema=f"{schema}_{n}"), server.clock, restart)
            rounds.append(asyncio.run(stage.play(case)))
        return rounds


def control() -> list[str]:
    """What is found wrong where a step is not noticed."""
    with patch.object(server_time, "_fits", lambda anchor, reading: True):
        return [words for found in on_postgres(CASES[:1], "control") for words in found.wrong]


def on_sqlite(cases: tuple[Case, ...], root: Path) -> list[Round]:
    """Every case in a process of its own, whose wall clock is set."""
    rounds = []
    for n, case in enumerate(cases):
        say(f"SQLite: {case.name}")
        folder = root / str(n)
        folder.mkdir()
        clock = FakedClock(folder / "clock")
        told = msgspec.json.encode(case).decode()
        ran = subprocess.run(
            [sys.executable, "-m", "verify.clocks", "--round", str(folder), told],
            env={"PATH": "/usr/bin:/bin", **clock.environment()},
            stdout=subprocess.PIPE,
            timeout=2 * ROUND_SECONDS_MAX,
            check=True,
        )
        rounds.append(msgspec.json.decode(ran.stdout, type=Round))
    return rounds


def play_round(folder: Path, case: Case) -> None:
    """One case on a file, in this process, whose clock is read from the folder."""
    stage = Stage("SQLite", f"sqlite:///{folder}/jobs.db", FakedClock(folder / "clock"), None)
    sys.stdout.write(msgspec.json.encode(asyncio.run(stage.play(case))).decode())


def section(rounds: list[Round], blind: list[str], seconds: float, *, short: bool) -> tuple[str, bool]:
    """The report, and whether its claim holds."""
    wrong = [words for one in rounds for words in one.wrong]
    if not blind:
        wrong.append("the control, a process that does not notice a step, was not found out")
    rows = "\n".join(
        f"| {one.store} | {one.case.name} | {one.case.lease_seconds:.0f} | {one.lease_lasted:.1f}"
        f" | {one.delay_lasted:.1f} | {one.refused} |"
        for one in rounds
    )
    return (
        f"""## Clocks that are set

The clock of a PostgreSQL server, and that of processes on a SQLite file, is set while a job is held by an
owner that renews, another by one that is silent, and a third is delayed. What was promised lasts as long, by
seconds that nobody sets; what was ready can be claimed at once.

| store | its clock | promised, s | lease of the silent owner, s | delay, s | renewals refused |
|---|---|---|---|---|---|
{rows}

Control, processes that do not notice a step of an hour: {len(blind)} faults found (none would mean that the
checker is blind).

{"".join(f"- **wrong**: {line}{chr(10)}" for line in wrong[:20])}\
`python -m verify.clocks{" --short" if short else ""}`, {seconds:.0f} s: \
**{"holds" if not wrong else "DOES NOT HOLD"}**
""",
        not wrong,
    )


def main() -> int:
    if sys.argv[1:2] == ["--round"]:
        play_round(Path(sys.argv[2]), msgspec.json.decode(sys.argv[3], type=Case))
        return 0
    short = "--short" in sys.argv[1:]
    cases, started = SHORT_CASES if short else CASES, time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-clocks-") as root:
            rounds = on_postgres(cases) + on_sqlite(cases, Path(root))
        page, holds = section(rounds, control(), time.monotonic() - started, short=short)
    except Exception as error:  # whatever it is, it is no pass
        traceback.print_exc()
        page, holds = f"## Clocks that are set\n\n**It did not come to its end: {error!r}**", False
    print(page)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
