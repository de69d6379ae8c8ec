"""Manifests: the tasks of a study, their ids and their encoding as lines.

Ids and seeds are those of modelops-contracts, byte for byte, because results are found by them.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.limits import (
    ENTRIES_MAX,
    ID_CHARACTERS_MAX,
    OUTPUT_NAME_CHARACTERS_MAX,
    TASK_BYTES_MAX,
    check_bytes,
    check_text,
)
from holdfast.core.outputs import check_output_name

Scalar = bool | int | float | str

MARKER = "result.json"
"""The file that is written last into the directory of a result. No output may have this name."""

_SEED_MAX = 2**64 - 1
_INTEGER_MIN = -(2**63)
_BUNDLE = re.compile(r"(?:[^\s@|]+@)?sha256:[0-9a-f]{64}\Z")
_ENTRYPOINT = re.compile(r"\w[\w./:-]*\Z")
_TARGET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:-]*\Z")


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, dict=True):
    """One unit inside a study, and the output it has to produce: a simulation of `params` under `seed`, or
    the aggregation of its replicates (`seeds`) for a `target`. The result has at least the files that
    `outputs` names."""

    kind: Literal["simulation", "aggregation"] = "simulation"
    """`simulation` or `aggregation`."""
    bundle: str
    """The checksum of the code: `sha256:…`."""
    entrypoint: str
    """What in the code is run."""
    params: dict[str, Scalar] = {}
    """The parameters."""
    seed: int | None = None
    """The seed of a simulation."""
    outputs: tuple[str, ...] = ()
    """The files that its result has at least."""
    target: str | None = None
    """What an aggregation computes."""
    seeds: tuple[int, ...] = ()
    """The seeds of the replicates that an aggregation is made of."""

    @property
    def digest(self) -> str:
        """The SHA-256 of the bundle."""
        return self.bundle[-64:]

    @cached_property
    def param_id(self) -> str:
        """The id of the parameters."""
        return param_id(self.params)

    @property
    def task_id(self) -> str:
        """The id of the task, of 128 bits."""
        if self.kind == "simulation":
            return _simulation_id(self, self.param_id, self.seed)
        return _hash(f"agg:v1|{_members(self)}", 16)

    @property
    def aggregation_id(self) -> str | None:
        """The id of an aggregation's result; a simulation has none."""
        return None if self.kind == "simulation" else _hash(_members(self), 32)[:16]

    @property
    def name(self) -> str:
        """The name that people see, unique in a manifest."""
        if self.kind == "simulation":
            params = self.param_id
            own = _simulation_id(self, params, self.seed)
            return f"params_{params[:8]}.seed_{self.seed}.{own[:12]}"
        return f"target_{self.target}.agg_{self.aggregation_id}"


def param_id(params: Mapping[str, Scalar]) -> str:
    """Return the id of a set of parameters, in any order; 1, 1.0 and true differ."""
    return _hash(f"contracts:param:v1|{_CANONICAL.encode(params)}", 32)


def replicate_seeds(param_id: str, count: int) -> tuple[int, ...]:
    """Return `count` different seeds for the replicates of a parameter set."""
    seeds: dict[int, None] = {}
    index = 0
    while len(seeds) < count:
        seeds[int(_hash(f"{param_id}:{index}", 8), 16) % 2**32] = None
        index += 1
    return tuple(seeds)


def describe_difference(task: Task, other: Task) -> str | None:
    """Return how a result of `other` differs from one of `task`, in words; None when it does not."""
    if task.kind != other.kind:
        return f"a task of another kind ({other.kind})"
    if task.digest != other.digest:
        return "another bundle"
    if task.entrypoint != other.entrypoint:
        return f"another entrypoint ({other.entrypoint})"
    if task.param_id != other.param_id:
        return "other parameters"
    if task.seed != other.seed:
        return "another seed"
    if task.target != other.target:
        return f"another target ({other.target})"
    return None if set(task.seeds) == set(other.seeds) else "other replicates"


