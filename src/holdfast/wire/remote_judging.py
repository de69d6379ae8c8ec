"""The remote registry, second part: the verdict on what jobs promised, given to a server."""

from collections.abc import Sequence
from operator import attrgetter

from holdfast.core.job import Job
from holdfast.core.outputs import Found, Output, Promise
from holdfast.core.spec import check_struct
from holdfast.core.state import State
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.remote_owning import RemoteOwning, clipped, there
from holdfast.wire.values import FOUND, JOB, OUTPUT, PROMISE


class RemoteJudging(RemoteOwning):
    """For validators that see the outputs themselves."""

    async def look(
        self,
        job_id: str,
        *,
        actor: str,
        version: int | None = None,
        done: int = 0,
        total: int = 0,
        trouble: str | None = None,
    ) -> Job:
        asked = pb.LookRequest(
            job_id=job_id,
            actor=actor,
            version=version,
            done=done,
            total=total,
            trouble=clipped(trouble),
        )
        return await self._job("look", asked)

    async def judge(
        self,
        job_id: str,
        found: Found = Found(),
        *,
        actor: str,
        op_id: str | None = None,
        evidence: Sequence[Output] = (),
        version: int | None = None,
        override: State | None = None,
        reason: str | None = None,
    ) -> Job:
        asked = pb.JudgeRequest(
            job_id=job_id,
            actor=actor,
            op_id=self._op(op_id),
            found=FOUND.encode(check_struct(found)),
            evidence=[OUTPUT.encode(check_struct(one)) for one in evidence],
            version=version,
            override=None if override is None else str(override),
            reason=clipped(reason),
        )
        return await self._job("judge", asked)

    async def resume(
        self,
        job_id: str,
        outputs: Promise,
        *,
        actor: str,
        resume_id: str | None = None,
        again: bool = False,
    ) -> Job:
        asked = pb.ResumeRequest(
            job_id=job_id,
            actor=actor,
            op_id=self._op(resume_id),
            promise=PROMISE.encode(check_struct(outputs)),
            again=again,
        )
        answer = await self._link.call(attrgetter("resume"), asked)
        return JOB.read(there(answer.job))
