"""The application: the services of one registry, as an ASGI app. A composition root."""

import gzip
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from connectrpc.compression.gzip import GzipCompression

from holdfast.ports import Clock, Ids
from holdfast.registry.local import LocalRegistry
from holdfast.server.calls import Gate, Translation, gone
from holdfast.server.codecs import codecs
from holdfast.server.context import Context, Settings
from holdfast.server.door import NOTHING, Receive, Scope, Send, patient, prompt, refused, say
from holdfast.server.events import EventsService
from holdfast.server.jobs import JobService
from holdfast.server.keeping import RegistryService
from holdfast.server.limits import COMPRESS_BYTES_MIN, REQUEST_BYTES_MAX
from holdfast.wire.generated.holdfast.v1.registry_connect import RegistryServiceASGIApplication
from holdfast.wire.generated.job.v1.job_connect import (
    JobEventsServiceASGIApplication,
    JobServiceASGIApplication,
)

Service: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

SERVICES = ("jobs", "events", "registry")
PUBLISH = "/job.v1.JobEventsService/PublishJobEvents"


class App:
    """Finds the service for a path. `context` is what its services share."""

    def __init__(self, registry: LocalRegistry, clock: Clock, ids: Ids, settings: Settings) -> None:
        self.context = Context(registry, clock, ids, settings)
        self._services = _services(self.context, settings.services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        path = scope["path"]
        if path == "/health":
            await say(send, 200, b"ok\n")
            return
        service = self._services.get(path[: path.rfind("/") + 1])
        if service is None or scope["type"] != "http":
            await say(send, 404, NOTHING)
            return
        if (no := refused(scope, guarded=self.context.settings.keys)) is not None:
            await say(send, *no)
            return
        if (left := scope.get("state", {}).get("gone")) is not None:
            gone.set(left)
        await service(scope, prompt(receive, stream=path == PUBLISH), patient(send))


def _services(context: Context, wanted: tuple[str, ...]) -> dict[str, Service]:
    gate = Gate(context.keyring, context.clock)
    common: dict[str, Any] = {
        "read_max_bytes": REQUEST_BYTES_MAX,
        "compressions": [_Gzip()],
        "codecs": codecs(),
    }
    old = {**common, "interceptors": [gate, Translation(job_v1=True)]}
    new = {**common, "interceptors": [gate, Translation(job_v1=False)]}
    made: dict[str, Any] = {
        "jobs": lambda: JobServiceASGIApplication(JobService(context), **old),
        "events": lambda: JobEventsServiceASGIApplication(EventsService(context), **old),
        "registry": lambda: RegistryServiceASGIApplication(RegistryService(context), **new),
    }
    services = [made[name]() for name in wanted]
    return {f"{service.path}/": service for service in services}


class _Gzip(GzipCompression):
    """gzip that does not waste time on what is small already: that goes as it is, in a gzip frame."""

    def compress(self, data: bytes | bytearray | memoryview) -> bytes:
        return gzip.compress(data, 0 if len(data) < COMPRESS_BYTES_MIN else 4)


async def _live(receive: Receive, send: Send) -> None:
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return
