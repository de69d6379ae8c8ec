"""One run of one plan: boot the nodes, inject the faults, heal everything, and check the end."""

import gc
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from datetime import datetime, timedelta
from hashlib import blake2b
from random import Random  # noqa: TID251  # seeded: the same chance every time
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from holdfast import failpoint
from holdfast.ports import Store
from holdfast.registry.local import LocalRegistry
from holdfast.stores.cas.store import CasStore
from holdfast.testing.fakes import EPOCH
from holdfast.testing.simulation.actors import Client, Journal, Owner
from holdfast.testing.simulation.checked_registry import AnswerLog, checked
from holdfast.testing.simulation.commit import Violation
from holdfast.testing.simulation.diagnostics import Diagnostics, collected
from holdfast.testing.simulation.downstream import Downstream
from holdfast.testing.simulation.final_checks import check_final_state
from holdfast.testing.simulation.invariant_checker import InvariantChecker
from holdfast.testing.simulation.loop import NODE, Node, virtual_loop
from holdfast.testing.simulation.network import FaultInjector, NetworkLink
from holdfast.testing.simulation.nodes import NodeClock, NodeIds
from holdfast.testing.simulation.output_store import FakeOutputStore, OutputsConnection
from holdfast.testing.simulation.plan import (
    HEAL_SECONDS,
    STEP_SECONDS_MAX,
    TROUBLE_SECONDS,
    NodeFault,
    Plan,
)
from holdfast.testing.simulation.planned_requests import requests_of
from holdfast.testing.simulation.simulated_validator import SimulatedValidator
from holdfast.testing.simulation.simulated_work import DRIFT_MAX, SimulatedExecutor
from holdfast.testing.simulation.sql_server import SqlServer
from holdfast.testing.simulation.stores import (
    Bucket,
    MemoryServer,
    ObjectsConnection,
    StoreConnection,
)
from holdfast.testing.simulation.verdict_checks import VerdictChecker
from holdfast.testing.simulation.workers import make_worker

OBJECT_RATES = 0.3
"""A call on documents makes many requests: faults of each are rarer."""


class Result(Struct, frozen=True, kw_only=True):
    """The result of a run. It counts only if it was hard enough: see `valid`."""

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
        """Whether a lease expired, a stale owner was refused, and the result of a call was in doubt."""
        return self.expiries > 0 and self.stale > 0 and self.ambiguous > 0


