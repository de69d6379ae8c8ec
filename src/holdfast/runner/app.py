"""The app of a runner: what a runner needs of it, and how it is loaded by its name, `module:app`."""

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from holdfast.core.errors import Invalid
from holdfast.outputs.lazy import LazyOutputs
from holdfast.runner.signature import Signature


class HandlerFunction(Protocol):
    """A function that is called with the arguments of a job: its compensation, or its handler."""

    @property
    def function(self) -> Callable[..., Any]: ...

    @property
    def is_async(self) -> bool: ...

    @property
    def takes_context(self) -> bool: ...


class Handler(HandlerFunction, Protocol):
    """The function of one kind of job, and how it wants to be run; a `JobFunction`."""

    @property
    def arguments(self) -> Signature: ...

    @property
    def isolation(self) -> str: ...

    @property
    def memory_bytes(self) -> int | None: ...

    @property
    def compensate(self) -> HandlerFunction | None: ...

    @property
    def has_lock(self) -> bool: ...

    @property
    def queue(self) -> str: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...


class HandlerApp(Protocol):
    """The handlers by kind, and the stores of their jobs and outputs; an `App`."""

    url: str
    outputs: str | None

    @property
    def jobs(self) -> Mapping[str, Handler]: ...

    def output_store(self) -> LazyOutputs: ...


def load_app(name: str) -> HandlerApp:
    """Return the app of that name, looked up in the current folder first; `Invalid` says what is wrong.
    Modules that are named before its own, with commas, are imported first."""
    module_names, colon, attribute = name.partition(":")
    *others, module_name = module_names.split(",")
    if not colon or not module_name or not attribute:
        raise Invalid(f"{name!r} does not name an app: write module:app, such as shop:app.")
    for other in others:
        import_here(other)
    found: object = import_here(module_name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Invalid(f"{module_name} has no {attribute}.")
        found = getattr(found, part)
    # `App` itself is not imported: the SDK is built on this package. Nothing else has both.
    if not hasattr(found, "output_store") or not hasattr(found, "jobs"):
        raise Invalid(f"{name} is a {type(found).__name__}, not a holdfast.App.")
    return cast("HandlerApp", found)


def import_here(module_name: str) -> ModuleType:
    """Return the module, looked up in the current folder first; `Invalid` says what is wrong."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise Invalid(f"There is no module {module_name} in {here} or on Python's path.") from error
        raise Invalid(f"{module_name} could not be imported: {error}.") from error
    except (Exception, SystemExit) as error:
        raise Invalid(f"{module_name} could not be imported: {error!r}.") from error
