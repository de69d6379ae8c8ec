"""The output ports: where results are kept, and what is asked about the outputs of a job."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from holdfast.core.job import Job
from holdfast.core.outputs import Output
from holdfast.ports.registry import Request


class Digest(Struct, frozen=True):
    """What the bytes of an object are known by."""

    size: int
    sha256: str


class Outputs(Protocol):
    """An output store: objects under paths such as `token/v1/sims/…/seed_7/result.json`.

    A write is atomic and durable when it returns: a reader finds the whole object or none, never a part.
    Writing again replaces. Whatever keeps us from seeing the store (it does not answer, it is not
    mounted, another one is in its place) is `Unavailable` with the reason: never "not there".
    """

    @property
    def store_id(self) -> str:
        """The name of this store, made once and kept in it: the same wherever it is mounted."""
        ...

    @property
    def place(self) -> str:
        """Where it is, for people: a URL without secrets."""
        ...

    async def put(self, path: str, body: bytes) -> None: ...

    async def create(self, path: str, body: bytes) -> bool:
        """As `put`, unless there is an object already: it stays, and the answer is False. It is True
        when that one has these very bytes: we may have written it, and not have heard of it."""
        ...

    async def put_file(self, path: str, source: Path) -> None:
        """As `put`, of a file that may be too large for memory."""
        ...

    async def get(self, path: str) -> bytes | None:
        """The whole object, or None when there is none."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """As `get`, of many small objects in one go: a validation lives by this."""
        ...

    async def digests(self, paths: Sequence[str]) -> list[Digest | None]:
        """The size and the checksum of each object, of its very bytes, in one go; None for none."""
        ...

    def read(self, path: str) -> AsyncIterator[bytes]:
        """The object in parts; `NotFound` when there is none. What is read is of one version."""
        ...

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """The objects below `prefix` with their sizes, in no order."""
        ...

    async def delete(self, path: str) -> None:
        """Remove the object, if it is there."""
        ...

    async def verify(self) -> None:
        """Look whether it is still the store that was opened, or raise `Unavailable`."""
        ...

    async def close(self) -> None: ...


class OutputPage(Struct, frozen=True, kw_only=True):
    """Some promised outputs of a job, in the order of the promise, and the cursor of the next page (None
    after the last). `checked` is False before anybody has looked: then none is known to be there."""

    outputs: tuple[Output, ...]
    next: str | None = None
    checked: bool = True


class Resumption(Struct, frozen=True, kw_only=True):
    """What resuming a job makes: how many outputs again, of which the first few are named, and the job,
    unless it was only asked what it would be, or nothing is missing. `earlier`: another resume made it."""

    missing: int
    names: tuple[str, ...] = ()
    job: Job | None = None
    earlier: bool = False


class Inspector(Protocol):
    """What is asked about the outputs of jobs, by whoever can see them: here, or at a server."""

    async def outputs(
        self,
        job_id: str,
        *,
        missing: bool = False,
        after: str | None = None,
        limit: int = 1000,
    ) -> OutputPage:
        """The promised outputs, as the last validation saw them; `missing`, only those that lack."""
        ...

    async def validate(self, job_id: str, *, actor: str, force: bool = False) -> Job:
        """Look for the outputs now, and judge the job: as it is afterwards. Without `force` a job that
        is not due for it stays as it is. It comes back `validating`, its `check` saying why, when the
        outputs cannot be seen."""
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
        """Look what is missing of an ended job, and make a job of exactly that; unless one does that
        already, which is the answer then, but not with `again`. `Unavailable` when nobody has ever seen
        its outputs, nor can now."""
        ...

    async def submit(self, request: Request, *, actor: str, reuse: bool = False) -> Job:
        """Enqueue, unless all that the job promises is there: then a job `cached-…` is made that has
        succeeded, and nothing runs. A plain path without a checksum does not say what it was made from:
        it counts only where somebody says so (`reuse`), and only on this machine."""
        ...

    async def keep(self, lines: AsyncIterator[bytes]) -> tuple[str, int]:
        """Keep a manifest, one JSON document a line, in the output store: its sha256 and its length.
        `Invalid` names the first line that is wrong."""
        ...
