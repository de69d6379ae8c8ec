"""Make a failing plan small: fewer faults, fewer jobs, and no shuffling."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from msgspec.structs import replace

from holdfast.testing.simulation.plan import ALWAYS, Plan
from holdfast.testing.simulation.run import simulate

Planted = Callable[[], AbstractContextManager[None]]


def shrink(plan: Plan, invariant: str, bug: Planted | None = None, runs: int = 300) -> Plan:
    """Return the smallest plan that still breaks the same invariant, found in at most this many runs."""
    left = runs
    smaller = True
    while smaller and left > 0:
        smaller = False
        for candidate in _smaller(plan):
            left -= 1
            if left < 0:
                break
            found = simulate(candidate, bug() if bug else None).violation
            if found is not None and found.invariant == invariant:
                plan, smaller = candidate, True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield every plan that is one step simpler, the biggest steps first."""
    for fault in plan.faults:
        if fault not in ALWAYS:
            kept = tuple(node_fault for node_fault in plan.node_faults if node_fault.fault != fault)
            faults = tuple(name for name in plan.faults if name != fault)
            yield replace(plan, faults=faults, node_faults=kept)
    for n in range(len(plan.node_faults)):
        yield replace(plan, node_faults=plan.node_faults[:n] + plan.node_faults[n + 1 :])
    if plan.jobs > 1:
        yield replace(plan, jobs=plan.jobs // 2)
        yield replace(plan, jobs=plan.jobs - 1)
    for fault, rate in plan.rates.items():
        if rate and fault in plan.faults:
            yield replace(plan, rates={**plan.rates, fault: 0.0})
    if plan.shuffle:
        yield replace(plan, shuffle=False)
