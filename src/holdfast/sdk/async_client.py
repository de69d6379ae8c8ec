"""The client for coroutines: it creates jobs, and watches them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack, overload

from msgspec import Struct

from holdfast.core.arguments import argument_text
from holdfast.core.durations import Duration, parse_duration
from holdfast.core.errors import Invalid
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.core.limits import PAGE_ITEMS_MAX
from holdfast.core.output_chunks import chunks_of
from holdfast.core.output_part import OutputPart
from holdfast.core.spec import Json
from holdfast.core.state import State
from holdfast.outputs.lazy import LazyOutputs
from holdfast.ports import EnqueuedJobs, JobFilter, Registry
from holdfast.runner.call import Call
from holdfast.runner.json_forms import typed_form
from holdfast.sdk.caller_connection import async_connection
from holdfast.sdk.defaults import actor, chosen_url, warn_of_unused_store
from holdfast.sdk.handle import Handle, handles, result_of
from holdfast.sdk.job_calls import check_calls, command, make_call, one_connection
from holdfast.sdk.job_options import CommandOptions, Options
from holdfast.sdk.job_submission import JobSubmission, TracedSubmission
from holdfast.sdk.open import open_registry
from holdfast.sdk.option_signature import with_options_of
from holdfast.sdk.output_store import lazy_outputs
from holdfast.sdk.stored_results import with_stored_result

T = TypeVar("T")
R = TypeVar("R")

Opener: TypeAlias = Callable[[str], Awaitable[Registry]]
"""A function that opens the registry behind a URL."""

_OUTPUT_PAGE = 50  # events of up to 64 kB each: a page stays near 3 MB


class OutputChunk(Struct, frozen=True):
    """A piece of the output of a job, as bytes; `stream` is stdout or stderr."""

    stream: str
    """`stdout` or `stderr`, or a name that the handler gave."""
    data: bytes
    """The bytes, as they were written."""
    attempt: int | None = None
    """The attempt that wrote them."""

    @property
    def text(self) -> str:
        """The bytes as text."""
        return self.data.decode(errors="replace")


class LogOptions(TypedDict, total=False):
    """Which output is read; all of it by default, until the job ends."""

    follow: bool
    """Whether to go on until the job ends."""
    tail: int | None
    """Begin at the last lines so far, this many."""
    since: Duration | datetime | None
    """Begin at what is no older than this, or was written then or later."""
    attempt: int | None
    """Only the output of this attempt."""
    stream: str | None
    """Only this stream."""


class ListOptions(TypedDict, total=False):
    """Which jobs are listed; all of them by default."""

    queue: str | None
    """Only jobs of this queue."""
    kind: str | None
    """Only jobs of this kind."""
    name: str | None
    """Only jobs of this name."""
    states: Iterable[State | str]
    """Only jobs in one of these states."""
    owner: str | None
    """Only jobs that this worker has."""
    labels: Mapping[str, str]
    """Only jobs with all of these labels."""
    arguments: Mapping[str, object]
    """Only jobs whose function has these arguments."""
    limit: int | None
    """At most so many."""
    newest: bool
    """The newest first."""


class AsyncClient:
    """The registry for code that submits and watches jobs, on the loop that opens it.

    async with holdfast.AsyncClient("sqlite:///jobs.db") as client:
        handle = await client.enqueue("resize", {"path": "a.png"})
        print(await handle.result_async(timeout=60))
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        outputs: str | None = None,
        opener: Opener = open_registry,
    ) -> None:
        self.url = chosen_url(url)
        warn_of_unused_store(self.url)
        self._outputs = outputs
        self._submission: JobSubmission | None = None
        self._result_outputs: LazyOutputs | None = None
        self._opener = opener
        self._opened: Registry | None = None

    async def __aenter__(self) -> "AsyncClient":
        if self._opened is None:
            self._opened = await self._opener(self.url)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store; `async with` does so at its end."""
        registry, self._opened = self._opened, None
        submission, self._submission = self._submission, None
        stored, self._result_outputs = self._result_outputs, None
        if stored is not None:
            await stored.close()
        if submission is not None:
            await submission.close()
        if registry is not None:
            await registry.close()

    @property
    def registry(self) -> Registry:
        """The registry itself, for what has no method here."""
        if self._opened is None:
            raise Invalid("The client is not open: async with holdfast.AsyncClient(url) as client.")
        return self._opened

    @overload
    async def enqueue(
        self, call: Call[R], /, *, connection: object = None, **options: Unpack[Options]
    ) -> Handle[R]: ...
    @overload
    async def enqueue(
        self,
        kind: str,
        arguments: Mapping[str, Json] | None = None,
        /,
        *,
        connection: object = None,
        **options: Unpack[Options],
    ) -> Handle[Any]: ...
    @with_options_of(Options)
    async def enqueue(
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
        call = make_call(what, arguments, options)
        jobs = await self.create_jobs([call], connection=connection)
        return handles(jobs, [call.result_type], _ThisLoop(self))[0]

    async def enqueue_many(self, calls: Iterable[Call[R]], *, connection: object = None) -> list[Handle[R]]:
        """Create many jobs, all checked before any is created, in as few commits as possible."""
        checked = check_calls(calls)
        jobs = await self.create_jobs(checked, connection=connection)
        return handles(jobs, [call.result_type for call in checked], _ThisLoop(self))

    async def create_jobs(self, calls: Sequence[Call[object]], *, connection: object = None) -> EnqueuedJobs:
        """As `enqueue_many`, but return the plain jobs."""
        if (connection := one_connection(calls, connection)) is not None:
            connection = await async_connection(connection)
        return await self.create_jobs_on(connection, calls)

    async def create_jobs_on(self, connection: object, calls: Sequence[Call[object]]) -> EnqueuedJobs:
        """As `create_jobs`, in the transaction of a driver's connection, whatever the calls name, if there is
        one."""
        if any(call.promised is not None for call in calls):
            self._submission = self._submission or JobSubmission(self.registry, self.url, self._outputs)
            return await self._submission.create(calls, connection)
        with TracedSubmission([call.request for call in calls]) as requests:
            if len(requests) == 1 and requests[0].request_id is None and requests[0].job_id is None:
                return EnqueuedJobs(
                    [await self.registry.enqueue(requests[0], actor=actor(), connection=connection)]
                )
            return await self.registry.enqueue_many(requests, actor=actor(), connection=connection)

    @with_options_of(CommandOptions, Options)
    async def submit(
        self,
        argv: Sequence[str],
        **options: Unpack[CommandOptions],
    ) -> Handle[Any]:
        """Create a job that runs a command; `holdfast.command` takes the same arguments."""
        return handles(await self.create_jobs([command(argv, **options)]), [Any], _ThisLoop(self))[0]

    async def status(self, job_id: str) -> Job:
        """Return the job as it is now; `NotFound` when there is none."""
        return await self.registry.status(job_id)

    async def wait(self, job_id: str, timeout: Duration | None = None) -> Job:  # noqa: ASYNC109
        """Return the job once it has ended; `TimeoutError` when that takes longer than `timeout`."""
        seconds = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self.registry.wait(job_id)
        except TimeoutError:
            job = await self.registry.status(job_id)
            if job.ended:
                return job
            raise TimeoutError(f"Job {job_id} is still {job.state} after {seconds:g} s.") from None

    async def result(self, job_id: str, timeout: Duration | None = None) -> Json:  # noqa: ASYNC109
        """Return the result of the job; `JobFailed` when it did not succeed, `TimeoutError` as in `wait`."""
        return result_of(await self.wait_result(job_id, timeout))

    async def wait_result(self, job_id: str, timeout: Duration | None = None) -> Job:  # noqa: ASYNC109
        """As `wait`, with the whole result of the job, wherever it is stored."""
        return await self._with_result(await self.wait(job_id, timeout))

    async def _with_result(self, job: Job) -> Job:
        if not isinstance(job.result, dict):
            return job
        if self._result_outputs is None:
            self._result_outputs = lazy_outputs(self.url, self._outputs)
        return await with_stored_result(job, self.registry, self._result_outputs)

    async def cancel(self, job_id: str, *, hard: bool = False, reason: str | None = None) -> Job:
        """Ask the job to stop; with `hard`, end it now. Returns the job after that."""
        return await self.registry.cancel(job_id, actor=actor(), hard=hard, reason=reason)

    async def why(self, job_id: str) -> str:
        """Return why the job is in its state, and what happens next, in a sentence."""
        return await self.registry.why(job_id)

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        """Return how many jobs are in each state."""
        return await self.registry.counts(queue)

    @with_options_of(ListOptions)
    async def list(self, **which: Unpack[ListOptions]) -> AsyncGenerator[Job, None]:
        """Yield all jobs that match, page after page, the oldest first; at most `limit`."""
        async with aclosing(self.pages(which)) as pages:
            async for page in pages:
                for job in page:
                    yield job

    @with_options_of(ListOptions)
    async def results(self, **which: Unpack[ListOptions]) -> AsyncGenerator[Any, None]:
        """Yield the result of every job that succeeded and matches, the oldest first: the rows of a table."""
        async with aclosing(self.result_pages(which)) as pages:
            async for page in pages:
                for result in page:
                    yield result

    async def result_pages(self, which: ListOptions) -> AsyncGenerator[tuple[Any, ...], None]:
        """As `results`, a page at a time."""
        async with aclosing(self.pages({**which, "states": [State.SUCCEEDED]})) as pages:
            async for page in pages:
                yield tuple([result_of(await self._with_result(job)) for job in page])

    async def pages(self, which: ListOptions) -> AsyncGenerator[tuple[Job, ...], None]:
        """As `list`, a page at a time."""
        left, chosen, newest = which.get("limit"), _filter(which), which.get("newest", False)
        cursor: str | None = None
        while left is None or left > 0:
            size = PAGE_ITEMS_MAX if left is None else min(left, PAGE_ITEMS_MAX)
            page = await self.registry.list_jobs(chosen, after=cursor, limit=size, newest=newest)
            yield page.jobs
            left = None if left is None else left - len(page.jobs)
            cursor = page.next
            if cursor is None:
                return

    def events(self, job_id: str | None = None, *, after: str | None = None) -> AsyncGenerator[Event, None]:
        """Yield every event as it happens, from the beginning or after a cursor. The stream of one job
        ends with the job; that of all jobs goes on until you leave it."""
        return self.registry.watch(job_id, after=after)

    @with_options_of(LogOptions)
    async def logs(self, job_id: str, **part: Unpack[LogOptions]) -> AsyncGenerator[OutputChunk, None]:
        """Yield the output of the job, piece by piece, until it ends; with `follow=False`, what exists now.

        `tail` begins at its last lines, `since` at what was written then or later, or is no older than that;
        `attempt` and `stream` leave out what is of others.
        """
        since = part.get("since")
        if since is not None and not isinstance(since, datetime):
            since = await self.registry.now() - parse_duration(since, "since")
        chosen = OutputPart(
            tail=part.get("tail"), since=since, attempt=part.get("attempt"), stream=part.get("stream")
        )
        async with aclosing(self._events_of(job_id, chosen, follow=part.get("follow", True))) as events:
            async for event in events:
                for piece in chunks_of(event):
                    if piece.data:
                        yield OutputChunk(piece.stream, piece.data, event.attempt)

    async def _events_of(self, job_id: str, part: OutputPart, *, follow: bool) -> AsyncGenerator[Event, None]:
        """Yield the events with this part of the output."""
        cursor: str | None = None
        tail, since = part.tail, part.since
        while True:
            page = await self.registry.logs(
                job_id,
                after=cursor,
                limit=_OUTPUT_PAGE,
                tail=tail,
                since=since,
                attempt=part.attempt,
                stream=part.stream,
            )
            for event in page.events:
                yield event
            cursor, tail, since = page.cursor, None, None
            if not page.events:
                break
        if follow:
            async with aclosing(self.registry.watch(job_id, after=cursor)) as rest:
                async for event in rest:
                    if (kept := part.of(event)) is not None:
                        yield kept


class _ThisLoop:
    """Access to a client on the caller's own loop, where nothing may block."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def call(self, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
        raise Invalid(
            "This job was enqueued by an AsyncClient: use the form for coroutines, such as result_async."
        )

    async def call_async(self, work: Callable[[AsyncClient], Awaitable[T]], *, here: bool = False) -> T:
        return await work(self._client)


def _filter(which: ListOptions) -> JobFilter:
    try:
        states = tuple(State(state) for state in which.get("states", ()))
    except ValueError as error:
        known = ", ".join(State)
        raise Invalid(f"{error}; a state is one of {known}.") from None
    return JobFilter(
        queue=which.get("queue"),
        kind=which.get("kind"),
        name=which.get("name"),
        states=states,
        owner=which.get("owner"),
        labels=dict(which.get("labels", {})),
        arguments={name: _argument_text(name, one) for name, one in which.get("arguments", {}).items()},
    )


def _argument_text(name: str, value: object) -> str:
    """Return the text by which jobs with this argument are found, as `enqueue` writes it."""
    try:
        return argument_text(name, typed_form(value, arrays=False))
    except TypeError as error:
        raise Invalid(f"arguments: {name}: cannot be written as JSON: {error}.") from error
