"""One run of one plan: boot the nodes, let the faults strike, heal everything, and see it end well."""

import gc
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from datetime import datetime, timedelta
from hashlib import blake2b
from random import Random  # noqa: TID251  # seeded: the same chance every time

from msgspec import Struct
from msgspec.structs import replace

from holdfast import failpoint
from holdfast.ports import Request, Store
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas.store import CasStore
from holdfast.testing.fakes import EPOCH
from holdfast.testing.simulation.audit import Audited, Book
from holdfast.testing.simulation.chores import DRIFT_MAX, Chores
from holdfast.testing.simulation.commit import Violation
from holdfast.testing.simulation.crew import hire
from holdfast.testing.simulation.diagnostics import Diagnostics, collected
from holdfast.testing.simulation.downstream import Downstream
from holdfast.testing.simulation.link import Link, Weather
from holdfast.testing.simulation.looking import Looker
from holdfast.testing.simulation.loop import NODE, Node, virtual_loop
from holdfast.testing.simulation.nodes import NodeClock, NodeIds
from holdfast.testing.simulation.people import EXECUTOR, Client, Journal, Owner, spec_of
from holdfast.testing.simulation.plan import (
    HEAL_SECONDS,
    STEP_SECONDS_MAX,
    TROUBLE_SECONDS,
    Plan,
    Strike,
)
from holdfast.testing.simulation.reckoning import reckon
from holdfast.testing.simulation.shelf import Shelf, Shelves, promise_of
from holdfast.testing.simulation.sql_server import SqlServer
from holdfast.testing.simulation.stores import Bucket, Connection, Objects, Server
from holdfast.testing.simulation.verdicts import Verdicts
from holdfast.testing.simulation.witness import Witness

OBJECT_RATES = 0.3
"""A call on documents makes many requests: each is struck less often."""


class Result(Struct, frozen=True, kw_only=True):
    """What came of a run. It counts only when it was hard: see `valid`."""

    plan: Plan
    violation: Violation | None
    trace: str
    lines: tuple[str, ...]
    seconds: float
    commits: int
    answers: int
    expiries: int
    stale: int
    ambiguous: int
    faults: dict[str, int]
    failpoints: dict[str, int]

    @property
    def valid(self) -> bool:
        """Somebody was late, somebody was refused for it, and somebody did not know what happened."""
        return self.expiries > 0 and self.stale > 0 and self.ambiguous > 0


