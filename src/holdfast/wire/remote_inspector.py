"""The remote inspector: questions about the outputs of jobs, answered by a server that sees them."""

from collections.abc import AsyncIterator
from typing import cast

from msgspec.structs import replace

from holdfast.core.errors import Exhausted
from holdfast.core.job import Job
from holdfast.ports import Ids, OutputPage, Request, Resumption
from holdfast.system import SystemIds
from holdfast.wire import answers, asks
from holdfast.wire.caller import MESSAGE_BYTES, Caller, one_each
from holdfast.wire.link import Link

SCAN_MS = 35_000
"""How long a server may take: it returns after 25 s at the latest, and scans on."""


class RemoteInspector:
    """Asks a server. What it sees is its own output store, not the files of this machine."""

    def __init__(self, link: Link, ids: Ids | None = None) -> None:
        self._caller = Caller(link, ids or SystemIds())

    async def outputs(
        self,
        job_id: str,
        *,
        missing: bool = False,
        after: str | None = None,
        limit: int = 1000,
    ) -> OutputPage:
        request = asks.ListOutputs(job_id=job_id, missing=missing, after=after, limit=limit)
        page = await self._caller.call("list_outputs", request, timeout_ms=SCAN_MS)
        return cast("OutputPage", page)

    async def validate(self, job_id: str, *, actor: str, force: bool = False) -> Job:
        """Return the job when the server has scanned, or after 25 s, while the server scans on."""
        request = asks.Validate(job_id=job_id, actor=actor, force=force)
        response: answers.OfJob = await self._caller.call("validate", request, timeout_ms=SCAN_MS)
        return response.job

    async def resume(
        self,
        job_id: str,
        *,
        actor: str,
        resume_id: str | None = None,
        dry_run: bool = False,
        again: bool = False,
    ) -> Resumption:
        op_id = self._caller.op(resume_id)
        request = asks.Resume(job_id=job_id, actor=actor, op_id=op_id, dry_run=dry_run, again=again)
        return cast("Resumption", await self._caller.call("resume", request))

    async def submit(self, request: Request, *, actor: str, reuse: bool = False) -> Job:
        if request.job_id is None and request.request_id is None:
            request = replace(request, request_id=self._caller.op(None))
        sent = asks.Enqueue(requests=(request,), actor=actor, reuse=True)
        made: answers.OfJobs = await self._caller.call("enqueue", sent, timeout_ms=SCAN_MS)
        [job] = one_each(sent.requests, made.jobs)
        return job

    async def keep(self, lines: AsyncIterator[bytes]) -> tuple[str, int]:
        """For a manifest that fits one request; a larger one is stored where its store is."""
        texts: list[str] = []
        size = 0
        async for line in lines:
            size += len(line) + 5
            if size > MESSAGE_BYTES:
                raise Exhausted(
                    f"A manifest of more than {MESSAGE_BYTES // 1024} KiB is too large for a server:"
                    " give --outputs with the server's output store, and it is kept there at once."
                )
            texts.append(line.decode().rstrip("\n"))
        request = asks.KeepManifest(lines=tuple(texts))
        kept: answers.Kept = await self._caller.call("keep_manifest", request, timeout_ms=SCAN_MS)
        return kept.sha256, kept.entries
