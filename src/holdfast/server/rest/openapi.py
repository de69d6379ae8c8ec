"""The OpenAPI document: the routes, described by the types that requests are decoded as."""

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
from holdfast.server.rest.durations import DURATION_SECONDS_MAX
from holdfast.server.rest.problems import MEDIA_TYPE as PROBLEM
from holdfast.server.rest.problems import Problem
from holdfast.server.rest.request_decoder import JSON, key_characters_max, query_parameters
from holdfast.server.rest.routes import Route
from holdfast.server.rest.streams import MEDIA_TYPE as EVENTS
from holdfast.server.rest.streams import STREAMS, StreamForm
from holdfast.wire.fields import ID_PATTERN

Schema: TypeAlias = dict[str, Any]

REF = "#/components/schemas/"
_SECONDS = r"[0-9]{1,7}(\.[0-9]{1,6})?S"
_CLOCK = rf"([0-9]{{1,5}}H([0-9]{{1,6}}M)?({_SECONDS})?|[0-9]{{1,6}}M({_SECONDS})?|{_SECONDS})"
DURATION = rf"^P([0-9]{{1,4}}D|([0-9]{{1,4}}D)?T{_CLOCK})$"
"""ISO 8601 without years and months, whose length varies, and without weeks, which are rarely written."""
_NUMBER = r"([0-9]{1,9}(\.[0-9]{1,9})?|\.[0-9]{1,9})"
_UNITS = "".join(rf"({_NUMBER} *[{unit}{unit.upper()}] *)?" for unit in "wdhms")
WRITTEN_DURATION = rf"^ *(?=[.0-9])({_NUMBER}|{_UNITS}({_NUMBER} *[mM][sS])?) *$"
BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

AS_TEXT = "With `Accept: text/plain`, the output itself, as text."
IDEMPOTENT = "Sent again, the request returns the original response."
SELF_IDENTIFYING = "Not needed: the content identifies the request, so that it is applied only once."
ABOUT = """\
A durable job queue: each running job has one owner, and every state change is an event. Errors are
[problems](https://www.rfc-editor.org/rfc/rfc9457) that say what to do. Every change may carry the header
`Idempotency-Key`: sent again, it returns the original response. Durations are ISO 8601 (`PT90S`);
in requests also seconds (`90`) or a text such as `1h30m`; whole numbers have no fraction (`5`, not `5.0`)."""