def study(
    *,
    bundle: str,
    entrypoint: str,
    parameter_sets: Iterable[Mapping[str, Scalar]],
    replicates: int = 1,
    targets: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> Iterator[Task]:
    """Return the tasks of a study: every replicate of every parameter set and, with more than one
    replicate, the aggregation for each target. Raise `Invalid` for a parameter set that occurs twice."""
    if not 1 <= replicates <= ENTRIES_MAX:
        raise Invalid(f"A study has from 1 to {ENTRIES_MAX:,} replicates, not {replicates}.")
    if len(set(targets)) < len(targets):
        raise Invalid("A target is named twice; name each once.")
    one = Task(bundle=bundle, entrypoint=entrypoint, outputs=tuple(outputs))
    return _tasks(one, parameter_sets, replicates, tuple(targets))


def _tasks(
    model: Task,
    parameter_sets: Iterable[Mapping[str, Scalar]],
    replicates: int,
    targets: tuple[str, ...],
) -> Iterator[Task]:
    seen: dict[str, int] = {}
    for number, params in enumerate(parameter_sets, 1):
        one = replace(model, params=_check_parameters(dict(params)))
        params_id = one.param_id
        first = seen.setdefault(params_id, number)
        if first != number:
            raise Invalid(f"Parameter sets {first} and {number} are the same; give each once.")
        seeds = replicate_seeds(params_id, replicates)
        for seed in seeds:
            yield check_task(replace(one, seed=seed))
        aggregation = replace(one, kind="aggregation", outputs=(), seeds=seeds)
        for target in targets if replicates > 1 else ():
            yield check_task(replace(aggregation, target=target))


def encode_task(task: Task) -> bytes:
    """Return the line of a task in a manifest, or raise `Invalid`."""
    return check_bytes(_ENCODER.encode(check_task(task)) + b"\n", "A task", TASK_BYTES_MAX)


def decode_task(line: bytes, number: int) -> Task:
    """Return the task on the line of this number, or raise `Invalid`, which names the line."""
    try:
        return check_task(_DECODER.decode(check_bytes(line, "A task", TASK_BYTES_MAX)))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = "it is not a task" if line.strip() else "it is empty"
        raise Invalid(f"Line {number}: {what} ({error}).") from error
    except Invalid as error:
        raise Invalid(f"Line {number}: {error.message}") from error


def check_task(task: Task) -> Task:
    """Return the task, or raise `Invalid`."""
    _check_origin(task.bundle, task.entrypoint)
    _check_parameters(task.params)
    for output in task.outputs:
        check_task_output(output)
    if len(set(task.outputs)) < len(task.outputs):
        raise Invalid("An output is named twice; name each once.")
    if task.kind == "simulation":
        _check_simulation(task)
    else:
        _check_aggregation(task)
    return task


@lru_cache(maxsize=1024)
def check_task_output(name: str) -> str:
    """Return the name of a file of a result, or raise `Invalid`."""
    if name == MARKER:
        raise Invalid(f"An output cannot be called {MARKER}: that file marks the result as complete.")
    return check_output_name(name)


@lru_cache(maxsize=1024)
def _check_origin(bundle: str, entrypoint: str) -> None:
    check_text(bundle, "The bundle", OUTPUT_NAME_CHARACTERS_MAX)
    if not _BUNDLE.match(bundle):
        raise Invalid(
            f"The bundle {bundle!r} is not sha256: and 64 hexadecimal digits, or these after a name and @."
        )
    check_text(entrypoint, "The entrypoint", OUTPUT_NAME_CHARACTERS_MAX)
    if not _ENTRYPOINT.match(entrypoint):
        raise Invalid(
            f"The entrypoint {entrypoint!r} is not one such as models.seir/baseline or module:function."
        )


def _check_parameters(params: dict[str, Scalar]) -> dict[str, Scalar]:
    for name, value in params.items():
        _check_parameter(name, value)
    return params


def _check_parameter(name: str, value: Scalar) -> None:
    check_text(name, "The name of a parameter", OUTPUT_NAME_CHARACTERS_MAX)
    kind = type(value)
    if kind is str:
        check_text(str(value), f"Parameter {name}", TASK_BYTES_MAX)
    elif kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]
            raise Invalid(f"Parameter {name} is {value}; only finite numbers are taken.")
    elif kind is int:
        if not _INTEGER_MIN <= value <= _SEED_MAX:  # type: ignore[operator]
            raise Invalid(f"Parameter {name} is {value}, which needs more than 64 bits.")
    elif kind is not bool:
        raise Invalid(f"Parameter {name} is a {kind.__name__}, not a bool, int, float or str.")


def _check_simulation(task: Task) -> None:
    if task.target is not None or task.seeds:
        raise Invalid("A simulation has neither a target nor seeds; an aggregation has.")
    if task.seed is None:
        raise Invalid("A simulation needs a seed.")
    _check_seed(task.seed)


def _check_aggregation(task: Task) -> None:
    if task.seed is not None:
        raise Invalid("An aggregation has no seed, but the seeds of its replicates.")
    if task.target is None:
        raise Invalid("An aggregation needs a target.")
    check_text(task.target, "The target", ID_CHARACTERS_MAX)
    if not _TARGET.match(task.target):
        raise Invalid(
            f"The target {task.target!r} may only contain letters, digits and _ . / : - and starts with"
            " a letter, a digit or _."
        )
    if not task.seeds:
        raise Invalid("An aggregation needs the seeds of its replicates.")
    for seed in task.seeds:
        _check_seed(seed)
    if len(set(task.seeds)) < len(task.seeds):
        raise Invalid("A seed is there twice; a replicate is aggregated once.")


def _check_seed(seed: int) -> None:
    if type(seed) is not int or not 0 <= seed <= _SEED_MAX:
        raise Invalid(f"A seed is a whole number from 0 to 2**64-1, not {seed!r}.")


def _simulation_id(task: Task, param_id: str, seed: int | None) -> str:
    return _hash(f"sim:v1|{task.bundle}|{task.entrypoint}|{param_id}|{seed}", 16)


def _members(task: Task) -> str:
    """The parts of an aggregation: its target, and its simulations in the order of their ids."""
    params = task.param_id
    ids = sorted(_simulation_id(task, params, seed) for seed in task.seeds)
    return f"{task.target}:{','.join(ids)}"


def _hash(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()


_CANONICAL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Task)
