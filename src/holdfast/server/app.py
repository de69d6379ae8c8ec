"""The application: the services of one registry, as an ASGI app. A composition root."""

import gzip
from typing import Any

from connectrpc.compression.gzip import GzipCompression

from holdfast.outputs.lazily import Opening, no_outputs
from holdfast.ports import Clock, Ids
from holdfast.registry.local import LocalRegistry
from holdfast.server.calls import Gate, Translation, caller, gone, release_frames
from holdfast.server.capacity import under_way
from holdfast.server.codecs import codecs, publish_codecs
from holdfast.server.context import Context, Settings
from holdfast.server.door import (
    NOTHING,
    Receive,
    Scope,
    Send,
    Service,
    patient,
    prompt,
    refused,
    say,
)
from holdfast.server.events import EventsService
from holdfast.server.jobs import JobService
from holdfast.server.limits import COMPRESS_BYTES_MIN, PUBLISH_BYTES_MAX, REQUEST_BYTES_MAX
from holdfast.server.operators import Operators
from holdfast.server.registry_service import RegistryService
from holdfast.server.requests import Count
from holdfast.server.rest.app import PLACES, rest, turned_away
from holdfast.server.tracing import Notes
from holdfast.server.upload import Upload, upload
from holdfast.server.verbs import Verbs
from holdfast.wire.generated.holdfast.v1.registry_connect import RegistryServiceASGIApplication
from holdfast.wire.generated.job.v1.job_connect import (
    JobEventsServiceASGIApplication,
    JobServiceASGIApplication,
)

SERVICES = ("jobs", "events", "registry", "rest")
PUBLISH = "/job.v1.JobEventsService/PublishJobEvents"


class App:
    """Finds the service for a path. `context` is what its services share."""

    def __init__(
        self,
        registry: LocalRegistry,
        clock: Clock,
        ids: Ids,
        settings: Settings,
        opening: Opening = no_outputs,
    ) -> None:
        self.context = Context(registry, clock, ids, settings, opening)
        self._services = _services(self.context, settings.services)
        self._operators = Operators(self.context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        path = scope["path"]
        if path == "/health":
            await say(send, 200, b"ok\n")
            return
        if (page := self._operators.page(path)) is not None and scope["type"] == "http":
            await page(scope, send)
            return
        service = self._service(path)
        if service is None or scope["type"] != "http":
            await say(send, 404, NOTHING)
            return
        if (no := refused(scope, guarded=self.context.settings.keys)) is not None:
            if path.startswith(PLACES):
                await turned_away(*no)(scope, receive, send)
            else:
                await say(send, *no)
            return
        caller.set(scope)
        if (left := scope.get("state", {}).get("gone")) is not None:
            gone.set(left)
        if path == PUBLISH:
            await self._publish(service, scope, receive, patient(send))
            return
        exchange = self.context.capacity.exchange(scope, prompt(receive), patient(send))
        under_way.set(exchange)
        try:
            await service(scope, exchange.receive, exchange.send)
        except Exception as error:
            if not gone.get()():
                raise
            release_frames(error)  # nobody is there to be told, and the answer must not stay
        finally:
            exchange.close()

    async def _publish(self, service: Service, scope: Scope, receive: Receive, send: Send) -> None:
        stream = Upload(receive, self.context.room)
        upload.set(stream)
        try:
            await service(scope, stream, send)
        finally:
            stream.close()

    def _service(self, path: str) -> Service | None:
        if path == PUBLISH:
            return self._services.get(PUBLISH)
        if path.startswith(PLACES):
            return self._services.get("rest")
        return self._services.get(path[: path.rfind("/") + 1])


def _services(context: Context, wanted: tuple[str, ...]) -> dict[str, Service]:
    count, gate = Count(context.requests, context.clock), Gate(context.keyring, context.clock)
    common: dict[str, Any] = {
        "read_max_bytes": REQUEST_BYTES_MAX,
        "compressions": [_Gzip()],
        "codecs": codecs(),
    }
    notes, verbs = Notes(context.clock), Verbs(context)
    old = {**common, "interceptors": [count, gate, notes, Translation(job_v1=True)]}
    new = {**common, "interceptors": [count, gate, notes, Translation(job_v1=False)]}
    large = {**old, "read_max_bytes": PUBLISH_BYTES_MAX, "codecs": publish_codecs()}
    made: dict[str, Any] = {
        "jobs": lambda: JobServiceASGIApplication(JobService(context), **old),
        "events": lambda: JobEventsServiceASGIApplication(EventsService(context), **old),
        "registry": lambda: RegistryServiceASGIApplication(
            RegistryService(verbs, context.capacity), **new
        ),
    }
    found: dict[str, Service] = {}
    for name in wanted:
        if name == "rest":
            found[name] = rest(context, gate, verbs)
        else:
            service = made[name]()
            found[f"{service.path}/"] = service
    if "events" in wanted:
        found[PUBLISH] = JobEventsServiceASGIApplication(EventsService(context), **large)
    return found


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
