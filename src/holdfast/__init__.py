"""holdfast: a durable job queue for Python and the shell."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.core.errors import (
        Conflict,
        Corrupt,
        Denied,
        Exhausted,
        Fenced,
        HoldfastError,
        Invalid,
        NotFound,
        Unavailable,
    )
    from holdfast.core.job import Job
    from holdfast.core.manifest import Task, study
    from holdfast.core.outputs import File
    from holdfast.core.retry import OnExhausted, Retry
    from holdfast.core.state import State
    from holdfast.runner.call import Call
    from holdfast.runner.context import Context
    from holdfast.runner.errors import (
        Cancelled,
        PermanentError,
        Snooze,
        TransientError,
        ValidationError,
    )
    from holdfast.runner.task_handle import TaskHandle
    from holdfast.sdk.app import App
    from holdfast.sdk.async_client import AsyncClient
    from holdfast.sdk.client import Client
    from holdfast.sdk.handle import Handle, JobFailed
    from holdfast.sdk.job_calls import command

__version__ = "0.1.0"

__all__ = [
    "App",
    "AsyncClient",
    "Call",
    "Cancelled",
    "Client",
    "Conflict",
    "Context",
    "Corrupt",
    "Denied",
    "Exhausted",
    "Fenced",
    "File",
    "Handle",
    "HoldfastError",
    "Invalid",
    "Job",
    "JobFailed",
    "NotFound",
    "OnExhausted",
    "PermanentError",
    "Retry",
    "Snooze",
    "State",
    "Task",
    "TaskHandle",
    "TransientError",
    "Unavailable",
    "ValidationError",
    "command",
    "study",
]

_HOMES = {
    "core.errors": "Conflict Corrupt Denied Exhausted Fenced HoldfastError Invalid NotFound Unavailable",
    "core.job": "Job",
    "core.manifest": "Task study",
    "core.outputs": "File",
    "core.retry": "OnExhausted Retry",
    "core.state": "State",
    "runner.call": "Call",
    "runner.context": "Context",
    "runner.errors": "Cancelled PermanentError Snooze TransientError ValidationError",
    "runner.task_handle": "TaskHandle",
    "sdk.app": "App",
    "sdk.async_client": "AsyncClient",
    "sdk.client": "Client",
    "sdk.handle": "Handle JobFailed",
    "sdk.job_calls": "command",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # so that a name that is not there is an error to the type checker

    def __getattr__(name: str) -> object:
        """Import a public name on first use: the command line needs few of them."""
        if name not in _HOME:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(f"holdfast.{_HOME[name]}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