class Simulation:
    """Everything there is in one run."""

    def __init__(self, plan: Plan, diagnostics: Diagnostics | None = None) -> None:
        self.plan = plan
        self.diagnostics = diagnostics or Diagnostics()
        chance = self._chance("weather")
        self.loop = virtual_loop(self._chance("shuffle") if plan.shuffle else None)
        self.witness = Witness(self._chance("witness"), self.loop.time)
        self.book = Book(self.witness, self._store_now)
        self.downstream = Downstream(self.book)
        scale = 1.0 if plan.transactional else OBJECT_RATES
        rates = {fault: rate * scale for fault, rate in plan.rates.items()}
        self.weather = Weather(plan.faults, rates, chance)
        self._world = Node("world")
        self._disk = Node("disk")
        self._here = Context()
        self._here.run(NODE.set, self._world)
        clock = NodeClock(self.loop, self._disk)
        engine = SqlServer if plan.store == "sqlite" else Server
        self.server = engine(clock, NodeIds("disk", self._chance("disk")), self.witness)
        self.bucket = Bucket(self.witness)
        self.nodes: list[Node] = []
        self._links: list[Link] = []
        self._boots: list[int] = []
        self._hearing: dict[str, Connection] = {}
        self.passed: dict[str, int] = {}
        self.journals: defaultdict[str, Journal] = defaultdict(Journal)
        self._submitting: set[int] = set()
        self._shelf = self._set_up_shelf()
        self._requests = self._plan_requests()

    def _chance(self, name: str) -> Random:
        return Random(f"{self.plan.seed}/{name}")

    def _set_up_shelf(self) -> Shelf | None:
        """Where promised outputs are, if anybody looks for them, and somebody who sees it all."""
        if not self.plan.validators:
            return None

        def later(seconds: float, act: Callable[[], None]) -> None:
            self.loop.call_later(seconds, act, context=self._here)

        shelf = Shelf(self._chance("shelf"), self.loop.time, later)
        self.witness.verdict = Verdicts(self.witness, shelf, self.loop.time).see
        return shelf

    def _plan_requests(self) -> list[list[Request]]:
        """What each client has come for. It is told again to the client that replaces a dead one."""
        chance, promising = self._chance("requests"), self._chance("promises")
        requests: list[list[Request]] = [[] for _ in range(self.plan.clients)]
        for n in range(self.plan.jobs):
            named = chance.random() < 0.5
            request = Request(
                spec=spec_of(chance, n, timed=self.plan.timed),
                job_id=f"job-{n}" if named else None,
                request_id=None if named else f"request-{n}",
            )
            if named and chance.random() < 0.2:
                bound = replace(request.spec, executor=EXECUTOR)
                request = replace(request, spec=bound, register=True)
            if self._shelf is not None and promising.random() < 0.6:
                promise = promise_of(promising)
                kept = replace(request.spec, outputs=promise, promised_outputs=promise.count)
                request = replace(request, spec=kept)
            requests[chance.randrange(self.plan.clients)].append(request)
        return requests

    def _store_now(self) -> datetime:
        """The store's time; where every node has its own, one that is before them all."""
        early = 2 * STEP_SECONDS_MAX if self.plan.steps else 0 if self.plan.transactional else 10
        return EPOCH + timedelta(seconds=self.loop.time() - early)

    def busy(self) -> bool:
        return self.loop.time() < TROUBLE_SECONDS

    def run(self) -> None:
        """Trouble first, then healing, then the last questions."""
        self.server.listeners.append(self._wake_all)
        for n in range(self.plan.nodes):
            self.nodes.append(self._world)
            self._links.append(Link(self.loop, self._disk, self.weather))
            self._boots.append(0)
            self._boot(n)
        for strike in self.plan.strikes:
            self.loop.call_at(strike.at, self._strike, strike, context=self._here)
        self.loop.run(TROUBLE_SECONDS, self.failed)
        if self.failed():
            return
        self.loop.call_at(TROUBLE_SECONDS, self._heal, context=self._here)
        self.loop.run(TROUBLE_SECONDS + HEAL_SECONDS, lambda: self.failed() or self._at_rest())
        self._check_rest()
        if not self.failed():
            for node in self.nodes:
                node.alive = False
            asking = self.loop.start(self._world, self._ask())
            until = self.loop.time() + HEAL_SECONDS
            self.loop.run(until, lambda: self.failed() or asking.done())
            self.witness.expect("I17", asking.done(), "the last questions got no answer")
            if asking.done() and (error := asking.exception()):
                self.witness.fail("broken", f"the last questions: {error!r}")

    def failed(self) -> bool:
        """Whether an invariant is broken, or something has broken that nobody would hear of."""
        if unheard := self.loop.broken or self.diagnostics.messages:
            self.witness.fail("broken", unheard[0])
        return self.witness.violation is not None

    def _at_rest(self) -> bool:
        """Whether all is healed, everything that was asked for has been made, and all made has ended."""
        return not (self.weather.bad or self._submitting or self.witness.unended or self.busy())

    def _boot(self, n: int) -> None:
        """Start node `n`, anew when it has died."""
        plan = self.plan
        self._boots[n] += 1
        name = f"{self._role(n)}{n}"
        node = self.nodes[n] = Node(f"{name}.{self._boots[n]}")
        chance = self._chance(node.name)
        if "skew" in plan.faults and self.weather.bad:
            node.offset = self._offset(chance)
        if "drift" in plan.faults:
            node.rate = 1 + chance.uniform(-DRIFT_MAX, DRIFT_MAX)
        clock, ids = NodeClock(self.loop, node), NodeIds(node.name, chance)
        store = self._store(n, node, clock, ids)
        registry = Audited(LocalRegistry(store, ids), self.book, node.name)
        self.witness.note(f"boot {node.name}")
        match name[0]:
            case "w":
                chores = Chores(
                    node,
                    chance,
                    self.witness,
                    self.downstream,
                    one_clock=plan.transactional,
                    shelf=self._shelf,
                )
                worker = hire(name, registry, chores, clock, ids, self._eyes(n, clock))
                self.loop.start(node, worker.run())
            case "o":
                owner = Owner(name, registry, clock, ids, chance, downstream=self.downstream)
                owner.shelf = self._shelf
                self.loop.start(node, owner.run(self.busy))
            case "c":
                client = Client(name, registry, clock, ids, chance)
                client.shelf = self._shelf
                self._submitting.add(n)
                self.loop.start(node, self._submit(client, n))
                self.loop.start(node, client.meddle(self.busy))
                self.loop.start(node, client.follow(self.journals[name], self.busy))
            case _:
                assert self._shelf is not None  # nobody looks where there is nothing to see
                shelves = Shelves(self._shelf, self._links[n], clock)
                looker = Looker(
                    node.name, registry, clock, ids, chance, shelf=self._shelf, shelves=shelves
                )
                self.loop.start(node, looker.run(self.busy))

    def _eyes(self, n: int, clock: NodeClock) -> Shelves | None:
        """What a worker sees of the shelf: every second one looks for outputs itself."""
        if self._shelf is None or not n % 2:
            return None
        return Shelves(self._shelf, self._links[n], clock)

    def _role(self, n: int) -> str:
        plan = self.plan
        roles = "w" * plan.workers + "o" * plan.owners + "c" * plan.clients
        return roles[n] if n < len(roles) else "v"

    async def _submit(self, client: Client, n: int) -> None:
        await client.submit(self._requests[n - self.plan.workers - self.plan.owners])
        self._submitting.discard(n)

    def _store(self, n: int, node: Node, clock: NodeClock, ids: NodeIds) -> Store:
        link = self._links[n]
        if not self.plan.transactional:
            return CasStore(Objects(self.bucket, link), clock, ids)
        connection = Connection(self.server, link, self.weather, clock)
        self._hearing[node.name] = connection
        return connection

    def _offset(self, chance: Random) -> float:
        """How wrong a wall clock is: an hour where the store has its own, little where it has none."""
        most = 3600 if self.plan.transactional else 1.5
        return round(chance.uniform(-most, most), 3)

    def _wake_all(self) -> None:
        for node in self.nodes:
            if node.alive and node.name in self._hearing and not self.weather.strikes("deaf"):
                context = Context()
                context.run(NODE.set, node)
                hear = self._hearing[node.name].hear
                self.loop.call_later(self.weather.delay(), hear, context=context)

    def _strike(self, strike: Strike) -> None:
        n = strike.node
        node = self._disk if strike.fault == "step" else self.nodes[n]
        self.witness.note(f"{strike.fault} {node.name} for {strike.seconds}")
        self.weather.count(strike.fault)
        match strike.fault:
            case "pause":
                node.paused = True
                self.loop.call_later(strike.seconds, self._resume, node)
            case "kill":
                self._kill(n)
                self.loop.call_later(strike.seconds, self._revive, n, node)
            case "cut":
                self._links[n].cut = True
                self.loop.call_later(strike.seconds, self._mend, n)
            case "step":
                node.offset = strike.seconds
            case _:
                node.offset = self._offset(self.weather.chance)

    def pass_failpoint(self, name: str) -> None:
        """Some node is at this point of the code. It may die there."""
        self.passed[name] = self.passed.get(name, 0) + 1
        node = NODE.get(self._world)
        if node in self.nodes and node.alive and self.weather.strikes("crash"):
            self.witness.note(f"crash {node.name} at {name}")
            n = self.nodes.index(node)
            self._kill(n)
            self.loop.call_later(
                self.weather.chance.uniform(0.1, 3), self._revive, n, node, context=self._here
            )

    def _kill(self, n: int) -> None:
        node = self.nodes[n]
        if node.alive:
            node.alive = False
            self._hearing.pop(node.name, None)

    def _resume(self, node: Node) -> None:
        if node.paused:
            self.loop.resume(node)

    def _revive(self, n: int, node: Node) -> None:
        if self.nodes[n] is node:
            self._boot(n)

    def _mend(self, n: int) -> None:
        self._links[n].cut = False

    def _heal(self) -> None:
        """Whatever is broken is whole from now on."""
        self.witness.note("healed")
        self.weather.bad = False
        self._disk.offset = 0.0
        self.witness.healed_at = EPOCH + timedelta(seconds=self.loop.time() + 5)
        for n, node in enumerate(self.nodes):
            self._links[n].cut = False
            node.offset = 0.0
            self._resume(node)
            if not node.alive:
                self._boot(n)

    async def _ask(self) -> None:
        clock, ids = NodeClock(self.loop, self._world), NodeIds("world", self._chance("world"))
        self._links.append(Link(self.loop, self._disk, self.weather))
        # Until what is still on its way has landed, and a dead writer's events are in the feed.
        await clock.sleep(12 if self.plan.transactional else 40)
        registry = LocalRegistry(self._store(-1, self._world, clock, ids), ids)
        await reckon(registry, self.witness, list(self.journals.values()))

    def _check_rest(self) -> None:
        """I17: what was healed comes to its end. I18: waits differ, so that crowds disperse."""
        self.loop.check_tasks()
        restless = list(self.witness.unended)
        self.witness.expect("I17", not restless, f"never ended: {restless}")
        self.witness.expect("I17", not self._submitting, "a request was never answered")
        waits = self.witness.waits
        several = len(waits) >= 3
        self.witness.expect("I18", not several or len(set(waits)) > 1, "every wait is the same")


