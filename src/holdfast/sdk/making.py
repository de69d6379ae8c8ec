"""Making jobs that promise outputs: where these will be is said when the job is made."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.ports import Inspector, Registry, Request
from holdfast.sdk.caller import actor
from holdfast.sdk.calls import Call
from holdfast.sdk.outputs import NO_OUTPUT_STORE, lazy_outputs, open_inspector
from holdfast.sdk.promising import Place, place_of
from holdfast.sdk.store_url import StoreUrl
from holdfast.sdk.submitting import Submitting


class Making:
    """Makes jobs of a client, with the output store that was given to it, or the chosen one."""

    def __init__(self, registry: Registry, url: str, outputs: str | None) -> None:
        self._registry = registry
        self._url = url
        self._outputs = lazy_outputs(url, outputs)

    async def make(self, calls: Sequence[Call[object]], connection: object) -> list[Job]:
        """Make these jobs. One whose results are all there runs no more, unless it has to be part of a
        transaction."""
        requests = [await self._promising(call) for call in calls]
        with Submitting(requests) as traced:
            if connection is None and any(map(_looked_at, traced)):
                return await self._submit(traced)
            return await self._registry.enqueue_many(traced, actor=actor(), connection=connection)

    async def _promising(self, call: Call[object]) -> Request:
        """The request with what its job is to leave behind, and where."""
        if call.wanted is None:
            return call.request
        place = await self._place() if call.wanted.stored else None
        return replace(call.request, spec=await call.wanted.promised(call.spec, place))

    async def _place(self) -> Place:
        outputs = await self._outputs.get(create=True)
        if outputs is not None:
            return place_of(outputs)
        if not self._at_server:
            raise Invalid(NO_OUTPUT_STORE)
        return Place((await self._inspector()).keep)

    async def _inspector(self) -> Inspector:
        """Who looks whether anything is left to do: a server does so itself."""
        outputs, server = await self._outputs.get(create=True), self._at_server
        return await open_inspector(self._registry, self._url, outputs=outputs, server=server)

    @property
    def _at_server(self) -> bool:
        return StoreUrl(self._url).is_server

    async def _submit(self, requests: Sequence[Request]) -> list[Job]:
        inspector = await self._inspector()
        others = [one for one in requests if not _looked_at(one)]
        made = iter(await self._registry.enqueue_many(others, actor=actor()) if others else ())
        return [
            await inspector.submit(one, actor=actor()) if _looked_at(one) else next(made)
            for one in requests
        ]

    async def close(self) -> None:
        await self._outputs.close()


def _looked_at(request: Request) -> bool:
    """Whether there may be nothing left to do for it, or a server has to say where its outputs will be."""
    promise = request.spec.outputs
    return promise is not None and (
        promise.manifest is not None or (bool(promise.names) and promise.store is None)
    )