class Simulation:
    """The nodes, stores, faults and checks of one run."""

    def __init__(self, plan: Plan, diagnostics: Diagnostics | None = None) -> None:
        self.plan = plan
        self.diagnostics = diagnostics or Diagnostics()
        chance = self._chance("weather")
        self.loop = virtual_loop(self._chance("shuffle") if plan.shuffle else None)
        self.checker = InvariantChecker(self._chance("witness"), self.loop.time)
        self.answer_log = AnswerLog(self.checker, self._store_now)
        self.downstream = Downstream(self.answer_log)
        scale = 1.0 if plan.transactional else OBJECT_RATES
        rates = {fault: rate * scale for fault, rate in plan.rates.items()}
        self.injector = FaultInjector(plan.faults, rates, chance)
        self._world = Node("world")
        self._disk = Node("disk")
        self._here = Context()
        self._here.run(NODE.set, self._world)
        clock = NodeClock(self.loop, self._disk)
        engine = SqlServer if plan.store == "sqlite" else MemoryServer
        self.server = engine(clock, NodeIds("disk", self._chance("disk")), self.checker)
        self.bucket = Bucket(self.checker)
        self.nodes: list[Node] = []
        self._links: list[NetworkLink] = []
        self._boots: list[int] = []
        self._connections: dict[str, StoreConnection] = {}
        self.passed: dict[str, int] = {}
        self.journals: defaultdict[str, Journal] = defaultdict(Journal)
        self._submitting: set[int] = set()
        self._output_store = self._make_output_store()
        self._requests = requests_of(plan, self._chance("requests"), self._chance("promises"))

    def _chance(self, name: str) -> Random:
        return Random(f"{self.plan.seed}/{name}")

    def _make_output_store(self) -> FakeOutputStore | None:
        """Return the store of promised outputs, if there are validators, and have its verdicts checked."""
        if not self.plan.validators:
            return None

        def later(seconds: float, act: Callable[[], None]) -> None:
            self.loop.call_later(seconds, act, context=self._here)

        output_store = FakeOutputStore(self._chance("shelf"), self.loop.time, later)
        self.checker.verdict = VerdictChecker(self.checker, output_store, self.loop.time).check
        return output_store

    def _store_now(self) -> datetime:
        """Return the store's time; where every node has its own, one that is before them all."""
        early = 2 * STEP_SECONDS_MAX if self.plan.steps else 0 if self.plan.transactional else 10
        return EPOCH + timedelta(seconds=self.loop.time() - early)

    def busy(self) -> bool:
        return self.loop.time() < TROUBLE_SECONDS

    def run(self) -> None:
        """Run the faults first, then heal everything, then make the final checks."""
        self.server.listeners.append(self._wake_all)
        for n in range(self.plan.nodes):
            self.nodes.append(self._world)
            self._links.append(NetworkLink(self.loop, self._disk, self.injector))
            self._boots.append(0)
            self._boot(n)
        for node_fault in self.plan.node_faults:
            self.loop.call_at(node_fault.at, self._inject, node_fault, context=self._here)
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
            self.checker.expect("I17", asking.done(), "the final checks got no response")
            if asking.done() and (error := asking.exception()):
                self.checker.fail("broken", f"the final checks: {error!r}")

    def failed(self) -> bool:
        """Return whether an invariant is broken, or a task or a log message has failed unnoticed."""
        if unheard := self.loop.broken or self.diagnostics.messages:
            self.checker.fail("broken", unheard[0])
        return self.checker.violation is not None

    def _at_rest(self) -> bool:
        """Return whether all is healed, all requests have become jobs, and all jobs have ended."""
        return not (self.injector.active or self._submitting or self.checker.unended or self.busy())

    def _boot(self, n: int) -> None:
        """Start node `n`, or start it again after its death."""
        plan = self.plan
        self._boots[n] += 1
        name = f"{self._role(n)}{n}"
        node = self.nodes[n] = Node(f"{name}.{self._boots[n]}")
        chance = self._chance(node.name)
        if "skew" in plan.faults and self.injector.active:
            node.offset = self._offset(chance)
        if "drift" in plan.faults:
            node.rate = 1 + chance.uniform(-DRIFT_MAX, DRIFT_MAX)
        clock, ids = NodeClock(self.loop, node), NodeIds(node.name, chance)
        store = self._store(n, node, clock, ids)
        registry = checked(LocalRegistry(store, ids), self.answer_log, node.name)
        self.checker.note(f"boot {node.name}")
        match name[0]:
            case "w":
                executor = SimulatedExecutor(
                    node,
                    chance,
                    self.checker,
                    self.downstream,
                    one_clock=plan.transactional,
                    output_store=self._output_store,
                )
                worker = make_worker(name, registry, executor, clock, ids, self._worker_outputs(n, clock))
                self.loop.start(node, worker.run())
            case "o":
                owner = Owner(name, registry, clock, ids, chance, downstream=self.downstream)
                owner.output_store = self._output_store
                self.loop.start(node, owner.run(self.busy))
            case "c":
                client = Client(name, registry, clock, ids, chance)
                client.output_store = self._output_store
                self._submitting.add(n)
                self.loop.start(node, self._submit(client, n))
                self.loop.start(node, client.interfere(self.busy))
                self.loop.start(node, client.follow(self.journals[name], self.busy))
            case _:
                # There are validators only with an output store.
                assert self._output_store is not None
                outputs = OutputsConnection(self._output_store, self._links[n], clock)
                validator = SimulatedValidator(
                    node.name,
                    registry,
                    clock,
                    ids,
                    chance,
                    output_store=self._output_store,
                    outputs=outputs,
                )
                self.loop.start(node, validator.run(self.busy))

    def _worker_outputs(self, n: int, clock: NodeClock) -> OutputsConnection | None:
        """Return the outputs for a worker: every second worker validates outputs itself."""
        if self._output_store is None or not n % 2:
            return None
        return OutputsConnection(self._output_store, self._links[n], clock)

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
            return CasStore(ObjectsConnection(self.bucket, link), clock, ids)
        connection = StoreConnection(self.server, link, self.injector, clock)
        self._connections[node.name] = connection
        return cast("Store", connection)

    def _offset(self, chance: Random) -> float:
        """Return the error of a wall clock: up to an hour where the store has its own, else little."""
        most = 3600 if self.plan.transactional else 1.5
        return round(chance.uniform(-most, most), 3)

    def _wake_all(self) -> None:
        for node in self.nodes:
            if node.alive and node.name in self._connections and not self.injector.happens("deaf"):
                context = Context()
                context.run(NODE.set, node)
                notify = self._connections[node.name].notify
                self.loop.call_later(self.injector.delay(), notify, context=context)

    def _inject(self, node_fault: NodeFault) -> None:
        n = node_fault.node
        node = self._disk if node_fault.fault == "step" else self.nodes[n]
        self.checker.note(f"{node_fault.fault} {node.name} for {node_fault.seconds}")
        self.injector.count(node_fault.fault)
        match node_fault.fault:
            case "pause":
                node.paused = True
                self.loop.call_later(node_fault.seconds, self._resume, node)
            case "kill":
                self._kill(n)
                self.loop.call_later(node_fault.seconds, self._revive, n, node)
            case "cut":
                self._links[n].cut = True
                self.loop.call_later(node_fault.seconds, self._mend, n)
            case "step":
                node.offset = node_fault.seconds
            case _:
                node.offset = self._offset(self.injector.chance)

    def pass_failpoint(self, name: str) -> None:
        """Let the node that is at this failpoint die there, by chance."""
        self.passed[name] = self.passed.get(name, 0) + 1
        node = NODE.get(self._world)
        if node in self.nodes and node.alive and self.injector.happens("crash"):
            self.checker.note(f"crash {node.name} at {name}")
            n = self.nodes.index(node)
            self._kill(n)
            self.loop.call_later(
                self.injector.chance.uniform(0.1, 3), self._revive, n, node, context=self._here
            )

    def _kill(self, n: int) -> None:
        node = self.nodes[n]
        if node.alive:
            node.alive = False
            self._connections.pop(node.name, None)

    def _resume(self, node: Node) -> None:
        if node.paused:
            self.loop.resume(node)

    def _revive(self, n: int, node: Node) -> None:
        if self.nodes[n] is node:
            self._boot(n)

    def _mend(self, n: int) -> None:
        self._links[n].cut = False

    def _heal(self) -> None:
        """End all faults."""
        self.checker.note("healed")
        self.injector.active = False
        self._disk.offset = 0.0
        self.checker.healed_at = EPOCH + timedelta(seconds=self.loop.time() + 5)
        for n, node in enumerate(self.nodes):
            self._links[n].cut = False
            node.offset = 0.0
            self._resume(node)
            if not node.alive:
                self._boot(n)

    async def _ask(self) -> None:
        clock, ids = NodeClock(self.loop, self._world), NodeIds("world", self._chance("world"))
        self._links.append(NetworkLink(self.loop, self._disk, self.injector))
        # Until requests under way are served, and a dead writer's events are in the log.
        await clock.sleep(12 if self.plan.transactional else 40)
        registry = LocalRegistry(self._store(-1, self._world, clock, ids), ids)
        await check_final_state(registry, self.checker, list(self.journals.values()))

    def _check_rest(self) -> None:
        """I17: after healing, everything ends. I18: waits differ, so that retries do not coincide."""
        self.loop.check_tasks()
        restless = list(self.checker.unended)
        self.checker.expect("I17", not restless, f"never ended: {restless}")
        self.checker.expect("I17", not self._submitting, "a request never got a response")
        waits = self.checker.waits
        several = len(waits) >= 3
        self.checker.expect("I18", not several or len(set(waits)) > 1, "every wait is the same")


def simulate(plan: Plan, bug: AbstractContextManager[None] | None = None) -> Result:
    """Run a plan to its end, or to the first violation; with a planted bug, if one is given.

    What it would print, and errors on its way out, are violations too."""
    enabled = gc.isenabled()
    gc.disable()  # objects are collected when the run is over, not in the middle of it
    gc.freeze()  # so that the collection below sees only this run: 2 ms
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
    """Run a simulation and return its result."""
    failpoint.arm(simulation.pass_failpoint)
    simulation.run()
    failpoint.arm(None)
    checker, log = simulation.checker, simulation.answer_log
    lines = tuple(checker.lines)
    simulation.loop.end()
    simulation.failed()
    digest = blake2b(digest_size=12)
    for line in lines:
        digest.update(line.encode())
    return Result(
        plan=simulation.plan,
        violation=checker.violation,
        trace=digest.hexdigest(),
        lines=lines,
        seconds=simulation.loop.time(),
        commits=checker.commits,
        answers=log.answers,
        expiries=checker.expiries,
        stale=log.stale,
        ambiguous=log.ambiguous,
        faults=dict(sorted(simulation.injector.counts.items())),
        failpoints=dict(sorted(simulation.passed.items())),
    )
