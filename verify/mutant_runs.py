"""How a mutant meets the tests: each in a process of its own, forked from one that is ready.

Warm: the tests are loaded and known by the lines they run; the child puts the changed code into the
function and runs only the tests that pass there. Cold: nothing of holdfast is loaded yet; the child
loads the changed module in place of the real one, which also reaches tables, enums and structs.
"""

import gc
import importlib.abc
import importlib.util
import os
import resource
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NoReturn, TypeVar

import coverage
import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from verify.mutation import SOURCE, Mutant

T = TypeVar("T")
TESTS = Path(__file__).parent.parent / "tests" / "core"
SURVIVED, KILLED, BROKEN, COLD = range(4)
TIMEOUT = 4
_CPU_SECONDS, _WALL_SECONDS, _MEMORY_BYTES = 30, 240, 3 * 1024**3
_FLAGS = (
    "-q", "-x", "--noconftest", "-p", "pytest_asyncio.plugin", "-p", "pytest_timeout", "-o", "timeout=0",
    f"--ignore={TESTS / 'test_mutants.py'}",
)  # fmt: skip


def prepare() -> None:
    """Load what every child needs, and let a failing property stop at its first example. A busy machine
    kills no mutant."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutants",
        phases=phases,
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("mutants")


def run_cold(
    mutants: Sequence[Mutant | None], jobs: int, near_only: Collection[str] = ()
) -> Iterator[tuple[Mutant | None, int]]:
    """Each mutant with its outcome; None stands for the core as it is.

    What is named in `near_only` meets the tests of its own module, and not the others.
    """
    yield from _each(mutants, lambda mutant: _cold(mutant, near_only), jobs)


def _cold(mutant: Mutant | None, near_only: Collection[str]) -> int:
    if mutant is None:
        return _outcome(pytest.main([*_FLAGS, str(TESTS)]))
    sys.meta_path.insert(0, _Finder(mutant.name, mutant.path, mutant.code()))
    *packages, name = mutant.module.split(".")
    own = TESTS.joinpath(*packages).glob(f"test_{name}*.py")
    near = [str(file) for file in (*own, TESTS / "test_values.py")]
    outcome = _outcome(pytest.main([*_FLAGS, *near]))
    if outcome == KILLED or mutant.id in near_only:
        return outcome
    return _outcome(pytest.main([*_FLAGS, str(TESTS)]))


def _outcome(code: int) -> int:
    match code:
        case pytest.ExitCode.OK:
            return SURVIVED
        case pytest.ExitCode.TESTS_FAILED | pytest.ExitCode.INTERRUPTED:
            return KILLED
        case _:
            return BROKEN


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, with the code it is given."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self._name, self._path, self._code = name, path, code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _Loader(fullname, str(self._path), self._code)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, code: CodeType) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


def run_warm(mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, int]]:
    """Each mutant with its outcome; COLD where only another way can tell."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _quietly(_Warm(mutants, jobs, writer).run)
    os.close(writer)
    met = 0
    try:
        with os.fdopen(reader) as lines:
            for line in lines:
                met += 1
                place, outcome = map(int, line.split())
                yield mutants[place], outcome
    finally:
        os.waitpid(pid, 0)
    if met != len(mutants):
        raise RuntimeError(f"The warm run broke off after {met} of {len(mutants)} mutants.")


class _Warm:
    """A pytest plugin: run every test once, noting where it passes, then meet the mutants."""

    def __init__(self, mutants: Sequence[Mutant], jobs: int, writer: int) -> None:
        self._mutants, self._jobs, self._writer = mutants, jobs, writer
        self._items: dict[str, pytest.Item] = {}
        self._seconds: dict[str, float] = {}
        self._passed: dict[str, dict[int, list[str]]] = {}
        self._watch = coverage.Coverage(data_file=None, include=[f"{SOURCE}/*"], config_file=False)

    def run(self) -> int:
        self._watch.start()
        return pytest.main([*_FLAGS, str(TESTS)], [self])

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._baseline(session.items)
        gc.collect()
        gc.freeze()
        for place, outcome in _each(range(len(self._mutants)), self._meet, self._jobs):
            os.write(self._writer, f"{place} {outcome}\n".encode())
        return True

    def _baseline(self, items: list[pytest.Item]) -> None:
        for item in items:
            self._watch.switch_context(item.nodeid)
            reports = runtestprotocol(item, log=False, nextitem=None)
            if any(report.failed for report in reports):
                raise RuntimeError(f"{item.nodeid} fails without any mutant")
            self._items[item.nodeid] = item
            self._seconds[item.nodeid] = sum(report.duration for report in reports)
        self._watch.stop()
        data = self._watch.get_data()
        self._passed = {file: data.contexts_by_lineno(file) for file in data.measured_files()}

    def _meet(self, place: int) -> int:
        mutant = self._mutants[place]
        function = _function(mutant)
        changed = _code_of(mutant)
        if changed is None or changed.co_freevars != function.__code__.co_freevars:
            return COLD
        function.__code__ = changed
        names = self._passing(mutant)
        for name in sorted(names - {""}, key=lambda name: (self._seconds[name], name)):
            reports = runtestprotocol(self._items[name], log=False, nextitem=None)
            if any(report.failed for report in reports):
                return KILLED
        return COLD if "" in names else SURVIVED

    def _passing(self, mutant: Mutant) -> set[str]:
        """The tests that pass the mutant's lines; "" for what runs while modules are loaded."""
        lines = self._passed.get(str(mutant.path), {})
        first, last = mutant.lines
        return {name for number in range(first, last + 1) for name in lines.get(number, [])}


def _function(mutant: Mutant) -> FunctionType:
    """The live function a mutant changes; what it has remembered is forgotten."""
    held: object = sys.modules[mutant.name]
    for part in mutant.scope.split("."):
        held = vars(held)[part]
    if isinstance(held, property):
        held = held.fget
    if isinstance(held, cached_property):
        held = held.func
    if isinstance(held, classmethod):
        held = held.__func__
    if hasattr(held, "cache_clear"):
        held.cache_clear()
        held = held.__wrapped__  # type: ignore[attr-defined]
    assert isinstance(held, FunctionType)
    return held


def _code_of(mutant: Mutant) -> CodeType | None:
    """The changed code of the function."""
    waiting = [mutant.code()]
    for code in waiting:
        if code.co_qualname == mutant.scope:
            return code
        waiting += [const for const in code.co_consts if isinstance(const, CodeType)]
    return None


def _each(tasks: Sequence[T], act: Callable[[T], int], jobs: int) -> Iterator[tuple[T, int]]:
    """Every task with what `act` gives for it in a child process of its own."""
    waiting = deque(tasks)
    running: dict[int, T] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.popleft()
                running[_child(act, task)] = task
            pid, status = os.wait()
            if pid in running:
                yield running.pop(pid), _read(status)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _child(act: Callable[[T], int], task: T) -> int:
    pid = os.fork()
    if pid == 0:
        _limit()
        _quietly(lambda: act(task))
    return pid


def _limit() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_WALL_SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def _quietly(act: Callable[[], int]) -> NoReturn:
    """Be a child: do it, say nothing unless it breaks, and leave."""
    said = os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    code = BROKEN
    try:
        code = int(act())
    except BaseException:
        os.write(said, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _read(status: int) -> int:
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    return TIMEOUT if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM) else KILLED
