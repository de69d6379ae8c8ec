"""The client for plain functions: as `AsyncClient`, but every call blocks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from holdfast.core.durations import Duration
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.spec import Json
from holdfast.core.state import State
from holdfast.runner.call import Call
from holdfast.sdk.async_client import AsyncClient, ListOptions, LogOptions, OutputChunk
from holdfast.sdk.background import BackgroundClient
from holdfast.sdk.caller_connection import blocking_connection
from holdfast.sdk.defaults import chosen_url
from holdfast.sdk.handle import Handle, handles
from holdfast.sdk.job_calls import check_calls, command, make_call, one_connection
from holdfast.sdk.job_options import CommandOptions, Options
from holdfast.sdk.open import check_exists
from holdfast.sdk.option_signature import with_options_of

R = TypeVar("R")


_NO_STORE = "Check the URL, and the folder that this runs in; the first job that is enqueued makes the store."


class Client:
    """The registry for code that submits and watches jobs. Every thread may use it.

        with holdfast.Client("sqlite:///jobs.db") as client:
            handle = client.enqueue("resize", {"path": "a.png"})
            print(handle.result(timeout=60))

    The store is opened by the first call and closed by `close`, at the latest at exit. A file that does not
    exist is made by the first job; until then, all other calls raise `NotFound`.
    """

    def __init__(self, url: str | None = None, *, outputs: str | None = None) -> None:
        self.url = chosen_url(url)
        self._background = BackgroundClient(lambda: AsyncClient(self.url, outputs=outputs))

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, if it is open. The next call opens it again."""
        self._background.close()

    @property
    def _existing(self) -> BackgroundClient:
        """The background, for calls that create no store: a slip in a URL must not make an empty file."""
        if not self._background.open:
            check_exists(self.url, advice=_NO_STORE)
        return self._background

    @overload
    def enqueue(
        self, call: Call[R], /, *, connection: object = None, **options: Unpack[Options]
    ) -> Handle[R]: ...
    @overload
    def enqueue(
        self,
        kind: str,
        arguments: Mapping[str, Json] | None = None,
        /,
        *,
        connection: object = None,
        **options: Unpack[Options],
    ) -> Handle[Any]: ...
    @with_options_of(Options)
    def enqueue(
        self,
        what: Call[Any] | str,
        arguments: Mapping[str, Json] | None = None,
        /,
        *,
        connection: object = None,
        **options: Unpack[Options],
    ) -> Handle[Any]:
        """Create a job: from a checked call, or from a kind and its keyword arguments, which only the worker
        can check then. The other options are those of `JobFunction.configure`."""
        return self.enqueue_many([make_call(what, arguments, options)], connection=connection)[0]

    def enqueue_many(self, calls: Iterable[Call[R]], *, connection: object = None) -> list[Handle[R]]:
        """Create many jobs, all checked before any is created, in as few commits as possible."""
        checked = check_calls(calls)
        connection = one_connection(checked, connection)
        if connection is not None:
            connection = blocking_connection(connection)
        jobs = self._background.call(lambda client: client.create_jobs_on(connection, checked))
        return handles(jobs, [call.result_type for call in checked], self._background)

    @with_options_of(CommandOptions, Options)
    def submit(
        self,
        argv: Sequence[str],
        **options: Unpack[CommandOptions],
    ) -> Handle[Any]:
        """Create a job that runs a command; `holdfast.command` takes the same arguments."""
        return self.enqueue_many([command(argv, **options)])[0]

    def status(self, job_id: str) -> Job:
        """Return the job as it is now; `NotFound` when there is none."""
        return self._existing.call(lambda client: client.status(job_id))

    def wait(self, job_id: str, timeout: Duration | None = None) -> Job:
        """Return the job once it has ended; `TimeoutError` when that takes longer than `timeout`."""
        return self._existing.call(lambda client: client.wait(job_id, timeout))

    def result(self, job_id: str, timeout: Duration | None = None) -> Json:
        """Return the result of the job; `JobFailed` when it did not succeed, `TimeoutError` as in `wait`."""
        return self._existing.call(lambda client: client.result(job_id, timeout))

    def cancel(self, job_id: str, *, hard: bool = False, reason: str | None = None) -> Job:
        """Ask the job to stop; with `hard`, end it now. Returns the job after that."""
        return self._existing.call(lambda client: client.cancel(job_id, hard=hard, reason=reason))

    def why(self, job_id: str) -> str:
        """Return why the job is in its state, and what happens next, in a sentence."""
        return self._existing.call(lambda client: client.why(job_id))

    def counts(self, queue: str | None = None) -> dict[State, int]:
        """Return how many jobs are in each state."""
        return self._existing.call(lambda client: client.counts(queue))

    @with_options_of(ListOptions)
    def list(self, **which: Unpack[ListOptions]) -> Iterator[Job]:
        """Yield all jobs that match, page after page, the oldest first; at most `limit`."""
        for page in self._existing.stream(lambda client: client.pages(which)):
            yield from page

    @with_options_of(ListOptions)
    def results(self, **which: Unpack[ListOptions]) -> Iterator[Any]:
        """Yield the result of every job that succeeded and matches, the oldest first: the rows of a table."""
        for page in self._existing.stream(lambda client: client.result_pages(which)):
            yield from page

    def events(self, job_id: str | None = None, *, after: str | None = None) -> Iterator[Event]:
        """Yield every event as it happens; see `AsyncClient.events`."""
        return self._existing.stream(lambda client: client.events(job_id, after=after))

    @with_options_of(LogOptions)
    def logs(self, job_id: str, **part: Unpack[LogOptions]) -> Iterator[OutputChunk]:
        """Yield the output of the job, piece by piece; see `AsyncClient.logs`."""
        return self._existing.stream(lambda client: client.logs(job_id, **part))
