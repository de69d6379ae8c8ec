"""What else happens to a worker that holds a job: real workers, each of three processes, one scene each."""

import time
from collections.abc import Callable

from msgspec import Struct

from holdfast.core.catalogue import EventType
from holdfast.core.errors import HoldfastError
from verify.wire_proxy import WireProxy
from verify.zombie_app import GUARD
from verify.zombie_floor import LEASE_SECONDS, Floor, Spoiled, gone, opened
from verify.zombie_ground import Ground
from verify.zombie_record import DONE, FENCED, WRITE, Act
from verify.zombie_resources import CHECKED, UNCHECKED

HOUR = 3600
CLOCK_LEASE_SECONDS, MOVED_SECONDS = 6, 2.5
"""In this time any worker looks for leases that have ended, and renews its own."""
RESCUE_SECONDS_MAX = 15.0
"""A lease is three seconds; the rest is for a machine that has other things to do."""
JOB, OTHER = "job-1", "job-2"


class Scene(Struct, frozen=True):
    """What was done, what was seen, and (if it is not as it must be) what is wrong."""

    name: str
    store: str
    seen: str
    trouble: str = ""


def frozen(floor: Floor) -> str:
    """Worker, warden and runner stand still; the runner wakes up first, so that its code writes late."""
    runner, tree = _at_work(floor)
    floor.stop(*tree)
    floor.written(JOB, 2)
    floor.thaw(runner)
    floor.until(lambda: bool(_refusals(floor, WRITE)), "the ledger refuses the thawed code")
    floor.until(lambda: bool(_refusals(floor, GUARD)), "ctx.guard() tells the thawed code")
    floor.until(lambda: floor.back(UNCHECKED) > 0, "the ledger that checks nothing takes its write")
    floor.thaw(*tree)
    floor.until(lambda: "no longer ours" in floor.said("w-1"), "the thawed worker lets go")
    floor.succeeded(JOB)
    refused, guards = len(_refusals(floor, WRITE)), len(_refusals(floor, GUARD))
    _must_keep_order(floor)
    return (
        f"its code wrote late: {refused} refused, and {floor.back(UNCHECKED)} accepted without the"
        f" check; ctx.guard() raised Fenced ({guards} times)"
    )


def killed(floor: Floor) -> str:
    """The worker is killed; its warden ends the code before anybody else gets the job."""
    runner, tree = _at_work(floor)
    floor.kill(tree[0])
    floor.until(lambda: gone(runner), "the code of the killed worker is gone")
    floor.written(JOB, 2)
    job = floor.succeeded(JOB)
    _must(job.crashes == 1, f"{job.crashes} crashes were counted")
    _must(floor.back(UNCHECKED) == 0, "somebody wrote for the dead")
    _must_keep_order(floor)
    return "nobody was left to write late; the job went on as attempt 2"


def cut_off(floor: Floor) -> str:
    """The worker hears nothing of its store for longer than the lease, then everything at once."""
    store = floor.ground.store
    port = int(store.rpartition(":")[2].partition("/")[0])
    with WireProxy(port) as proxy:
        runner, _ = _at_work(floor, store=proxy.through(store))
        proxy.freeze()
        floor.written(JOB, 2)
        proxy.thaw()
        floor.until(lambda: "no longer ours" in floor.said("w-1"), "the worker lets go")
        floor.until(lambda: gone(runner) or not _writes_on(floor), "its code has stopped")
        floor.succeeded(JOB)
        late = len(floor.writes(JOB, 1, floor.granted_at(JOB, 2), UNCHECKED))
        _must_keep_order(floor)
        return (
            f"the worker let go by itself before its lease ended; its code wrote {late} times late"
        )


def clock_moved(floor: Floor) -> str:
    """An hour forth and an hour back under one of two workers that both hold a job."""
    floor.start("w-1", clock=True)
    floor.submit(JOB, CLOCK_LEASE_SECONDS)
    floor.written(JOB, 1)
    floor.start("w-2")
    floor.submit(OTHER, CLOCK_LEASE_SECONDS)
    floor.written(OTHER, 1)
    for hours in (1, -1):
        _move(floor, hours)
        since = time.monotonic()
        floor.written(JOB, 1, since + MOVED_SECONDS)
        floor.written(OTHER, 1, since + MOVED_SECONDS)
    floor.finish()
    jobs = [floor.succeeded(JOB), floor.succeeded(OTHER)]
    _must(all(job.attempt == 1 for job in jobs), "a lease ended early")
    _must(all(act.answer == DONE for act in floor.acts), "an owner was refused")
    stale = [e for j in (JOB, OTHER) for e in floor.events(j, EventType.STALE_WRITE_REJECTED)]
    _must(not stale, "an owner was taken for a stale one")
    return f"{len(floor.acts)} acts, none refused; both jobs ended once, on their first attempt"


