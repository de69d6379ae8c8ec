"""The page at `/docs`: the OpenAPI document as HTML, without scripts and without other hosts."""

import re
from collections.abc import Iterator
from html import escape
from typing import Any

import msgspec

from holdfast.server.rest.openapi import REF, Schema

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The content security policy: a browser may show the page, and nothing else."""

TITLES = {
    "jobs": "Jobs",
    "grants": "Ownership of jobs",
    "events": "Events",
    "registry": "The façade of an execution registry",
    "keys": "Keys",
    "store": "Maintenance of the store",
}
STATUSES = {
    400: "The request does not match the schema on this page.",
    401: "The API key is missing or not valid.",
    403: "The key does not have this permission.",
    404: "It does not exist, or the key may not see it.",
    409: "Another worker owns the job, or its state does not allow this.",
    422: "The request matches the schema, but a rule refuses it.",
    429: "A limit is reached: try again later.",
    503: "Send the same request again, with the same Idempotency-Key.",
}

STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8882;--key:#0a7d5a}
@media(prefers-color-scheme:dark){:root{--key:#4fd1a5}}
body{font:16px/1.55 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:2rem 1rem 6rem}
h1{font-size:1.7rem;margin:0}h2{margin:3rem 0 .5rem;font-size:1.2rem}
nav{display:flex;flex-wrap:wrap;gap:.3rem 1rem;margin:1rem 0}a{color:var(--key)}
details{border:1px solid var(--line);border-radius:.5rem;margin:.4rem 0}
summary{cursor:pointer;padding:.5rem .8rem;display:flex;gap:.8rem;flex-wrap:wrap;align-items:baseline}
details>div{padding:0 .8rem .8rem;overflow-x:auto}
code,pre{font:13.5px/1.5 ui-monospace,monospace}
pre{background:var(--soft);border-radius:.4rem;padding:.7rem;overflow-x:auto}
.m{font-weight:700;min-width:3.2rem;color:var(--key)}.s{margin-left:auto;opacity:.8}
table{border-collapse:collapse;width:100%;margin:.4rem 0}th{text-align:left;font-weight:600}
td,th{border-top:1px solid var(--line);padding:.25rem .8rem .25rem 0;vertical-align:top}
td:first-child{white-space:nowrap}.t{opacity:.75}
"""


SERVER = "http://127.0.0.1:8080"
"""The address in the examples, in whose place `at_address` puts the one that the page was called at."""

_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


def at_address(html: bytes, scheme: str, host: str) -> bytes:
    """Return the page with the address of the server in its examples."""
    if scheme not in ("http", "https") or not _HOST.fullmatch(host):
        return html
    return html.replace(SERVER.encode(), f"{scheme}://{host}".encode())


def page(document: Schema) -> bytes:
    """Return the whole page."""
    tags: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            section = _operation(document, method.upper(), path, operation)
            tags.setdefault(operation["tags"][0], []).append(section)
    links = "".join(f'<a href="#{tag}">{title}</a>' for tag, title in TITLES.items())
    parts = "".join(f'<h2 id="{tag}">{title}</h2>{"".join(tags[tag])}' for tag, title in TITLES.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>holdfast: REST</title><style>{STYLE}</style>"
        f"<h1>holdfast {escape(document['info']['version'])}</h1>{_about()}"
        f"<nav>{links}</nav>{parts}</html>"
    ).encode()


def _about() -> str:
    statuses = "".join(f"<tr><td>{code}</td><td>{words}</td></tr>" for code, words in STATUSES.items())
    return (
        "<p>A durable job queue: each running job has one owner, and every state change is an event. The API"
        ' is plain HTTP and JSON; <a href="/openapi.json">/openapi.json</a> describes it for programs.</p>'
        "<p>Durations are written as <code>PT90S</code>, moments as <code>2030-01-01T09:00:00Z</code>."
        " Every change may carry the header <code>Idempotency-Key</code>: sent again, it returns the"
        " original response. Errors are returned as problems: <code>detail</code> says what happened,"
        " <code>advice</code> what to do, <code>applied</code> whether the change may have been made"
        f" nevertheless.</p><table>{statuses}</table>"
    )


