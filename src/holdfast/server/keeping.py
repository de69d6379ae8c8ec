"""RegistryService of holdfast.v1, third part: facts from elsewhere, keeping the store, keys."""

from typing import Any

from connectrpc.request import RequestContext
from msgspec.structs import replace

from holdfast.core.access import Key, Scope, within
from holdfast.core.errors import Denied, Invalid
from holdfast.core.limits import BATCH_ITEMS_MAX
from holdfast.server import admission
from holdfast.server.calls import who
from holdfast.server.context import Context
from holdfast.server.looking import Looking
from holdfast.server.owning import Owning, actor
from holdfast.wire.generated.holdfast.v1 import registry_connect
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.mapping import EPOCH, optional, span, timestamp
from holdfast.wire.values import EVENT, FINDING, KEY, VERIFICATION

Call = RequestContext[Any, Any]


class Keeping:
    """What concerns the store as a whole."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry = context.registry

    async def record(self, request: pb.RecordRequest, _: Call) -> pb.RecordResponse:
        principal = who.get()
        admission.demand(principal, Scope.SUBMIT, Scope.WORK, Scope.ADMIN)
        if len(request.events) > BATCH_ITEMS_MAX:
            raise Invalid(f"At most {BATCH_ITEMS_MAX} events are recorded at once.")
        events = [EVENT.decode(event) for event in request.events]
        named = list(dict.fromkeys(event.job_id for event in events if event.job_id))
        if principal.key_id is not None:
            for job_id, job in zip(named, await self._registry.get_many(named), strict=True):
                admission.find(principal, job, job_id)
            events = [replace(event, actor=principal.actor) for event in events]
        return pb.RecordResponse(recorded=await self._registry.record(events))

    async def expire(self, request: pb.ExpireRequest, _: Call) -> pb.ExpireResponse:
        admission.demand(who.get(), Scope.WORK, Scope.ADMIN)
        limit = optional(request, "limit")
        expired = await self._registry.expire(limit=100 if limit is None else limit)
        return pb.ExpireResponse(expired=expired)

    async def prune(self, request: pb.PruneRequest, _: Call) -> pb.PruneResponse:
        self._keeper()
        if request.older_than is None:
            raise Invalid("older_than is missing: say how old the jobs to forget are.")
        output = span(request.output_older_than) if request.output_older_than else None
        pruned = await self._registry.prune(
            older_than=span(request.older_than), output_older_than=output
        )
        return pb.PruneResponse(jobs=pruned.jobs, events=pruned.events)

    async def verify(self, request: pb.VerifyRequest, _: Call) -> pb.VerifyResponse:
        self._keeper()
        return VERIFICATION.encode(await self._registry.verify())

    async def examine(self, request: pb.ExamineRequest, _: Call) -> pb.ExamineResponse:
        self._keeper()
        findings = await self._registry.examine()
        return pb.ExamineResponse(findings=[FINDING.encode(finding) for finding in findings])

    async def now(self, request: pb.NowRequest, _: Call) -> pb.NowResponse:
        return pb.NowResponse(now=timestamp(await self._registry.now()))

    async def create_key(self, request: pb.CreateKeyRequest, _: Call) -> pb.CreateKeyResponse:
        principal = who.get()
        admission.demand(principal, Scope.KEYS)
        scopes = tuple(_scope(scope) for scope in request.scopes)
        queues = tuple(request.queues) or principal.queues
        regions = tuple(request.regions) or principal.regions
        if not within(principal, _wanted(request.name, scopes, queues, regions)):
            raise Denied("A key cannot make one that may do more than itself.")
        for key in await self._registry.keys():
            # Whoever has a name has its jobs and its task tokens, too.
            if key.name == request.name and not within(principal, key):
                raise Denied(f"{request.name} may do more than this key: make it another name.")
        key, text = await self._registry.create_key(
            name=request.name,
            scopes=scopes,
            queues=queues,
            regions=regions,
            life=span(request.life) if request.life else None,
            actor=actor(request.actor),
        )
        self._context.keyring.forget()
        return pb.CreateKeyResponse(key=KEY.encode(key), text=text)

    async def list_keys(self, request: pb.ListKeysRequest, _: Call) -> pb.ListKeysResponse:
        self._key_keeper()
        keys: list[Key] = await self._registry.keys()
        return pb.ListKeysResponse(keys=[KEY.encode(key) for key in keys])

    async def revoke_key(self, request: pb.RevokeKeyRequest, _: Call) -> pb.RevokeKeyResponse:
        self._key_keeper()
        key = await self._registry.revoke_key(request.key_id, actor=actor(request.actor))
        self._context.keyring.forget()
        return pb.RevokeKeyResponse(key=KEY.encode(key))

    def _keeper(self) -> None:
        """The whole store is only for those who reach all of it."""
        admission.demand(who.get(), Scope.ADMIN)
        if not who.get().everywhere:
            raise Denied("This key does not reach every queue and region.")

    def _key_keeper(self) -> None:
        admission.demand(who.get(), Scope.KEYS)
        if not who.get().everywhere:
            raise Denied("This key does not reach every queue and region.")


def _scope(text: str) -> Scope:
    try:
        return Scope(text)
    except ValueError:
        raise Invalid(f"There is no scope {text!r}; there are {', '.join(Scope)}.") from None


def _wanted(
    name: str, scopes: tuple[Scope, ...], queues: tuple[str, ...], regions: tuple[str, ...]
) -> Key:
    """The key somebody asks for, as far as it is decided by then."""
    return Key(
        key_id="",
        name=name,
        digest="",
        scopes=scopes,
        queues=queues,
        regions=regions,
        created_at=EPOCH,
        expires_at=EPOCH,
        created_by="",
    )


class RegistryService(Owning, Looking, Keeping, registry_connect.RegistryService):
    """Every method of holdfast.v1.RegistryService."""

    def __init__(self, context: Context) -> None:
        Owning.__init__(self, context)
        Looking.__init__(self, context)
        Keeping.__init__(self, context)
