"""The REST application: every route of the table, the streams, `/registry`, and what describes them."""

from functools import cache
from importlib.metadata import version
from typing import cast

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path

from holdfast.server.calls import Gate
from holdfast.server.context import Context
from holdfast.server.door import Service
from holdfast.server.rest import facade, routes
from holdfast.server.rest.calling import Calls, lost
from holdfast.server.rest.openapi import Schema, describe
from holdfast.server.rest.page import POLICY, page
from holdfast.server.rest.problems import Wrong, wrong
from holdfast.server.rest.reading import JSON
from holdfast.server.rest.streams import STREAMS, stream
from holdfast.server.verbs import Verbs

PLACES = ("/v1/", "/registry/", "/openapi.json", "/docs")
"""What a path that is ours begins with."""


def rest(context: Context, gate: Gate, verbs: Verbs) -> Service:
    """The application."""
    calls, front, paths = Calls(context, gate), facade.Facade(context, verbs), list[Path]()
    for path in STREAMS:
        paths.append(Path(path, stream(path, calls, verbs), methods=["GET"]))
    for route in routes.ROUTES:
        paths.append(
            Path(
                route.path, calls.endpoint(route, verbs.handler(route.verb)), methods=[route.method]
            )
        )
    for route in facade.ROUTES:
        paths.append(
            Path(
                route.path,
                calls.endpoint(route, getattr(front, route.verb)),
                methods=[route.method],
            )
        )
    app = Starlette(
        routes=[*paths, *_described(keys=context.settings.keys)],
        exception_handlers={HTTPException: lost},
    )
    app.router.redirect_slashes = False  # one path, one thing; and no answer made of a Host header
    return cast("Service", app)  # it takes what every ASGI application takes, under other names


def turned_away(status: int, words: bytes) -> Service:
    """What the door refuses, before REST hears of it."""
    title, advice = "The request is turned away", "Change that, and send it again."
    return cast("Service", wrong(Wrong(status, title, words.decode().strip(), advice)))


def _described(*, keys: bool) -> list[Path]:
    """What describes the API, to programs and to people: made when somebody first asks."""

    @cache
    def document() -> Schema:
        every = [*routes.ROUTES, *facade.ROUTES]
        return describe(every, keys=keys, version=version("holdfast"))

    @cache
    def machine() -> bytes:
        return msgspec.json.encode(document())

    @cache
    def human() -> bytes:
        return page(document())

    async def openapi(_: Request) -> Response:
        return Response(machine(), media_type=JSON)

    async def docs(_: Request) -> Response:
        headers = {"content-security-policy": POLICY, "x-content-type-options": "nosniff"}
        return Response(human(), headers=headers, media_type="text/html")

    return [Path("/openapi.json", openapi), Path("/docs", docs)]
