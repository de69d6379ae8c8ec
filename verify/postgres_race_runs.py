"""Many processes at once on one PostgreSQL store: racers for one job, and workers that are killed."""

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from msgspec import Struct

from holdfast.core.spec import Spec
from holdfast.core.state import ENDED
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_registry
from holdfast.testing.job_timeline import JobTimeline, Violation
from verify import kills_harness
from verify.environment import say
from verify.kills_harness import ROOT, ForkedProcesses, acknowledged, losses, snapshot
from verify.kills_runs import Case, Load
from verify.postgres_fault_runs import ENVIRONMENT, child, hear, kept, make, tell
from verify.postgres_server import PostgresServer
from verify.wire_proxy import WireProxy

FORK_SERVER = ROOT / "tests" / "stores" / "postgres" / "fork_server.py"
SCENES = ("life", "upkeep")
STALL_SECONDS = 2.5
PATIENCE_SECONDS = 30.0


class Races(Struct):
    """How many rounds had how many winners, and what the commits of the racers came to."""

    winners: list[int]
    tokens: set[int]
    commits: int = 0
    retries: int = 0

    @property
    def retried(self) -> float:
        return self.retries / max(1, self.commits + self.retries)


def races(url: str, verb: str, *, processes: int, rounds: int) -> Races:
    """Let all racers loose on one job, round after round."""
    found = Races([], set())
    children = [child("race", url, f"p{n}") for n in range(processes)]
    with kept(children):
        for one in children:
            hear(one)
        loop = asyncio.new_event_loop()
        registry = loop.run_until_complete(open_registry(url))
        for n in range(rounds):
            request = JobRequest(spec=Spec(), job_id=f"{verb}-{n}")
            loop.run_until_complete(registry.enqueue(request, actor="user:load"))
            for one in children:
                tell(one, f"{verb} {verb}-{n}")
            won = [int(token) for one in children for token in hear(one).split()]
            found.winners.append(len(won))
            found.tokens.update(won)
            if n % 100 == 99:
                say(f"{n + 1} of {rounds} rounds of {verb}")
        loop.run_until_complete(registry.close())
        loop.close()
        for one in children:
            tell(one, "")
            commits, retries = map(int, hear(one).split())
            found.commits += commits
            found.retries += retries
    return found