def simulate(plan: Plan, bug: AbstractContextManager[None] | None = None) -> Result:
    """Run a plan to its end, or to the first violation; with a planted bug, if one is given.

    Whatever it would print, or break on its way out, is a violation too."""
    enabled = gc.isenabled()
    gc.disable()  # what is let go is let go when the run is over, not in the middle of it
    gc.freeze()  # so that the collection below looks at this run only: 2 ms
    try:
        with collected() as diagnostics:
            with bug or nullcontext():
                result = _outcome(Simulation(plan, diagnostics))
            gc.collect()
    finally:
        failpoint.arm(None)
        gc.unfreeze()
        if enabled:
            gc.enable()
    if result.violation is None and diagnostics.messages:
        return replace(result, violation=Violation("broken", diagnostics.messages[0]))
    return result


def _outcome(simulation: Simulation) -> Result:
    """Run a simulation, say what came of it, and let it go."""
    failpoint.arm(simulation.pass_failpoint)
    simulation.run()
    failpoint.arm(None)
    witness, book = simulation.witness, simulation.book
    lines = tuple(witness.lines)
    simulation.loop.end()
    simulation.failed()
    digest = blake2b(digest_size=12)
    for line in lines:
        digest.update(line.encode())
    return Result(
        plan=simulation.plan,
        violation=witness.violation,
        trace=digest.hexdigest(),
        lines=lines,
        seconds=simulation.loop.time(),
        commits=witness.commits,
        answers=book.answers,
        expiries=witness.expiries,
        stale=book.stale,
        ambiguous=book.ambiguous,
        faults=dict(sorted(simulation.weather.struck.items())),
        failpoints=dict(sorted(simulation.passed.items())),
    )
