"""The real worker, as it is hired in a simulation: its jobs are chores, and nobody watches but a witness."""

from holdfast.core.job import Job
from holdfast.ports import Clock, Grant, Ids
from holdfast.testing.simulation.audit import Audited
from holdfast.testing.simulation.chores import Chores
from holdfast.testing.simulation.shelf import Mounted, Shelves
from holdfast.testing.simulation.witness import Witness
from holdfast.worker.claims import Settings
from holdfast.worker.spool import MemorySpool
from holdfast.worker.validating import Validating
from holdfast.worker.worker import Worker


class Quiet:
    """Nobody asks what a simulated worker does, but whether it broke."""

    def __init__(self, witness: Witness, name: str) -> None:
        self._witness = witness
        self._name = name

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None:
        self._witness.note(f"{self._name} lost {grant.job_id}: {why}")

    def trouble(self, why: str) -> None:
        if why.startswith("an attempt broke"):
            self._witness.fail("broken", f"{self._name}: {why}")

    def paused(self, seconds: float, why: str) -> None: ...

    def resumed(self) -> None: ...


def hire(
    name: str,
    registry: Audited,
    chores: Chores,
    clock: Clock,
    ids: Ids,
    shelves: Shelves | None,
) -> Worker:
    """A worker of this name; with `shelves`, it looks for outputs as well."""
    report = Quiet(chores.witness, chores.node.name)
    validating = None
    if shelves is not None:
        validating = Validating(
            registry,  # type: ignore[arg-type]
            Mounted(shelves),
            report,
            clock=clock,
            ids=ids,
            machine=name,
            name=chores.node.name,
        )
    return Worker(
        registry,  # type: ignore[arg-type]
        Settings(owner=name, slots=1 + int(name[1:]) % 3),
        report,
        clock=clock,
        ids=ids,
        executors=[chores],
        spool=MemorySpool(),
        validating=validating,
    )
