"""The application: the services of one registry, as an ASGI app. A composition root."""

import gzip
from typing import Any

from connectrpc.compression.gzip import GzipCompression

from holdfast.outputs.lazy import OpenOutputs, no_outputs
from holdfast.ports import Clock, Ids
from holdfast.registry.local import LocalRegistry
from holdfast.server.call_records import CallRecorder
from holdfast.server.calls import (
    Authentication,
    ErrorTranslation,
    client_gone,
    current_asgi_scope,
    release_frames,
)
from holdfast.server.capacity import current_exchange
from holdfast.server.codecs import codecs, publish_codecs
from holdfast.server.context import ServerContext, ServerSettings
from holdfast.server.cors import REFUSED, AllowedOrigins, allow_preflight, is_preflight, with_cors
from holdfast.server.edge import (
    NOT_FOUND,
    Receive,
    Scope,
    Send,
    Service,
    rejection,
    send_text,
    with_error_text,
    with_read_timeout,
)
from holdfast.server.job_events_service import JobEventsService
from holdfast.server.job_service import JobService
from holdfast.server.limits import COMPRESS_BYTES_MIN, PUBLISH_BYTES_MAX, REQUEST_BYTES_MAX
from holdfast.server.probes import Probes
from holdfast.server.publish_streams import PublishStream, current_publish_stream
from holdfast.server.registry_service import RegistryService
from holdfast.server.request_metrics import RequestCounter
from holdfast.server.rest.app import PREFIXES, refused_response, rest_app
from holdfast.server.verbs import Verbs
from holdfast.wire.generated.holdfast.v1.registry_connect import RegistryServiceASGIApplication
from holdfast.wire.generated.job.v1.job_connect import (
    JobEventsServiceASGIApplication,
    JobServiceASGIApplication,
)

SERVICES = ("jobs", "events", "registry", "rest")
PUBLISH = "/job.v1.JobEventsService/PublishJobEvents"


class ServerApp:
    """Routes each request to the service of its path. `context` is what the services share."""

    def __init__(
        self,
        registry: LocalRegistry,
        clock: Clock,
        ids: Ids,
        settings: ServerSettings,
        opening: OpenOutputs = no_outputs,
    ) -> None:
        self.context = ServerContext(registry, clock, ids, settings, opening)
        self._services = _services(self.context, settings.services)
        self._probes = Probes(self.context)
        self._origins = AllowedOrigins(settings.cors_origins)
        self._about = _about(settings.services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _run_lifespan(receive, send)
            return
        path = scope["path"]
        if path == "/health":
            await send_text(send, 200, b"ok\n")
            return
        if (page := self._probes.page(path)) is not None and scope["type"] == "http":
            await page(scope, send)
            return
        service = self._service(path)
        if service is None or scope["type"] != "http":
            is_root = path == "/" and scope.get("method") in {"GET", "HEAD"}
            await send_text(send, *(200, self._about) if is_root else (404, NOT_FOUND))
            return
        origin = self._origins.of(scope) if self._origins else None
        if origin is not None:
            send = with_cors(send, origin)
        if (rejected := self._rejection(scope, origin)) is not None:
            if path.startswith(PREFIXES):
                await refused_response(*rejected)(scope, receive, send)
            else:
                await send_text(send, *rejected)
            return
        if origin is not None and is_preflight(scope):
            await allow_preflight(send)
            return
        current_asgi_scope.set(scope)
        if (is_gone := scope.get("state", {}).get("client_gone")) is not None:
            client_gone.set(is_gone)
        if path == PUBLISH:
            await self._publish(service, scope, receive, with_error_text(send))
            return
        exchange = self.context.capacity.exchange(scope, with_read_timeout(receive), with_error_text(send))
        current_exchange.set(exchange)
        try:
            await service(scope, exchange.receive, exchange.send)
        except Exception as error:
            if not client_gone.get()():
                raise
            release_frames(error)  # no client is left, and the response must not stay in memory
        finally:
            exchange.close()

    def _rejection(self, scope: Scope, origin: bytes | None) -> tuple[int, bytes] | None:
        """Return why a request is refused, or None. `origin` is that of the page, if it is allowed."""
        found = rejection(scope, guarded=self.context.settings.keys, origins=self._origins)
        return (403, REFUSED) if found is None and origin is None and is_preflight(scope) else found

    async def _publish(self, service: Service, scope: Scope, receive: Receive, send: Send) -> None:
        stream = PublishStream(receive, self.context.publish_memory)
        current_publish_stream.set(stream)
        try:
            await service(scope, stream, send)
        finally:
            stream.close()

    def _service(self, path: str) -> Service | None:
        if path == PUBLISH:
            return self._services.get(PUBLISH)
        if path.startswith(PREFIXES):
            return self._services.get("rest")
        return self._services.get(path[: path.rfind("/") + 1])


_ABOUT = {
    "rest": "/docs - the REST API, with a curl line for every path\n/openapi.json - the same for programs\n",
    "jobs": "/job.v1.JobService/ - the queue of job.v1, over Connect\n",
    "events": "/job.v1.JobEventsService/ - its streams of events\n",
    "registry": "/holdfast.v1.RegistryService/ - for holdfast itself: --store with the URL of this server\n",
}


def _about(services: tuple[str, ...]) -> bytes:
    """Return the text at `/`: what there is here."""
    lines = "".join(text for name, text in _ABOUT.items() if name in services)
    return f"This is a holdfast server.\n\n{lines}/health, /readyz, /metrics - for operators\n".encode()


def _services(context: ServerContext, wanted: tuple[str, ...]) -> dict[str, Service]:
    count = RequestCounter(context.request_metrics, context.clock)
    authentication = Authentication(context.keyring, context.clock)
    common: dict[str, Any] = {
        "read_max_bytes": REQUEST_BYTES_MAX,
        "compressions": [_Gzip()],
        "codecs": codecs(),
    }
    before = [count, authentication, CallRecorder(context.clock)]
    verbs = Verbs(context)
    job_v1 = {**common, "interceptors": [*before, ErrorTranslation(job_v1=True)]}
    holdfast_v1 = {**common, "interceptors": [*before, ErrorTranslation(job_v1=False)]}
    publish = {**job_v1, "read_max_bytes": PUBLISH_BYTES_MAX, "codecs": publish_codecs()}
    factories: dict[str, Any] = {
        "jobs": lambda: JobServiceASGIApplication(JobService(context), **job_v1),
        "events": lambda: JobEventsServiceASGIApplication(JobEventsService(context), **job_v1),
        "registry": lambda: RegistryServiceASGIApplication(
            RegistryService(verbs, context.capacity), **holdfast_v1
        ),
    }
    services: dict[str, Service] = {}
    for name in wanted:
        if name == "rest":
            services[name] = rest_app(context, authentication, verbs)
        else:
            service = factories[name]()
            services[f"{service.path}/"] = service
    if "events" in wanted:
        published: Any = JobEventsServiceASGIApplication(JobEventsService(context), **publish)
        services[PUBLISH] = published
    return services


class _Gzip(GzipCompression):
    """gzip that does not compress small messages: they go uncompressed, in a gzip frame."""

    def compress(self, data: bytes | bytearray | memoryview) -> bytes:
        return gzip.compress(data, 0 if len(data) < COMPRESS_BYTES_MIN else 4)


async def _run_lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = (await receive())["type"]
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return
