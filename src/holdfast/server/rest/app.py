"""The REST application: every route of the table, the streams, `/registry`, and their description."""

from functools import cache
from importlib.metadata import version
from typing import cast

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path

from holdfast.server.calls import Authentication
from holdfast.server.context import ServerContext
from holdfast.server.edge import Service
from holdfast.server.rest import facade, routes
from holdfast.server.rest.docs_page import POLICY, at_address, page
from holdfast.server.rest.endpoints import Endpoints, not_routed
from holdfast.server.rest.logs import JobLogs, text_or
from holdfast.server.rest.openapi import Schema, describe
from holdfast.server.rest.problems import RequestError, request_error_response
from holdfast.server.rest.request_decoder import JSON
from holdfast.server.rest.streams import STREAMS, stream
from holdfast.server.verbs import Verbs

PREFIXES = ("/v1/", "/registry/", "/openapi.json", "/docs")
"""The prefixes of the paths that REST serves."""


def rest_app(context: ServerContext, authentication: Authentication, verbs: Verbs) -> Service:
    """Return the ASGI application."""
    calls, front, paths = Endpoints(context, authentication), facade.Facade(context, verbs), list[Path]()
    for path in STREAMS:
        paths.append(Path(path, stream(path, calls, verbs), methods=["GET"]))
    logs = JobLogs(context, verbs)
    for route in routes.ROUTES:
        verb = logs.page if route.text else verbs.handler(route.verb)
        endpoint = calls.endpoint(route, verb)
        if route.text:
            endpoint = text_or(endpoint, calls.guarded(logs.text, f"GET {route.path}", waits=False))
        paths.append(Path(route.path, endpoint, methods=[route.method]))
    for route in facade.ROUTES:
        paths.append(
            Path(
                route.path,
                calls.endpoint(route, getattr(front, route.verb)),
                methods=[route.method],
            )
        )
    app = Starlette(
        routes=[*paths, *_description_paths(keys=context.settings.keys)],
        exception_handlers={HTTPException: not_routed},
    )
    app.router.redirect_slashes = False  # a redirect would be made of the Host header
    return cast("Service", app)  # an ASGI application whose parameters have other names


def refused_response(status: int, reason: bytes) -> Service:
    """Return the response to a request that the edge refuses before REST sees it."""
    title, advice = "Request refused", "Correct it, and send it again."
    return cast(
        "Service",
        request_error_response(RequestError(status, title, reason.decode().strip(), advice)),
    )


def _description_paths(*, keys: bool) -> list[Path]:
    """Return the paths that describe the API, to programs and to people; each is made on first use."""

    @cache
    def document() -> Schema:
        every = [*routes.ROUTES, *facade.ROUTES]
        return describe(every, keys=keys, version=version("holdfast"))

    @cache
    def json_document() -> bytes:
        return msgspec.json.encode(document())

    @cache
    def html_document() -> bytes:
        return page(document())

    async def openapi(_: Request) -> Response:
        return Response(json_document(), media_type=JSON)

    async def docs(request: Request) -> Response:
        headers = {"content-security-policy": POLICY, "x-content-type-options": "nosniff"}
        scheme = request.headers.get("x-forwarded-proto", request.scope["scheme"])  # it is only shown
        shown = at_address(html_document(), scheme, request.headers.get("host", ""))
        return Response(shown, headers=headers, media_type="text/html")

    return [Path("/openapi.json", openapi), Path("/docs", docs)]
