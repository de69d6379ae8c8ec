"""The remote inspector: the outputs of jobs, as a server sees them."""

from collections.abc import AsyncIterator
from typing import cast

from msgspec.structs import replace

from holdfast.core.errors import Exhausted
from holdfast.core.job import Job
from holdfast.ports import Ids, JobRequest, OutputPage, Resumption
from holdfast.system import SystemIds
from holdfast.wire import requests, responses
from holdfast.wire.server_connection import ServerConnection
from holdfast.wire.verb_client import MESSAGE_BYTES, VerbClient, check_count

SCAN_MS = 35_000
"""How long a server may take: it returns after 25 s at the latest, and continues to scan."""


class RemoteInspector:
    """The inspector of a server, which sees its own output store and not the files of this machine."""

    def __init__(self, connection: ServerConnection, ids: Ids | None = None) -> None:
        self._client = VerbClient(connection, ids or SystemIds())

    async def list_outputs(
        self,
        job_id: str,
        *,
        missing: bool = False,
        after: str | None = None,
        limit: int = 1000,
    ) -> OutputPage:
        request = requests.ListOutputs(job_id=job_id, missing=missing, after=after, limit=limit)
        page = await self._client.call("list_outputs", request, timeout_ms=SCAN_MS)
        return cast("OutputPage", page)

    async def validate(self, job_id: str, *, actor: str, force: bool = False) -> Job:
        """Return the job when the server has scanned, or after 25 s, while the server continues."""
        request = requests.Validate(job_id=job_id, actor=actor, force=force)
        response: responses.JobResponse = await self._client.call("validate", request, timeout_ms=SCAN_MS)
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
        op_id = self._client.op_id_or_new(resume_id)
        request = requests.Resume(job_id=job_id, actor=actor, op_id=op_id, dry_run=dry_run, again=again)
        return cast("Resumption", await self._client.call("resume", request))

    async def submit(self, request: JobRequest, *, actor: str, reuse: bool = False) -> Job:
        if request.job_id is None and request.request_id is None:
            request = replace(request, request_id=self._client.op_id_or_new(None))
        # In an Enqueue, `reuse` means submit. Our `reuse` is about plain paths, and a server sees none.
        sent = requests.Enqueue(requests=(request,), actor=actor, reuse=True)
        made: responses.JobList = await self._client.call("enqueue", sent, timeout_ms=SCAN_MS)
        [job] = check_count(sent.requests, made.jobs)
        return job

    async def store_manifest(self, lines: AsyncIterator[bytes]) -> tuple[str, int]:
        """Store a manifest that fits one request; raise `Exhausted` for a larger one."""
        texts: list[str] = []
        size = 0
        async for line in lines:
            size += len(line) + 5
            if size > MESSAGE_BYTES:
                raise Exhausted(
                    f"A manifest of more than {MESSAGE_BYTES // 1024} KiB is too large for a server:"
                    " give --outputs with the server's output store, and it is stored there directly."
                )
            texts.append(line.decode().rstrip("\n"))
        request = requests.StoreManifest(lines=tuple(texts))
        kept: responses.StoredManifest = await self._client.call(
            "store_manifest", request, timeout_ms=SCAN_MS
        )
        return kept.sha256, kept.entries
