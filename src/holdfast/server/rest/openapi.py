"""The OpenAPI document: the routes, described by the very types that requests are read as."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct, defstruct

from holdfast.core.access import Key
from holdfast.core.event import Event
from holdfast.core.job import Job
from holdfast.server.rest.problems import MEDIA_TYPE as PROBLEM
from holdfast.server.rest.problems import Problem
from holdfast.server.rest.reading import JSON, key_characters_max, places
from holdfast.server.rest.routes import Route
from holdfast.server.rest.streams import MEDIA_TYPE as EVENTS
from holdfast.server.rest.streams import STREAMS, StreamForm
from holdfast.wire.asks import ID_PATTERN

Schema: TypeAlias = dict[str, Any]

REF = "#/components/schemas/"
_SECONDS = r"[0-9]{1,7}(\.[0-9]{1,6})?S"
_CLOCK = rf"([0-9]{{1,5}}H([0-9]{{1,6}}M)?({_SECONDS})?|[0-9]{{1,6}}M({_SECONDS})?|{_SECONDS})"
DURATION = rf"^P([0-9]{{1,4}}D|([0-9]{{1,4}}D)?T{_CLOCK})$"
"""ISO 8601 without years, months and weeks, which last differently long, or are written by few."""
BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

NAMED = "Sent again, it gets the answer of the first time."
UNNAMED = "Not needed: what is sent names itself, so that sent again it does nothing twice."
ABOUT = """\
Jobs with one owner at a time, and a record of what really happened. Errors are
[problems](https://www.rfc-editor.org/rfc/rfc9457) that say what to do. Every change may carry the header
`Idempotency-Key`: sent again, it gets the answer of the first time. Durations are ISO 8601 (`PT90S`);
whole numbers have no fraction (`5`, not `5.0`)."""


def describe(routes: Sequence[Route], *, keys: bool, version: str) -> Schema:
    """The whole document."""
    taken, components = _schemas(routes)
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route, taken[route.form], components, keys=keys
        )
    for path, summary in STREAMS.items():
        paths[path] = {"get": _stream(path, summary, taken[StreamForm], keys=keys)}
    _keep_named(components, paths)
    document: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "holdfast", "version": version, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                "Problem": {
                    "description": "Why it was refused, and what to do.",
                    "content": {PROBLEM: {"schema": {"$ref": f"{REF}Problem"}}},
                }
            },
        },
    }
    if keys:
        scheme = {"type": "http", "scheme": "bearer", "description": "`holdfast keys create`"}
        document["components"]["securitySchemes"] = {"key": scheme}
    return document


def _schemas(routes: Sequence[Route]) -> tuple[dict[type[Struct], Schema], dict[str, Schema]]:
    """How each form is described, field by field, and the components that all refer to."""
    forms: list[type[Struct]] = list(dict.fromkeys([*(route.form for route in routes), StreamForm]))
    said = [
        document_type(kind) for kind in dict.fromkeys([*(route.says for route in routes), Problem])
    ]
    (*shapes,), inputs = _described(forms)
    _, outputs = _described(said)
    _walk([inputs, outputs], _exactly)
    taken = {
        form: inputs[shape["$ref"].removeprefix(REF)]
        for form, shape in zip(forms, shapes, strict=True)
    }
    return taken, {**outputs, **inputs}


def _described(kinds: Sequence[Any]) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    return msgspec.json.schema_components(
        kinds, ref_template=f"{REF}{{name}}", schema_hook=lambda _: {"description": "Any JSON."}
    )


def _walk(schema: Any, change: Any) -> None:  # noqa: ANN401
    if isinstance(schema, dict):
        change(schema)
        for one in schema.values():
            _walk(one, change)
    elif isinstance(schema, list):
        for one in schema:
            _walk(one, change)


def _keep_named(components: dict[str, Schema], paths: dict[str, Schema]) -> None:
    """Leave out what nothing refers to: what is asked for in queries is described there."""
    named = {"Problem"}

    def note(schema: Schema) -> None:
        name = str(schema.get("$ref", "")).removeprefix(REF)
        if name in components and name not in named:
            named.add(name)
            _walk(components[name], note)

    _walk([components["Problem"], paths], note)
    for name in components.keys() - named:
        del components[name]


def _exactly(schema: Schema) -> None:
    """Say by a pattern what the name of a format leaves open, or takes in another way than we do."""
    if schema.get("format") == "duration":
        del schema["format"]
        schema.setdefault("pattern", DURATION)
        schema.setdefault("examples", ["PT90S"])
    elif schema.get("contentEncoding") == "base64":
        schema["pattern"] = BASE64


_BESIDE: dict[type, list[tuple[str, Any]]] = {
    Job: [("owner", str | None), ("due_at", Annotated[datetime, Meta(tz=True)] | None)],
    Event: [("event_id", str)],
}
_BACK: dict[type, tuple[str, ...]] = {Key: ("digest",)}
"""What documents have beside their fields, and what they keep back."""


@cache
def document_type(kind: Any) -> Any:  # noqa: ANN401
    """The type of what `core.documents` makes of a value: the same, with every field always there."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind, include_extras=True)
        back = _BACK.get(kind, ())
        fields = [
            (name, document_type(hints[name]))
            for name in kind.__struct_fields__
            if name not in back
        ]
        twin = defstruct(kind.__name__, [*fields, *_BESIDE.get(kind, [])], kw_only=True)
        twin.__doc__ = kind.__doc__
        return twin
    parts = tuple(document_type(one) if one is not ... else one for one in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return reduce(or_, parts)
    if get_origin(kind) in (tuple, dict):
        return get_origin(kind)[parts]
    return Annotated[datetime, Meta(tz=True)] if kind is datetime else kind


def _operation(route: Route, form: Schema, components: dict[str, Schema], *, keys: bool) -> Schema:
    operation: Schema = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [_tag(route.path)],
        "parameters": _parameters(route, form),
        "responses": _responses(route),
    }
    if route.method != "GET":
        body = _body(route, form, components)
        required = bool(body.get("required"))
        ref = {"$ref": f"{REF}{body['title']}"}
        operation["requestBody"] = {"required": required, "content": {JSON: {"schema": ref}}}
    if keys:
        operation["security"] = [{"key": []}]
    return operation


def _body(route: Route, form: Schema, components: dict[str, Schema]) -> Schema:
    """The form without what is in the path."""
    if not route.parameters:
        return form
    properties = {n: one for n, one in form["properties"].items() if n not in route.parameters}
    required = [name for name in form.get("required", ()) if name in properties]
    body = {**form, "title": f"{form['title']}Body", "properties": properties, "required": required}
    return components.setdefault(body["title"], body)


def _parameters(route: Route, form: Schema) -> list[Schema]:
    found = [_in_path(form, name) for name in route.parameters]
    if route.method == "GET":
        found += _in_query(route.form, route.parameters)
    if route.changes:
        words = NAMED if route.named else UNNAMED
        most = key_characters_max(route.named)
        schema = {"type": "string", "pattern": ID_PATTERN, "maxLength": most}
        found.append(
            {"name": "Idempotency-Key", "in": "header", "description": words, "schema": schema}
        )
    return found


def _in_path(form: Schema, name: str) -> Schema:
    schema = form["properties"][name]
    if "anyOf" in schema:
        [schema] = [one for one in schema["anyOf"] if one.get("type") != "null"]
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(kind: type[Struct], elsewhere: Iterable[str]) -> list[Schema]:
    found: list[Schema] = []
    schemas = _query_schemas(kind)
    for name, (_, default) in places(kind).items():
        if name in elsewhere:
            continue
        one: Schema = {"name": name, "in": "query", "schema": schemas[name]}
        if isinstance(default, dict):
            one |= {"style": "deepObject", "explode": True}
        found.append(one)
    return found


def _query_schemas(kind: type[Struct]) -> dict[str, Schema]:
    """The schema of each parameter: of a field that may be null, without the null that no query says."""
    _, components = _described([kind])
    schemas: dict[str, Schema] = {}
    for component in components.values():
        for name, schema in component.get("properties", {}).items():
            options = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
            schemas[name] = {k: v for k, v in schema.items() if k not in ("anyOf", "default")}
            schemas[name] |= options[0]
    _walk(schemas, _exactly)
    return schemas


def _responses(route: Route) -> Schema:
    content = {JSON: {"schema": _said_as(route.says)}}
    return {str(route.status): {"description": "Done.", "content": content}, **_REFUSALS}


def _said_as(says: Any) -> Schema:  # noqa: ANN401
    (schema,), _ = _described([document_type(says)])
    return schema


def _stream(path: str, summary: str, form: Schema, *, keys: bool) -> Schema:
    own = ("job_id",)
    parameters = [_in_path(form, "job_id")] if "{" in path else []
    parameters += _in_query(StreamForm, own)
    words = "The id of the last event that came: what follows it comes now."
    last = {"type": "string", "pattern": r"^[A-Za-z0-9._:=+-]+$", "maxLength": 200}
    parameters.append(
        {"name": "Last-Event-ID", "in": "header", "description": words, "schema": last}
    )
    told = {
        "description": "Events, for as long as there are more.",
        "content": {EVENTS: {"schema": {"type": "string"}}},
    }
    operation: Schema = {
        "operationId": "stream_job" if "{" in path else "stream_all",
        "summary": summary,
        "tags": [_tag(path)],
        "parameters": parameters,
        "responses": {"200": told, "204": {"description": "Nothing more will come."}, **_REFUSALS},
    }
    if keys:
        operation["security"] = [{"key": []}]
    return operation


TAGS = ("jobs", "grants", "events", "keys", "registry", "store")


def _tag(path: str) -> str:
    found = [tag for tag in TAGS if tag in path.split("/")[1:3]]
    return found[0] if found else "store"


_REFUSALS = {
    "4XX": {"$ref": "#/components/responses/Problem"},
    "5XX": {"$ref": "#/components/responses/Problem"},
}
