"""The output ports: the store of results, and the operations on the outputs of a job."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from holdfast.core.job import Job
from holdfast.core.outputs import Output
from holdfast.ports.registry import JobRequest


class Digest(Struct, frozen=True):
    """The size and checksum of an object."""

    size: int
    sha256: str


class Outputs(Protocol):
    """An output store: objects under paths such as `token/v1/sims/…/seed_7/result.json`.

    A write is atomic and durable when it returns: a reader finds the whole object or none, never a part.
    Writing again replaces. When the store cannot be seen (it does not respond, it is not mounted, another
    one is in its place), every method raises `Unavailable` with the reason: an object is never reported as
    missing because of that.
    """

    @property
    def store_id(self) -> str:
        """The id of this store, made once and stored in it: the same wherever it is mounted."""
        ...

    @property
    def place(self) -> str:
        """Where it is, for people: a URL without secrets."""
        ...

    async def put(self, path: str, body: bytes) -> None: ...

    async def create(self, path: str, body: bytes) -> bool:
        """As `put`, but keep an existing object and return False. Return True if it has the same bytes: an
        earlier call may have written it without getting a response."""
        ...

    async def put_file(self, path: str, source: Path) -> None:
        """As `put`, of a file that may be too large for memory."""
        ...

    async def get(self, path: str) -> bytes | None:
        """Return the whole object, or None when there is none."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """As `get`, for many small objects at once: a validation needs this to be fast."""
        ...

    async def digests(self, paths: Sequence[str]) -> list[Digest | None]:
        """Return the size and the checksum of the bytes of each object; None where there is none."""
        ...

    def read(self, path: str) -> AsyncIterator[bytes]:
        """Yield the object in parts, all of one version; raise `NotFound` when there is none."""
        ...

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """Yield the objects below `prefix` with their sizes, in no order."""
        ...

    async def delete(self, path: str) -> None:
        """Remove the object, if it exists."""
        ...

    async def check_available(self) -> None:
        """Raise `Unavailable` unless this still is the store that was opened."""
        ...

    async def close(self) -> None: ...


class OutputPage(Struct, frozen=True, kw_only=True):
    """Some promised outputs of a job, in the order of the promise, and the cursor of the next page (None
    after the last). `checked` is False before the first validation: then no output is known to exist."""

    outputs: tuple[Output, ...]
    next: str | None = None
    checked: bool = True


class Resumption(Struct, frozen=True, kw_only=True):
    """The result of a resume: how many outputs are missing, the names of the first few, and the new job,
    which is None in a dry run or when nothing is missing. `earlier`: an earlier resume made the job."""

    missing: int
    names: tuple[str, ...] = ()
    job: Job | None = None
    earlier: bool = False


class Inspector(Protocol):
    """The operations on the outputs of jobs, in this process or at a server that can see them."""

    async def list_outputs(
        self,
        job_id: str,
        *,
        missing: bool = False,
        after: str | None = None,
        limit: int = 1000,
    ) -> OutputPage:
        """Return the promised outputs as the last validation saw them; with `missing`, only the missing
        ones."""
        ...

    async def validate(self, job_id: str, *, actor: str, force: bool = False) -> Job:
        """Validate the outputs now, and return the job after the verdict. Without `force`, a job that is
        not due for validation stays as it is. When the outputs cannot be seen, the job stays `validating`,
        and its `check` says why."""
        ...

    async def resume(
        self,
        job_id: str,
        *,
        actor: str,
        resume_id: str | None = None,
        dry_run: bool = False,
        again: bool = False,
    ) -> Resumption:
        """Find what is missing of an ended job, and create a job for exactly that. If an earlier resume
        does that already, return it, unless `again`. Raise `Unavailable` when the outputs were never
        validated and cannot be seen now."""
        ...

    async def submit(self, request: JobRequest, *, actor: str, reuse: bool = False) -> Job:
        """Enqueue, unless all promised outputs exist: then create a job `cached-…` that has succeeded, and
        run nothing. A plain path without a checksum does not tell what it was made from: it counts only
        with `reuse`, and only on this machine."""
        ...

    async def store_manifest(self, lines: AsyncIterator[bytes]) -> tuple[str, int]:
        """Store a manifest, one JSON document a line, in the output store; return its sha256 and its
        length. Raise `Invalid`, which names the first wrong line."""
        ...