def coordinator_frozen(floor: Floor) -> str:
    """The worker that closed the last lease is frozen for good; the next lease is closed by another."""
    floor.start("w-1", "--queue", "elsewhere")
    floor.start("w-2")
    floor.submit(JOB)
    floor.written(JOB, 1)
    floor.kill(floor.worker("w-2"))
    # Nobody else is there, and its queue is another one: whoever closes this lease, it is w-1.
    floor.until(lambda: bool(floor.events(JOB, EventType.REQUEUED)), "w-1 closes the lease of w-2")
    floor.stop(*floor.tree("w-1"))
    (floor.ground.folder / "stay").touch()
    floor.start("w-3")
    floor.written(JOB, 2)
    floor.start("w-4")
    floor.kill(floor.worker("w-3"))
    killed_at = time.monotonic()
    floor.written(JOB, 3)
    seconds = floor.granted_at(JOB, 3) - killed_at
    (floor.ground.folder / "stay").unlink()
    floor.succeeded(JOB)
    _must(seconds < RESCUE_SECONDS_MAX, f"rescue took {seconds:.1f} s")
    _must_keep_order(floor)
    return (
        f"w-1 closed the last lease and was frozen for good; the job of a worker killed after that ran"
        f" elsewhere {seconds:.1f} s later (lease: {LEASE_SECONDS} s)"
    )


SCENES: dict[str, Callable[[Floor], str]] = {
    "a whole worker is frozen, its code thawed first": frozen,
    "a worker is killed": killed,
    "a worker is cut off from its store": cut_off,
    "the clock of a worker is moved by an hour, forth and back": clock_moved,
    "the worker that sweeps is frozen for good": coordinator_frozen,
}
NETWORKED = frozenset({cut_off})
"""What an SQLite file has no wires for."""


def scenes_of(kind: str) -> list[str]:
    return [name for name, play in SCENES.items() if kind == "postgres" or play not in NETWORKED]


def play(name: str, ground: Ground) -> Scene:
    with opened(ground) as floor:
        try:
            return Scene(name, ground.name, SCENES[name](floor))
        except (Spoiled, HoldfastError) as error:
            return Scene(name, ground.name, "", f"{error}\n{floor.told(JOB)}")


def _at_work(floor: Floor, store: str | None = None) -> tuple[int, list[int]]:
    """w-1 holds the job and w-2 stands by: the process of the job's code, and all of w-1."""
    floor.start("w-1", store=store)
    floor.submit(JOB)
    runner = int(floor.written(JOB, 1).who)
    floor.start("w-2")
    return runner, floor.tree("w-1")


def _refusals(floor: Floor, verb: str) -> list[Act]:
    """What the first owner of the job was refused."""
    floor.read()
    return [a for a in floor.acts if (a.verb, a.token, a.answer) == (verb, 1, FENCED)]


def _writes_on(floor: Floor) -> bool:
    since = time.monotonic()
    time.sleep(0.3)
    return bool(floor.writes(JOB, 1, since))


def _move(floor: Floor, hours: int) -> None:
    floor.clock.set(hours * HOUR)
    floor.until(lambda: _shifts(floor)[-1:] == [hours], "the clock has moved")


def _shifts(floor: Floor) -> list[int]:
    """By how many hours the clock was off each time the code of the first job looked at it."""
    floor.read()
    real = time.time() - time.monotonic()
    looks = [act for act in floor.acts if (act.verb, act.job) == (GUARD, JOB)]
    return [round((act.number - real - act.ended) / HOUR) for act in looks]


def _must(true: bool, otherwise: str) -> None:
    if not true:
        raise Spoiled(otherwise)


def _must_keep_order(floor: Floor) -> None:
    _must(floor.back(CHECKED) == 0, "the ledger that checks took a stale write")
