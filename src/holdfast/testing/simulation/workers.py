"""The real worker in a simulation, with a simulated executor."""

from holdfast.core.job import Job
from holdfast.ports import Clock, Grant, Ids
from holdfast.registry.local import LocalRegistry
from holdfast.testing.simulation.invariant_checker import InvariantChecker
from holdfast.testing.simulation.output_store import ConnectedOutputs, OutputsConnection
from holdfast.testing.simulation.simulated_work import SimulatedExecutor
from holdfast.worker.claims import WorkerSettings
from holdfast.worker.spool import MemorySpool
from holdfast.worker.validation import WorkerValidation
from holdfast.worker.worker import Worker


class SilentReport:
    """A report that only notes lost jobs and internal errors."""

    def __init__(self, checker: InvariantChecker, name: str) -> None:
        self._checker = checker
        self._name = name

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None:
        self._checker.note(f"{self._name} lost {grant.job_id}: {why}")

    def trouble(self, why: str) -> None:
        if why.startswith("an attempt broke"):
            self._checker.fail("broken", f"{self._name}: {why}")

    def paused(self, seconds: float, why: str) -> None: ...

    def resumed(self) -> None: ...


def make_worker(
    name: str,
    registry: LocalRegistry,
    executor: SimulatedExecutor,
    clock: Clock,
    ids: Ids,
    outputs: OutputsConnection | None,
) -> Worker:
    """Return a worker of this name; with `outputs`, it validates outputs as well."""
    report = SilentReport(executor.checker, executor.node.name)
    validating = None
    if outputs is not None:
        validating = WorkerValidation(
            registry,
            ConnectedOutputs(outputs),
            report,
            clock=clock,
            ids=ids,
            machine=name,
            name=executor.node.name,
        )
    return Worker(
        registry,
        WorkerSettings(owner=name, slots=1 + int(name[1:]) % 3, shares=False),
        report,
        clock=clock,
        ids=ids,
        executors=[executor],
        spool=MemorySpool(),
        validation=validating,
    )
