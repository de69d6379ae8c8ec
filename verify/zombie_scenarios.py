"""The scenarios of the zombie test: what else happens to a real worker that holds a job."""

import time
from collections.abc import Callable

from msgspec import Struct

from holdfast.core.catalogue import EventType
from holdfast.core.errors import HoldfastError
from verify.wire_proxy import WireProxy
from verify.zombie_app import GUARD
from verify.zombie_record import DONE, FENCED, WRITE, Act
from verify.zombie_resources import CHECKED, UNCHECKED
from verify.zombie_setup import ZombieSetup
from verify.zombie_workers import LEASE_SECONDS, ScenarioFailed, WorkerFleet, gone, opened

HOUR = 3600
CLOCK_LEASE_SECONDS, MOVED_SECONDS = 6, 2.5
"""In this time any worker looks for leases that have ended, and renews its own."""
RESCUE_SECONDS_MAX = 15.0
"""A lease is three seconds; the rest is for a machine that has other things to do."""
JOB, OTHER = "job-1", "job-2"


class Scenario(Struct, frozen=True):
    """What was done, what was seen, and (if it is not as it must be) what is wrong."""

    name: str
    store: str
    seen: str
    trouble: str = ""


def frozen(fleet: WorkerFleet) -> str:
    """Worker, warden and runner stand still; the runner wakes up first, so that its code writes late."""
    runner, tree = _at_work(fleet)
    fleet.stop(*tree)
    fleet.written(JOB, 2)
    fleet.thaw(runner)
    fleet.until(lambda: bool(_refusals(fleet, WRITE)), "the ledger refuses the thawed code")
    fleet.until(lambda: bool(_refusals(fleet, GUARD)), "ctx.guard() tells the thawed code")
    fleet.until(lambda: fleet.back(UNCHECKED) > 0, "the ledger that checks nothing takes its write")
    fleet.thaw(*tree)
    fleet.until(lambda: "no longer ours" in fleet.said("w-1"), "the thawed worker lets go")
    fleet.succeeded(JOB)
    refused, guards = len(_refusals(fleet, WRITE)), len(_refusals(fleet, GUARD))
    _must_keep_order(fleet)
    return (
        f"its code wrote late: {refused} refused, and {fleet.back(UNCHECKED)} accepted without the"
        f" check; ctx.guard() raised Fenced ({guards} times)"
    )


def killed(fleet: WorkerFleet) -> str:
    """The worker is killed; its warden ends the code before anybody else gets the job."""
    runner, tree = _at_work(fleet)
    fleet.kill(tree[0])
    fleet.until(lambda: gone(runner), "the code of the killed worker is gone")
    fleet.written(JOB, 2)
    job = fleet.succeeded(JOB)
    _must(job.crashes == 1, f"{job.crashes} crashes were counted")
    _must(fleet.back(UNCHECKED) == 0, "somebody wrote for the dead")
    _must_keep_order(fleet)
    return "nobody was left to write late; the job went on as attempt 2"


def cut_off(fleet: WorkerFleet) -> str:
    """The worker hears nothing of its store for longer than the lease, then everything at once."""
    store = fleet.setup.store
    port = int(store.rpartition(":")[2].partition("/")[0])
    with WireProxy(port) as proxy:
        runner, _ = _at_work(fleet, store=proxy.through(store))
        proxy.freeze()
        fleet.written(JOB, 2)
        proxy.thaw()
        fleet.until(lambda: "no longer ours" in fleet.said("w-1"), "the worker lets go")
        fleet.until(lambda: gone(runner) or not _writes_on(fleet), "its code has stopped")
        fleet.succeeded(JOB)
        late = len(fleet.writes(JOB, 1, fleet.granted_at(JOB, 2), UNCHECKED))
        _must_keep_order(fleet)
        return f"the worker let go by itself before its lease ended; its code wrote {late} times late"


def clock_moved(fleet: WorkerFleet) -> str:
    """An hour forth and an hour back under one of two workers that both hold a job."""
    fleet.start("w-1", clock=True)
    fleet.submit(JOB, CLOCK_LEASE_SECONDS)
    fleet.written(JOB, 1)
    fleet.start("w-2")
    fleet.submit(OTHER, CLOCK_LEASE_SECONDS)
    fleet.written(OTHER, 1)
    for hours in (1, -1):
        _move(fleet, hours)
        since = time.monotonic()
        fleet.written(JOB, 1, since + MOVED_SECONDS)
        fleet.written(OTHER, 1, since + MOVED_SECONDS)
    fleet.finish()
    jobs = [fleet.succeeded(JOB), fleet.succeeded(OTHER)]
    _must(all(job.attempt == 1 for job in jobs), "a lease ended early")
    _must(all(act.answer == DONE for act in fleet.acts), "an owner was refused")
    stale = [e for j in (JOB, OTHER) for e in fleet.events(j, EventType.STALE_WRITE_REJECTED)]
    _must(not stale, "an owner was taken for a stale one")
    return f"{len(fleet.acts)} acts, none refused; both jobs ended once, on their first attempt"


