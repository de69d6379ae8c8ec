"""The job function that a person means: module:function, or module:app.job."""

from types import ModuleType
from typing import Any

from holdfast.core.errors import Invalid
from holdfast.runner.app import import_here
from holdfast.sdk.app import App
from holdfast.sdk.job_function import JobFunction

AnyFunction = JobFunction[..., Any, Any]


def find_function(name: str) -> tuple[App, AnyFunction]:
    """Return the job function of that name, and its app. Raise `Invalid`, which says what there is.

    After the colon stands the name of the function in its module; or the name of the job, with that of its
    app before it where the module has several: shop:resize, shop:app.resize.
    """
    module_name, colon, rest = name.partition(":")
    if not (module_name and colon and rest):
        raise Invalid(f"{name!r} does not name a function: write module:function, such as shop:resize.")
    module = import_here(module_name)
    found = _attribute(module, rest)
    if isinstance(found, JobFunction):
        return _app_of(found, module, name), found
    if isinstance(found, App):
        raise _refused(name, f"{name} is an app", {f"{rest}.{kind}" for kind in found.jobs})
    apps, kind = _apps(module), rest
    owner = _attribute(module, rest.rpartition(".")[0])
    if isinstance(owner, App):
        apps, kind = [owner], rest.rpartition(".")[2]
    fitting = [app for app in apps if kind in app.jobs]
    if len(fitting) == 1:
        return fitting[0], fitting[0].jobs[kind]
    no_job = found is None or bool(fitting)
    message = f"{module_name} has no job {rest}" if no_job else f"{name} is no job: put @app.job above it"
    raise _refused(name, message, {kind for app in apps for kind in app.jobs})


def _apps(module: ModuleType) -> list[App]:
    found = {id(one): one for one in vars(module).values() if isinstance(one, App)}
    return list(found.values())


def _attribute(module: ModuleType, path: str) -> object:
    found: object = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if path else None


def _app_of(function: AnyFunction, module: ModuleType, name: str) -> App:
    """Return the app of the function: it is in this module, or in the one that the function is from."""
    for app in _apps(module) + _apps(import_here(function.function.__module__)):
        if any(one is function for one in app.jobs.values()):
            return app
    raise Invalid(f"The app of {name} is not in {module.__name__}: name it as module:app.job.")


def _refused(name: str, message: str, jobs: set[str]) -> Invalid:
    module_name = name.partition(":")[0]
    known = ", ".join(f"{module_name}:{one}" for one in sorted(jobs))
    return Invalid(f"{message}.", advice=f"There are: {known}" if known else "It has no jobs of an App.")