class PostgresProcesses(ForkedProcesses):
    """Processes whose folders are schemas of one server."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._process = subprocess.Popen(
            [sys.executable, str(FORK_SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )

    def url(self, folder: Path) -> str:
        return self.server.url(schema=re.sub("[^a-z0-9]", "_", f"at_{folder.name}")[:48])

    def start(self, role: str, folder: Path, **more: object) -> int:
        return super().start(role, folder, **{"store": self.url(folder), **more})

    @contextmanager
    def at_home(self) -> Iterator["PostgresProcesses"]:
        """Return a context in which the harness of the kill tests finds its stores on the server."""
        with self, patch.object(kills_harness, "url", self.url):
            yield self


def rehearse(processes: PostgresProcesses, root: Path) -> dict[str, Counter[str]]:
    """Play every scene undisturbed: how often each passes which failpoint of ours."""
    passed = {}
    for scene in SCENES:
        folder = root / f"postgres-{scene}"
        folder.mkdir()
        assert processes.ended(processes.start(scene, folder)) == 0, f"{scene} does not play"
        counted = Counter(json.loads((folder / "passed-p").read_text("ascii")))
        passed[scene] = Counter({n: m for n, m in counted.items() if n.startswith("postgres.")})
    return passed


def deaths(passed: dict[str, Counter[str]], count: int = 0) -> list[Case]:
    """Each failpoint once, in the first scene that passes it; and `count` more by chance."""
    chance, cases, known = random.Random(28), set(), set[str]()
    for scene, counts in passed.items():
        for name in sorted(set(counts) - known):
            cases.add(Case(scene, name, chance.randint(1, max(1, counts[name] // 2))))
            known.add(name)
    for _ in range(20 * count):
        if len(cases) >= len(known) + count:
            break
        scene = chance.choice(list(passed))
        name = chance.choice(sorted(passed[scene]))
        # How often a scene passes it depends on the clock: the first half is passed every time.
        cases.add(Case(scene, name, chance.randint(1, max(1, passed[scene][name] // 2))))
    return sorted(cases, key=lambda case: case.name)


class SlowLoad(Load):
    """Kills that leave its processes time to connect and do something in between."""

    def _strike(self, most: int) -> None:
        time.sleep(self._chance.uniform(0.05, 0.45))
        super()._strike(most)


class ChaosResult(Struct, kw_only=True):
    """What became of many jobs while their workers were killed, stopped and cut off."""

    jobs: int
    kills: int = 0
    stalls: int = 0
    partitions: int = 0
    lost: list[str]
    wrong: list[str]
    crashes: int = 0
    commits: int = 0
    retries: int = 0
    seconds: float = 0.0


def chaos(processes: PostgresProcesses, folder: Path, *, jobs: int, faults: int) -> ChaosResult:
    """32 workers in 8 processes do all the jobs while they are killed, stopped and cut off: scenario 37."""
    folder.mkdir()
    url = processes.url(folder)
    asyncio.run(make(url, jobs))
    started = time.monotonic()
    done = ChaosResult(jobs=jobs, lost=[], wrong=[])
    with WireProxy(processes.server.port) as proxy:
        urls = [url] * 6 + [proxy.through(url)] * 2
        workers = {_start_worker(processes, folder, n, one): one for n, one in enumerate(urls)}
        _all_at_once(processes, folder, workers, done)
        chance = random.Random(jobs)
        for n in range(2 * len(urls), 2 * len(urls) + faults):
            time.sleep(chance.uniform(0.1, 0.4))
            _inject_fault(processes, folder, workers, proxy, done, number=n, chance=chance)
        (folder / "stop").touch()
        for pid in workers:
            status = processes.ended(pid, 120.0)
            if status:
                done.wrong.append(f"a worker process ended with {status}")
    done.seconds = time.monotonic() - started
    _judge(folder, done)
    return done


def _start_worker(processes: PostgresProcesses, folder: Path, number: int, url: str) -> int:
    return processes.start("crew", folder, name=f"crew-{number}", store=url)


def _all_at_once(
    processes: PostgresProcesses, folder: Path, workers: dict[int, str], done: ChaosResult
) -> None:
    """Kill every process as soon as it works, and start as many again."""
    until = time.monotonic() + PATIENCE_SECONDS
    while len(acknowledged(folder)) < len(workers) and time.monotonic() < until:
        time.sleep(0.01)
    done.kills += processes.kill(*workers)
    urls = list(workers.values())
    workers.clear()
    workers.update({_start_worker(processes, folder, len(urls) + n, url): url for n, url in enumerate(urls)})


def _inject_fault(
    processes: PostgresProcesses,
    folder: Path,
    workers: dict[int, str],
    proxy: WireProxy,
    done: ChaosResult,
    *,
    number: int,
    chance: random.Random,
) -> None:
    pid = chance.choice(list(workers))
    draw = chance.random()
    if draw < 0.7:
        url = workers.pop(pid)
        done.kills += processes.kill(pid)
        workers[_start_worker(processes, folder, number, url)] = url
    elif draw < 0.85:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STALL_SECONDS)
        os.kill(pid, signal.SIGCONT)
        done.stalls += 1
    else:
        proxy.freeze()
        time.sleep(STALL_SECONDS)
        proxy.thaw()
        done.partitions += 1


def _judge(folder: Path, done: ChaosResult) -> None:
    found, lines = snapshot(folder), acknowledged(folder)
    done.lost += losses(found, [line for line in lines if line[0] != "commits"])
    for line in lines:
        if line[0] == "commits":
            done.commits += int(line[1])
            done.retries += int(line[2])
    blamed: list[Violation] = []
    for job in found.jobs.values():
        JobTimeline(job.job_id, found.events[job.job_id], blamed)
        done.crashes += job.crashes
        if job.state not in ENDED:
            done.wrong.append(f"{job.job_id} is {job.state}")
    done.wrong += [f"{v.job_id}: {v.invariant}: {v.details}" for v in blamed]
    if not found.verification.equal or len(found.jobs) != done.jobs:
        done.wrong.append(f"log and state differ: {found.verification}")
