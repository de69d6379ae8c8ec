"""How many jobs run at the same time in a worker that was not told."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.worker.claims import ThreadSlots, WorkerSettings
from holdfast.worker.executor import Executor
from holdfast.worker.function_executor import FunctionExecutor

SLOTS_FOR_COROUTINES = 100
"""A coroutine takes neither a thread nor a process, so more of them may run at the same time."""
THREADS_MAX = 32
"""How many plain functions run at the same time, at most, while they end within milliseconds."""


def with_default_slots(settings: WorkerSettings, executors: Sequence[Executor]) -> WorkerSettings:
    """Return the settings with the slots of a worker that was given none: a hundred for coroutines, and one
    per core for jobs that take a thread or a process each."""
    kinds = {kind for one in executors for kind in one.kinds}
    threads = frozenset(
        kind
        for one in executors
        for kind in (one.thread_kinds if isinstance(one, FunctionExecutor) else one.kinds)
    )
    if not threads:
        return replace(settings, slots=SLOTS_FOR_COROUTINES)
    cores, alone = settings.slots, len(threads) == len(kinds)
    return replace(
        settings,
        slots=cores if alone else SLOTS_FOR_COROUTINES,
        threads=ThreadSlots(kinds=threads, slots=cores, slots_max=THREADS_MAX, alone=alone),
    )
