"""The remote inspector: what is asked about the outputs of jobs, answered by a server that sees them."""

from collections.abc import AsyncIterator
from operator import attrgetter

from msgspec.structs import replace

from holdfast.core.errors import Exhausted
from holdfast.core.job import Job
from holdfast.ports import Ids, OutputPage, Request, Resumption
from holdfast.system import SystemIds
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.link import CHORE_MS, Link
from holdfast.wire.mapping import Mapping
from holdfast.wire.remote_owning import MESSAGE_BYTES, there
from holdfast.wire.values import JOB, OUTPUT, REQUEST

LOOK_MS = 35_000
"""How long a server may take: it answers after 25 s at the latest, and looks on."""

_PAGE = Mapping(OutputPage, pb.ListOutputsResponse, OUTPUT)
_RESUMPTION = Mapping(Resumption, pb.ResumeResponse, JOB)


class RemoteInspector:
    """Asks a server. What it sees is its own output store, not the files of this machine."""

    def __init__(self, link: Link, ids: Ids | None = None) -> None:
        self._link = link
        self._ids = ids or SystemIds()

    async def outputs(
        self,
        job_id: str,
        *,
        missing: bool = False,
        after: str | None = None,
        limit: int = 1000,
    ) -> OutputPage:
        asked = pb.ListOutputsRequest(job_id=job_id, missing=missing, after=after, limit=limit)
        answer = await self._link.call(attrgetter("list_outputs"), asked, timeout_ms=LOOK_MS)
        return _PAGE.read(answer)

    async def validate(self, job_id: str, *, actor: str, force: bool = False) -> Job:
        """As it is when the server has looked, or after 25 s, while the server looks on."""
        asked = pb.ValidateRequest(job_id=job_id, actor=actor, force=force)
        answer = await self._link.call(attrgetter("validate"), asked, timeout_ms=LOOK_MS)
        return JOB.read(there(answer.job))

    async def resume(
        self,
        job_id: str,
        *,
        actor: str,
        resume_id: str | None = None,
        dry_run: bool = False,
        again: bool = False,
    ) -> Resumption:
        asked = pb.ResumeRequest(
            job_id=job_id,
            actor=actor,
            op_id=resume_id or self._ids.new(),
            dry_run=dry_run,
            again=again,
        )
        answer = await self._link.call(attrgetter("resume"), asked, timeout_ms=CHORE_MS)
        return _RESUMPTION.read(answer)

    async def submit(self, request: Request, *, actor: str, reuse: bool = False) -> Job:
        if request.job_id is None and request.request_id is None:
            request = replace(request, request_id=self._ids.new())
        asked = pb.EnqueueRequest(requests=[REQUEST.encode(request)], actor=actor, reuse=True)
        answer = await self._link.call(attrgetter("enqueue"), asked, timeout_ms=LOOK_MS)
        return JOB.read(there(answer.jobs[0] if answer.jobs else None))

    async def keep(self, lines: AsyncIterator[bytes]) -> tuple[str, int]:
        """For a manifest that fits one request; a larger one is kept where its store is."""
        told: list[str] = []
        size = 0
        async for line in lines:
            text = line.decode().rstrip("\n")
            size += len(line) + 5
            if size > MESSAGE_BYTES:
                raise Exhausted(
                    f"A manifest of more than {MESSAGE_BYTES // 1024} KiB is too large for a server:"
                    " give --outputs with the server's output store, and it is kept there at once."
                )
            told.append(text)
        answer = await self._link.call(
            attrgetter("keep_manifest"), pb.KeepManifestRequest(lines=told), timeout_ms=LOOK_MS
        )
        return answer.sha256, answer.entries
