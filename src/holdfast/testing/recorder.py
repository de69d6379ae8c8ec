"""The recorder: the calls of a registry and their responses, as lines that a checker can join."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast, get_type_hints

import msgspec
from msgspec.structs import replace

from holdfast.core.derived_ids import derived_id
from holdfast.core.errors import Corrupt, HoldfastError, NotFound, Unavailable
from holdfast.core.job import Job
from holdfast.ports import Grant, Ids, JobRequest, Registry
from holdfast.testing.history import Entry, Shown
from holdfast.testing.port_methods import Call, Intercepted, async_methods


class Recorder(Registry, Protocol):
    """A registry whose calls about one job, and whose claims, are recorded."""

    @property
    def operations(self) -> int:
        """How many calls were recorded."""
        ...


def recorded(
    registry: Registry,
    ids: Ids,
    keep: Callable[[Entry], object],
    *,
    process: str,
    now_ns: Callable[[], int] = time.monotonic_ns,
) -> Recorder:
    """Return the registry with its calls recorded. A mutation without an op_id gets one, so that it can be
    found in the log. Calls about many jobs are not recorded: a history with them is not complete."""
    return cast("Recorder", _Recorder(registry, ids, keep, process, now_ns))


class _Recorder(Intercepted[Registry]):
    def __init__(
        self,
        registry: Registry,
        ids: Ids,
        keep: Callable[[Entry], object],
        process: str,
        now_ns: Callable[[], int],
    ) -> None:
        super().__init__(Registry, registry, self._record)
        self._ids = ids
        self._keep = keep
        self._process = process
        self._now_ns = now_ns
        self.operations = 0

    async def _record(self, call: Call) -> Any:
        if call.name not in _recorded_verbs():
            return await call.send()
        self.operations += 1
        given, number = call.given, self.operations
        if call.name == Registry.enqueue.__name__:
            given["request"], job_id, op_id = self._named(given["request"])
        else:
            if "op_id" in given and given["op_id"] is None:
                given["op_id"] = self._ids.new()
            job_id, op_id = given.get("job_id"), given.get("op_id")
        grant: Grant | None = given.get("grant")
        if grant is not None:
            job_id = grant.job_id
        invocation = Entry(
            process=self._process,
            number=number,
            at_ns=self._now_ns(),
            type="invoke",
            verb=call.name,
            op_id=op_id,
            job_id=job_id,
            token=grant.fencing_token if grant else None,
            limit=given.get("limit", 1),
        )
        self._keep(invocation)
        try:
            response = await call.send()
        except BaseException as error:
            self._keep(_refusal(self._process, number, self._now_ns(), job_id, error))
            raise
        at_ns, shown = self._now_ns(), tuple(_shown(response))
        self._keep(Entry(process=self._process, number=number, at_ns=at_ns, type="ok", shown=shown))
        return response

    def _named(self, request: JobRequest) -> tuple[JobRequest, str | None, str | None]:
        """Return the request, its job_id, and the id by which its event is found."""
        if request.request_id is not None:
            op_id = request.request_id
            return request, derived_id(request.spec.queue, op_id), op_id
        if request.job_id is None:
            request = replace(request, job_id=self._ids.new())
        return request, request.job_id, request.job_id


@cache
def _recorded_verbs() -> frozenset[str]:
    """Return the verbs of the port that return a job, a grant, or the grants of a claim."""
    return frozenset(
        name
        for name, method in async_methods(Registry).items()
        if get_type_hints(method)["return"] in (Job, Grant, list[Grant])
    )


def _shown(response: Job | Grant | list[Grant]) -> Iterator[Shown]:
    for one in response if isinstance(response, list) else [response]:
        job = one.job if isinstance(one, Grant) else one
        yield Shown(job.job_id, job.version, job.fencing_token, job.state)


def _refusal(process: str, number: int, at_ns: int, job_id: str | None, error: BaseException) -> Entry:
    """Return the entry of an error: `fail` if certainly nothing was applied, else `info`."""
    definite = isinstance(error, HoldfastError) and not isinstance(error, Corrupt)
    if isinstance(error, Unavailable):
        definite = error.applied == "no"
    version = 0 if isinstance(error, NotFound) else getattr(error, "version", None)
    return Entry(
        process=process,
        number=number,
        at_ns=at_ns,
        type="fail" if definite else "info",
        shown=() if job_id is None or version is None or not definite else (Shown(job_id, version),),
        error=type(error).__name__,
    )


class LineFile:
    """A file of lines. Each is written at once, so that a killed process loses none."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._encode = msgspec.json.Encoder().encode

    def keep(self, entry: Entry) -> None:
        os.write(self._file, self._encode(entry) + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read_lines(paths: Iterable[Path]) -> Iterator[Entry]:
    decoder = msgspec.json.Decoder(Entry)
    for path in paths:
        yield from decoder.decode_lines(path.read_bytes())
