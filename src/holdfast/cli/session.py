"""One command's session with a registry: open, do one thing, close; and how errors are reported."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from holdfast.cli.exit_codes import error_exit
from holdfast.cli.options import chosen_store
from holdfast.cli.terminal import note
from holdfast.cli.terminal_escape import plain
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
from holdfast.ports import JobFilter, JobPage, Registry
from holdfast.sdk.open import open_registry
from holdfast.sdk.store_url import shown_url

T = TypeVar("T")


def run(work: Callable[[Registry], Awaitable[T]], *, create: bool = False) -> T:
    """Return what `work` returns for the chosen registry. Only with `create` is a new store made."""
    return asyncio.run(_session(chosen_store(), work, create=create))


async def _session(url: str, work: Callable[[Registry], Awaitable[T]], *, create: bool) -> T:
    registry = await open_registry(url, create=create)
    try:
        return await work(registry)
    finally:
        await registry.close()


def explain_error(error: Exception) -> int:
    """Print what happened and what to do on stderr; return the exit code. Raise what is a bug."""
    if not isinstance(error, HoldfastError | OSError):
        raise error
    message = error.message if isinstance(error, HoldfastError) else str(error)
    note(f"Error: {plain(message)}")
    note(advice(error))
    return error_exit(error)


def advice(error: HoldfastError | OSError) -> str:
    """Return what to do: the advice of the error itself, else that for its class at the command line."""
    if isinstance(error, HoldfastError) and error.advised:
        return plain(error.advice)
    job = plain(error.job_id) if isinstance(error, HoldfastError) and error.job_id else None
    match error:
        case NotFound() if job is not None:
            return f"Check the id: holdfast list shows the jobs in {plain(shown_url(chosen_store()))}."
        case NotFound():
            return "Check the name; nothing was changed."
        case Invalid():
            return "Correct the request; --help after the command shows what it takes."
        case Conflict() if job is not None:
            return f"See its current state: holdfast status {job}"
        case Conflict():
            return "Nothing was changed; --help after the command shows what else it takes."
        case Unavailable(applied="unknown"):
            return "It may or may not have been done: check with holdfast status before you repeat it."
        case Unavailable():
            return "Nothing was changed; correct that, or try again in a moment."
        case Exhausted():
            return "Wait a little, then try again."
        case Denied():
            return "Ask the owner of the store for the right to do this."
        case Corrupt():
            return "Stop its workers and keep the damaged store as it is: much of it may be readable."
        case Fenced() | HoldfastError():
            return error.advice
        case _:
            return "Check that the path exists and that you may read and write it."


async def filled_page(
    registry: Registry, which: JobFilter, after: str | None, limit: int, *, newest: bool = False
) -> JobPage:
    """Return the next page that has a job on it, or the last page: a store may also end a page because it
    has read many jobs that do not match."""
    while True:
        page = await registry.list_jobs(which, after=after, limit=limit, newest=newest)
        if page.jobs or page.next is None:
            return page
        after = page.next


def absolute_folder(path: str | None) -> str:
    """Return the folder that a command runs in: the current one, unless another is named."""
    return str(Path(path or ".").absolute())
