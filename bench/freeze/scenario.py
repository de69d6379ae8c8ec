"""The scenarios, the same for every system: which worker is started, frozen, thawed and killed, and
when."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from environments import Environment
from freeze.observations import Coordinated, Frozen, Reported, State
from freeze.peers import Peer
from freeze.workers import Worker

START_SECONDS = 40.0
END_SECONDS = 10.0
AFTER_SECONDS = 3.0
COORDINATOR_SECONDS = 60.0
_ASK_SECONDS = 60.0
_ERROR = re.compile(r"^(?!\s|Traceback)\S*.*(Error|Exception|ERROR|error:|WARN|Lost|lost|stalled|stale)")

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Failed(Exception):
    """A scene could not be played; the message says where and what was said."""


class Scenario:
    """One store, one folder, one job, and the workers of one scene. None of them outlives it."""

    def __init__(self, peer: Peer, environment: Environment, url: str, folder: Path) -> None:
        self.peer = peer
        self.folder = folder
        self.workers: dict[str, Worker] = {}
        self._command = environment.command
        self._variables = {
            **environment.variables,
            "FREEZE_URL": url,
            "FREEZE_FOLDER": str(folder),
            "FREEZE_VARIANT": peer.variant,
        }

    def ask(self, *words: str) -> str | dict[str, str | bool | None] | None:
        """Run a verb of the peer's program; its last line is the answer."""
        try:
            said = subprocess.run(
                [*self._command, *words],
                cwd=self.folder,
                env={**self._variables, "FREEZE_WORKER": "frame"},
                capture_output=True,
                text=True,
                timeout=_ASK_SECONDS,
                check=True,
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"`{words[0]}` did not answer in {_ASK_SECONDS:.0f} s") from error
        except subprocess.CalledProcessError as error:
            raise Failed(f"`{words[0]}` failed: {error.stderr[-1500:]}") from error
        answer: str | dict[str, str | bool | None] | None = json.loads(said.stdout.splitlines()[-1])
        return answer

    def state(self, job_id: str) -> State:
        answer = self.ask("state", job_id)
        assert isinstance(answer, dict)
        result = answer["result"]
        return State(str(answer["name"]), bool(answer["over"]), None if result is None else str(result))

    def start(self, name: str, queue: str = "default") -> Worker:
        log = self.folder / f"{name}.log"
        variables = {**self._variables, "FREEZE_QUEUE": queue}
        worker = Worker(name, [*self._command, "work"], variables, log)
        self.workers[name] = worker
        return worker

    def let_go(self, name: str) -> None:
        (self.folder / f"go-{name}").touch()

    def told(self) -> list[Reported]:
        log = self.folder / "told.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        return [Reported(**json.loads(line)) for line in lines]

    def heard(self, name: str, *what: str) -> bool:
        return any(t.worker == name and t.what in what for t in self.told())

    def began(self, name: str, seconds: float, *, must: bool = True) -> bool:
        done = wait_until(lambda: self.heard(name, "begin"), seconds)
        if must and not done:
            log = (self.folder / f"{name}.log").read_text(errors="replace")
            raise Failed(f"{name} did not begin in {seconds:.0f} s: {log[-1500:]}")
        return done

    def rescued(self) -> bool:
        """Whether w-2 has begun the very job that w-1 had."""
        begun = {name: {t.job_id for t in self.told() if t.worker == name} for name in ("w-1", "w-2")}
        return bool(begun["w-1"] & begun["w-2"])

    def errors(self) -> dict[str, str]:
        """The last line of each worker's log that tells of trouble."""
        found: dict[str, str] = {}
        for name in self.workers:
            lines = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
            plain = [_COLOUR.sub("", line).strip(" :") for line in lines if _ERROR.search(line)]
            if bad := [line for line in plain if " " in line]:
                found[name] = bad[-1][:200]
        return found


@contextmanager
def opened_scenario(peer: Peer, environment: Environment, url: str, folder: Path) -> Iterator[Scenario]:
    scenario = Scenario(peer, environment, url, folder)
    try:
        scenario.ask("setup")
        yield scenario
    finally:
        for worker in scenario.workers.values():
            worker.kill()


def freeze(scenario: Scenario) -> Frozen:
    """w-1 freezes in the middle; w-2 takes over; w-1 comes back and finishes first.

    Where a coordinator is elected, w-0 has that part, alive, and without interest in the job."""
    if scenario.peer.elected == "apart":
        scenario.start("w-0", queue="other")
        time.sleep(2 * AFTER_SECONDS)
    elif scenario.peer.elected == "busy":
        scenario.start("w-0")
        scenario.ask("enqueue")
        scenario.began("w-0", START_SECONDS)
        time.sleep(AFTER_SECONDS)
    first = scenario.start("w-1")
    job_id = str(scenario.ask("enqueue"))
    scenario.began("w-1", START_SECONDS)
    time.sleep(scenario.peer.settle_seconds)
    first.freeze()
    frozen_at = time.monotonic()
    if scenario.peer.time_passes:
        scenario.ask("pass_time")
    scenario.start("w-2")
    if not wait_until(scenario.rescued, scenario.peer.rescue_seconds):
        return Frozen(None, told=scenario.told(), errors=scenario.errors())
    facts = Frozen(time.monotonic() - frozen_at)
    scenario.let_go("w-1")
    first.thaw()
    wait_until(lambda: scenario.heard("w-1", "end", "stopped"), END_SECONDS)
    time.sleep(AFTER_SECONDS)
    facts = replace(facts, thawed=scenario.state(job_id))
    scenario.let_go("w-2")
    wait_until(lambda: scenario.heard("w-2", "end", "stopped"), END_SECONDS)
    time.sleep(AFTER_SECONDS)
    return replace(facts, final=scenario.state(job_id), told=scenario.told(), errors=scenario.errors())


def coordinate(scenario: Scenario) -> Coordinated:
    """w-0 coordinates, proves that it works, and freezes for good; w-1 is killed in the middle of a job."""
    coordinator = scenario.start("w-0")
    scenario.let_go("w-0")
    scenario.ask("enqueue")
    scenario.began("w-0", START_SECONDS)
    wait_until(lambda: scenario.heard("w-0", "end"), END_SECONDS)
    time.sleep(max(AFTER_SECONDS, scenario.peer.settle_seconds))
    coordinator.freeze()
    first = scenario.start("w-1")
    scenario.ask("enqueue")
    if not scenario.began("w-1", START_SECONDS, must=False):
        return Coordinated(began=False, rescued_after=None)
    time.sleep(scenario.peer.settle_seconds)
    first.kill()
    killed_at = time.monotonic()
    scenario.start("w-2")
    rescued = scenario.began("w-2", COORDINATOR_SECONDS, must=False)
    return Coordinated(True, time.monotonic() - killed_at if rescued else None)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()