def _operation(document: Schema, method: str, path: str, operation: Schema) -> str:
    body = _shape(document, _body(operation))
    rows = [
        (one["name"], one["schema"], f"{one['in']}. {one.get('description', '')}", one)
        for one in operation["parameters"]
    ]
    table = _rows(document, [(n, s, w, o.get("required", False)) for n, s, w, o in rows])
    table += _rows(document, _fields(body))
    returned = _names(document, _returned(operation))
    return (
        f'<details id="{operation["operationId"]}"><summary><span class="m">{method}</span>'
        f'<code>{escape(path)}</code><span class="s">{escape(operation["summary"])}</span></summary>'
        f"<div><pre>{escape(_curl(document, method, path, body))}</pre>"
        f"{f'<table>{table}</table>' if table else ''}"
        f'<p class="t">Returns {escape(returned)}.</p></div></details>'
    )


def _body(operation: Schema) -> Schema:
    content: dict[str, Schema] = operation.get("requestBody", {}).get("content", {})
    schema: Schema = next((one["schema"] for one in content.values()), {})
    return schema


def _returned(operation: Schema) -> Schema:
    content = next(iter(operation["responses"].values())).get("content", {})
    kind = next(iter(content), "nothing")
    schema: Schema = content.get(kind, {}).get("schema", {})
    return schema if kind == "application/json" else {"title": kind}


def _shape(document: Schema, schema: Schema) -> Schema:
    """Return the schema that a reference stands for."""
    ref = schema.get("$ref", "")
    found: Schema = document["components"]["schemas"][ref.removeprefix(REF)] if ref else schema
    return found


def _fields(body: Schema) -> list[tuple[str, Schema, str, bool]]:
    needed = body.get("required", ())
    return [
        (name, schema, schema.get("description", ""), name in needed)
        for name, schema in body.get("properties", {}).items()
    ]


def _rows(document: Schema, fields: list[tuple[str, Schema, str, bool]], depth: int = 0) -> str:
    table = ""
    for name, schema, words, needed in fields:
        star = " *" if needed else ""
        table += (
            f"<tr><td><code>{'&nbsp;' * 3 * depth}{escape(name)}</code>{star}</td>"
            f'<td class="t">{escape(_names(document, schema))}</td><td>{escape(words)}</td></tr>'
        )
        for within in _within(document, schema):
            table += _rows(document, _fields(within), depth + 1) if depth < 3 else ""
    return table


def _within(document: Schema, schema: Schema) -> Iterator[Schema]:
    for one in (schema, schema.get("items", {}), *schema.get("anyOf", ())):
        shape = _shape(document, one)
        if one.get("$ref") and "properties" in shape:
            yield shape


def _names(document: Schema, schema: Schema) -> str:
    """Return the type of a value in a few words."""
    shape = _shape(document, schema)
    if "anyOf" in shape:
        options = [one for one in shape["anyOf"] if one.get("type") != "null"]
        return " or ".join(_names(document, one) for one in options)
    if "enum" in shape:
        return " | ".join(map(str, shape["enum"]))
    if shape.get("type") == "array":
        return f"list of {_names(document, shape.get('items', {}))}"
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(REF).removesuffix("Form")
    return str(shape.get("format") or shape.get("type") or shape.get("title") or "any JSON")


def _curl(document: Schema, method: str, path: str, body: Schema) -> str:
    """Return a command to try, with the required fields."""
    line = f"curl -s {SERVER}{path.replace('{', '').replace('}', '')}"
    if "securitySchemes" in document["components"]:
        line += ' \\\n  -H "authorization: Bearer $HOLDFAST_KEY"'
    if method == "GET":
        return line
    example = {name: _example(document, schema) for name, schema, _, needed in _fields(body) if needed}
    body_text = msgspec.json.encode(example).decode()
    return f"{line} \\\n  -H 'content-type: application/json' -d '{body_text}'"


def _example(document: Schema, schema: Schema) -> Any:  # noqa: ANN401
    shape = _shape(document, schema)
    if "examples" in shape:
        return shape["examples"][0]
    if "enum" in shape:
        return shape["enum"][0]
    if shape.get("type") == "array":
        return [_example(document, shape["items"])]
    if "properties" in shape:
        fields = _fields(shape)
        some = [one for one in fields if one[3]] or [one for one in fields if "examples" in one[1]]
        return {name: _example(document, one) for name, one, _, _ in some}
    plain = {"integer": shape.get("minimum", 1), "number": 1.0, "boolean": True}
    return plain.get(shape.get("type", ""), _TEXTS.get(shape.get("format", ""), "..."))


_TEXTS = {"date-time": "2030-01-01T09:00:00Z", "duration": "PT90S"}
