"""The whole product in one thread, on virtual time, under seeded faults: the same seed, the same run."""

from holdfast.testing.simulation.plan import Plan, plan_of
from holdfast.testing.simulation.run import Result, simulate

__all__ = ["Plan", "Result", "plan_of", "simulate"]
