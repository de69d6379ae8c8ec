"""By which name another process can load an app, if it can."""

import sys
from typing import TYPE_CHECKING

from holdfast.core.errors import Invalid

if TYPE_CHECKING:
    from holdfast.runner.signature import Function
    from holdfast.sdk.app import App

RUNNER = "holdfast.runner.__main__"


def importable_name(app: "App") -> str | None:
    """Return the name for `load_app` that loads the app with all of its functions; None if one of them is of
    a script, a notebook or another function, or if no module has the app."""
    modules: dict[str, None] = {}
    for function in _functions(app):
        module = sys.modules.get(function.__module__)
        spec = getattr(module, "__spec__", None)
        if (
            function.__module__ == "__main__"
            or spec is None
            or not spec.origin
            or "<" in function.__qualname__
        ):
            return None
        modules[function.__module__] = None
    for name in (*modules, *list(sys.modules)):
        for attribute, value in list(vars(sys.modules[name]).items()) if name != "__main__" else ():
            if value is app:
                modules.pop(name, None)
                return f"{','.join((*modules, name))}:{attribute}"
    return None


def check_no_processes(app: "App") -> None:
    """Raise `Invalid` for a function that asks for a process of its own, where there can be none."""
    for job in app.jobs.values():
        if job.isolation == "process":
            raise Invalid(
                f'{job.kind}: isolation="process" needs a function that another process can import.',
                advice="Write the app and its functions into a module, such as shop.py, and import that.",
            )


def check_not_loading() -> None:
    """Raise `Invalid` in a process that only loads the app, for a worker: it would start the next one."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == RUNNER:
        raise Invalid(
            "A worker is loading this module, and would start another one.",
            advice='Begin a worker only in a script that is run: below if __name__ == "__main__".',
        )


def is_interactive() -> bool:
    """Whether this is a notebook or a prompt, where a function is written again and again."""
    return not hasattr(sys.modules.get("__main__"), "__file__")


def _functions(app: "App") -> "list[Function]":
    jobs = app.jobs.values()
    return [job.function for job in jobs] + [
        job.compensate.function for job in jobs if job.compensate is not None
    ]
