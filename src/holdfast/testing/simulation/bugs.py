"""All planted bugs, and the search for one of them."""

from holdfast.testing.simulation import (
    ending_bugs,
    follow_up_bugs,
    machine_bugs,
    object_bugs,
    output_bugs,
    owner_bugs,
)
from holdfast.testing.simulation.plan import plan_of
from holdfast.testing.simulation.planted_bug import BUGS, Bug
from holdfast.testing.simulation.run import Result, simulate

__all__ = [
    "BUGS",
    "Bug",
    "ending_bugs",
    "follow_up_bugs",
    "hunt",
    "machine_bugs",
    "object_bugs",
    "output_bugs",
    "owner_bugs",
]


def hunt(bug: Bug, first: int, seeds: int) -> tuple[int, Result | None]:
    """Return how many seeds it took from `first` on, and the run that found the bug, if any."""
    for tried in range(1, seeds + 1):
        plan = plan_of(
            first + tried - 1,
            bug.store,
            validators=bug.validators,
            timed=bug.timed,
            steps=bug.steps,
        )
        result = simulate(plan, bug.plant())
        if result.violation is not None:
            return tried, result
    return seeds, None