def coordinator_frozen(fleet: WorkerFleet) -> str:
    """The worker that closed the last lease is frozen for good; the next lease is closed by another."""
    fleet.start("w-1", "--queue", "elsewhere")
    fleet.start("w-2")
    fleet.submit(JOB)
    fleet.written(JOB, 1)
    fleet.kill(fleet.worker("w-2"))
    # Nobody else is there, and its queue is another one: whoever closes this lease, it is w-1.
    fleet.until(lambda: bool(fleet.events(JOB, EventType.REQUEUED)), "w-1 closes the lease of w-2")
    fleet.stop(*fleet.tree("w-1"))
    (fleet.setup.folder / "stay").touch()
    fleet.start("w-3")
    fleet.written(JOB, 2)
    fleet.start("w-4")
    fleet.kill(fleet.worker("w-3"))
    killed_at = time.monotonic()
    fleet.written(JOB, 3)
    seconds = fleet.granted_at(JOB, 3) - killed_at
    (fleet.setup.folder / "stay").unlink()
    fleet.succeeded(JOB)
    _must(seconds < RESCUE_SECONDS_MAX, f"rescue took {seconds:.1f} s")
    _must_keep_order(fleet)
    return (
        f"w-1 closed the last lease and was frozen for good; the job of a worker killed after that ran"
        f" elsewhere {seconds:.1f} s later (lease: {LEASE_SECONDS} s)"
    )


SCENARIOS: dict[str, Callable[[WorkerFleet], str]] = {
    "a whole worker is frozen, its code thawed first": frozen,
    "a worker is killed": killed,
    "a worker is cut off from its store": cut_off,
    "the clock of a worker is moved by an hour, forth and back": clock_moved,
    "the worker that sweeps is frozen for good": coordinator_frozen,
}
NETWORKED = frozenset({cut_off})
"""What an SQLite file has no wires for."""


def scenarios_of(kind: str) -> list[str]:
    return [name for name, play in SCENARIOS.items() if kind == "postgres" or play not in NETWORKED]


def play(name: str, setup: ZombieSetup) -> Scenario:
    with opened(setup) as fleet:
        try:
            return Scenario(name, setup.name, SCENARIOS[name](fleet))
        except (ScenarioFailed, HoldfastError) as error:
            return Scenario(name, setup.name, "", f"{error}\n{fleet.told(JOB)}")


def _at_work(fleet: WorkerFleet, store: str | None = None) -> tuple[int, list[int]]:
    """w-1 holds the job and w-2 stands by: the process of the job's code, and all of w-1."""
    fleet.start("w-1", store=store)
    fleet.submit(JOB)
    runner = int(fleet.written(JOB, 1).who)
    fleet.start("w-2")
    return runner, fleet.tree("w-1")


def _refusals(fleet: WorkerFleet, verb: str) -> list[Act]:
    """What the first owner of the job was refused."""
    fleet.read()
    return [a for a in fleet.acts if (a.verb, a.token, a.answer) == (verb, 1, FENCED)]


def _writes_on(fleet: WorkerFleet) -> bool:
    since = time.monotonic()
    time.sleep(0.3)
    return bool(fleet.writes(JOB, 1, since))


def _move(fleet: WorkerFleet, hours: int) -> None:
    fleet.clock.set(hours * HOUR)
    fleet.until(lambda: _shifts(fleet)[-1:] == [hours], "the clock has moved")


def _shifts(fleet: WorkerFleet) -> list[int]:
    """By how many hours the clock was off each time the code of the first job looked at it."""
    fleet.read()
    real = time.time() - time.monotonic()
    looks = [act for act in fleet.acts if (act.verb, act.job) == (GUARD, JOB)]
    return [round((act.number - real - act.ended) / HOUR) for act in looks]


def _must(true: bool, otherwise: str) -> None:
    if not true:
        raise ScenarioFailed(otherwise)


def _must_keep_order(fleet: WorkerFleet) -> None:
    _must(fleet.back(CHECKED) == 0, "the ledger that checks took a stale write")