def describe(routes: Sequence[Route], *, keys: bool, version: str) -> Schema:
    """Return the whole document."""
    form_schemas, components = _schemas(routes)
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route, form_schemas[route.form], components, keys=keys
        )
    for path, summary in STREAMS.items():
        paths[path] = {"get": _stream(path, summary, form_schemas[StreamForm], keys=keys)}
    _remove_unreferenced(components, paths)
    document: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "holdfast", "version": version, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                "Problem": {
                    "description": "Why the request was refused, and what to do.",
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
    """Return the schema of each form, and the components that the schemas refer to."""
    forms: list[type[Struct]] = list(dict.fromkeys([*(route.form for route in routes), StreamForm]))
    returned = [
        document_type(kind) for kind in dict.fromkeys([*(route.returns for route in routes), Problem])
    ]
    (*shapes,), inputs = _described(forms)
    _, outputs = _described(returned)
    _walk(inputs, _accept_any_duration)
    _walk([inputs, outputs], _add_pattern)
    form_schemas = {
        form: inputs[shape["$ref"].removeprefix(REF)] for form, shape in zip(forms, shapes, strict=True)
    }
    return form_schemas, {**outputs, **inputs}


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


def _remove_unreferenced(components: dict[str, Schema], paths: dict[str, Schema]) -> None:
    """Remove components without a reference, such as forms whose fields are query parameters."""
    referenced = {"Problem"}

    def note(schema: Schema) -> None:
        name = str(schema.get("$ref", "")).removeprefix(REF)
        if name in components and name not in referenced:
            referenced.add(name)
            _walk(components[name], note)

    _walk([components["Problem"], paths], note)
    for name in components.keys() - referenced:
        del components[name]


def _accept_any_duration(schema: Schema) -> None:
    """Describe what requests may write in addition to ISO 8601."""
    if schema.get("format") == "duration":
        del schema["format"]
        schema["type"] = ["string", "number"]
        schema["pattern"] = f"{schema.get('pattern', DURATION)}|{WRITTEN_DURATION}"
        schema |= {"minimum": 0, "maximum": DURATION_SECONDS_MAX}
        schema.setdefault("examples", ["PT90S", "1h30m", 90])


def _add_pattern(schema: Schema) -> None:
    """Describe by a pattern what a format leaves open, or what it allows and we do not."""
    if schema.get("format") == "duration":
        del schema["format"]
        schema.setdefault("pattern", DURATION)
        schema.setdefault("examples", ["PT90S"])
    elif schema.get("contentEncoding") == "base64":
        schema["pattern"] = BASE64


_ADDED_FIELDS: dict[type, list[tuple[str, Any]]] = {
    Job: [("owner", str | None), ("due_at", Annotated[datetime, Meta(tz=True)] | None)],
    Event: [("event_id", str)],
}
_HIDDEN_FIELDS: dict[type, tuple[str, ...]] = {Key: ("digest",)}
"""Fields that documents have in addition to those of the value, and fields that they leave out."""


@cache
def document_type(kind: Any) -> Any:  # noqa: ANN401
    """Return the type of the document that `core.documents` makes of a value: every field is required."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind, include_extras=True)
        hidden = _HIDDEN_FIELDS.get(kind, ())
        fields = [(name, document_type(hints[name])) for name in kind.__struct_fields__ if name not in hidden]
        twin = defstruct(kind.__name__, [*fields, *_ADDED_FIELDS.get(kind, [])], kw_only=True)
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
        "operationId": route.operation_id,
        "summary": route.summary,
        "tags": [_tag(route.path)],
        "parameters": _parameters(route, form),
        "responses": _responses(route),
    }
    if route.text:  # as a second content it would make what generated clients return a union
        operation["description"] = AS_TEXT
    if route.method != "GET":
        body = _body(route, form, components)
        required = bool(body.get("required"))
        ref = {"$ref": f"{REF}{body['title']}"}
        operation["requestBody"] = {"required": required, "content": {JSON: {"schema": ref}}}
    if keys:
        operation["security"] = [{"key": []}]
    return operation


def _body(route: Route, form: Schema, components: dict[str, Schema]) -> Schema:
    """Return the form without the fields that are in the path."""
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
        field = route.idempotency_field
        words = IDEMPOTENT if field else SELF_IDENTIFYING
        most = key_characters_max(field)
        schema = {"type": "string", "pattern": ID_PATTERN, "maxLength": most}
        found.append({"name": "Idempotency-Key", "in": "header", "description": words, "schema": schema})
    return found


def _in_path(form: Schema, name: str) -> Schema:
    schema = form["properties"][name]
    if "anyOf" in schema:
        [schema] = [one for one in schema["anyOf"] if one.get("type") != "null"]
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(kind: type[Struct], in_path: Iterable[str]) -> list[Schema]:
    found: list[Schema] = []
    schemas = _query_schemas(kind)
    for name, (_, default) in query_parameters(kind).items():
        if name in in_path:
            continue
        one: Schema = {"name": name, "in": "query", "schema": schemas[name]}
        if isinstance(default, dict):
            one |= {"style": "deepObject", "explode": True}
        found.append(one)
    return found


def _query_schemas(kind: type[Struct]) -> dict[str, Schema]:
    """Return the schema of each parameter, without null, which a query cannot express."""
    _, components = _described([kind])
    schemas: dict[str, Schema] = {}
    for component in components.values():
        for name, schema in component.get("properties", {}).items():
            options = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
            schemas[name] = {k: v for k, v in schema.items() if k not in ("anyOf", "default")}
            schemas[name] |= options[0]
    _walk(schemas, _add_pattern)
    return schemas


def _responses(route: Route) -> Schema:
    content = {JSON: {"schema": _response_schema(route.returns)}}
    return {str(route.status): {"description": "Success.", "content": content}, **_PROBLEMS}


def _response_schema(kind: Any) -> Schema:  # noqa: ANN401
    (schema,), _ = _described([document_type(kind)])
    return schema


def _stream(path: str, summary: str, form: Schema, *, keys: bool) -> Schema:
    own = ("job_id",)
    parameters = [_in_path(form, "job_id")] if "{" in path else []
    parameters += _in_query(StreamForm, own)
    words = "The id of the last event received; the stream continues after it."
    last = {"type": "string", "pattern": r"^[A-Za-z0-9._:=+-]+$", "maxLength": 200}
    parameters.append({"name": "Last-Event-ID", "in": "header", "description": words, "schema": last})
    stream = {
        "description": "Server-sent events.",
        "content": {EVENTS: {"schema": {"type": "string"}}},
    }
    operation: Schema = {
        "operationId": "stream_job" if "{" in path else "stream_all",
        "summary": summary,
        "tags": [_tag(path)],
        "parameters": parameters,
        "responses": {
            "200": stream,
            "204": {"description": "The job has ended, and all its events were read."},
            **_PROBLEMS,
        },
    }
    if keys:
        operation["security"] = [{"key": []}]
    return operation


TAGS = ("jobs", "grants", "events", "keys", "registry", "store")


def _tag(path: str) -> str:
    found = [tag for tag in TAGS if tag in path.split("/")[1:3]]
    return found[0] if found else "store"


_PROBLEMS = {
    "4XX": {"$ref": "#/components/responses/Problem"},
    "5XX": {"$ref": "#/components/responses/Problem"},
}
