"""What every value of the core has in common."""

import pkgutil
from importlib import import_module
from inspect import Parameter, signature

import pytest
from msgspec import Struct

import holdfast.core
from holdfast.core.access import Key
from holdfast.core.clock_step import ClockStepSummary
from holdfast.core.event import Event
from holdfast.core.job import CancelRequest, DeadLetter, Failure, Flaws, Job, Lease, Progress
from holdfast.core.outputs import File, Output, OutputPromise, ValidationProgress, ValidationResult
from holdfast.core.process_spec import ProcessSpec
from holdfast.core.projection import FoldedJob
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec


def _values() -> list[type[Struct]]:
    names = [found.name for found in pkgutil.walk_packages(holdfast.core.__path__, "holdfast.core.")]
    return sorted(
        (
            kind
            for name in names
            for kind in vars(import_module(name)).values()
            if isinstance(kind, type) and issubclass(kind, Struct) and kind.__module__ == name
        ),
        key=lambda kind: (kind.__module__, kind.__name__),
    )


VALUES = _values()
STORED = [Spec, Retry, Job, Lease, Failure, DeadLetter, CancelRequest, Progress, Event, ProcessSpec]
STORED += [
    Key,
    File,
    OutputPromise,
    Output,
    ValidationResult,
    ValidationProgress,
    Flaws,
    ClockStepSummary,
]
BY_PLACE = [
    "Progress",
    "ResourceLock",
    "Transition",
    "Change",
    "Refusal",
    "SealedGrant",
    "Difference",
]
BY_PLACE += ["Principal", "OutputChunk", "_Item", "File"]

BY_PLACE += [
    "Event",
    "Job",
    "Lease",
    "_Single",
]  # one or several for every job: by name, each costs 0.5 us more


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind is not FoldedJob])
def test_a_value_never_changes(kind: type[Struct]) -> None:
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize("kind", STORED)
def test_what_is_stored_leaves_out_what_nobody_said(kind: type[Struct]) -> None:
    assert kind.__struct_config__.omit_defaults


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_of_many_fields_is_made_by_their_names(kind: type[Struct]) -> None:
    kinds = {parameter.kind for parameter in signature(kind).parameters.values()}

    assert (kinds == {Parameter.KEYWORD_ONLY}) == (kind.__name__ not in BY_PLACE)


def test_the_walk_finds_the_values() -> None:
    assert {*STORED, FoldedJob} < set(VALUES)
