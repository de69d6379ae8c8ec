"""The page at `/docs`: the OpenAPI document for people, without a script and without another host."""

from collections.abc import Iterator
from html import escape
from typing import Any

import msgspec

from holdfast.server.rest.openapi import REF, Schema

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What a browser may do with the page: show it."""

TITLES = {
    "jobs": "Jobs",
    "grants": "Owning jobs",
    "events": "Events",
    "registry": "Jobs in the words of an execution registry",
    "keys": "Keys",
    "store": "The store, and its upkeep",
}
STATUSES = {
    400: "The request is not as this page describes it.",
    401: "Your key is missing, or does not count.",
    403: "Your key may not do that.",
    404: "There is no such thing, or it is not for you.",
    409: "Somebody else owns it, or its state does not allow it.",
    422: "The request is as described, and a rule refuses it.",
    429: "A limit is reached: come back later.",
    503: "Send the same again, with the same Idempotency-Key.",
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


def page(document: Schema) -> bytes:
    """The whole page."""
    tags: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            told = _operation(document, method.upper(), path, operation)
            tags.setdefault(operation["tags"][0], []).append(told)
    links = "".join(f'<a href="#{tag}">{title}</a>' for tag, title in TITLES.items())
    parts = "".join(
        f'<h2 id="{tag}">{title}</h2>{"".join(tags[tag])}' for tag, title in TITLES.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>holdfast: REST</title><style>{STYLE}</style>"
        f"<h1>holdfast {escape(document['info']['version'])}</h1>{_about()}"
        f"<nav>{links}</nav>{parts}</html>"
    ).encode()


def _about() -> str:
    statuses = "".join(
        f"<tr><td>{code}</td><td>{words}</td></tr>" for code, words in STATUSES.items()
    )
    return (
        "<p>Jobs with one owner at a time, and a record of what really happened. Plain HTTP and JSON; for"
        ' programs the same is at <a href="/openapi.json">/openapi.json</a>.</p>'
        "<p>Durations are written as <code>PT90S</code>, moments as <code>2030-01-01T09:00:00Z</code>."
        " Every change may carry the header <code>Idempotency-Key</code>: sent again, it gets the answer"
        " of the first time. What is refused is answered with a problem: <code>detail</code> says what"
        " happened, <code>advice</code> what to do, <code>applied</code> whether it may have been done"
        f" all the same.</p><table>{statuses}</table>"
    )


def _operation(document: Schema, method: str, path: str, operation: Schema) -> str:
    body = _shape(document, _body(operation))
    rows = [
        (one["name"], one["schema"], f"{one['in']}. {one.get('description', '')}", one)
        for one in operation["parameters"]
    ]
    told = _rows(document, [(n, s, w, o.get("required", False)) for n, s, w, o in rows])
    told += _rows(document, _fields(body))
    says = _names(document, _said(operation))
    return (
        f'<details id="{operation["operationId"]}"><summary><span class="m">{method}</span>'
        f'<code>{escape(path)}</code><span class="s">{escape(operation["summary"])}</span></summary>'
        f"<div><pre>{escape(_curl(document, method, path, body))}</pre>"
        f"{f'<table>{told}</table>' if told else ''}"
        f'<p class="t">Answers with {escape(says)}.</p></div></details>'
    )


def _body(operation: Schema) -> Schema:
    content: dict[str, Schema] = operation.get("requestBody", {}).get("content", {})
    told: Schema = next((one["schema"] for one in content.values()), {})
    return told


def _said(operation: Schema) -> Schema:
    content = next(iter(operation["responses"].values())).get("content", {})
    kind = next(iter(content), "nothing")
    schema: Schema = content.get(kind, {}).get("schema", {})
    return schema if kind == "application/json" else {"title": kind}


def _shape(document: Schema, schema: Schema) -> Schema:
    """The schema itself, where it is only referred to."""
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
    told = ""
    for name, schema, words, needed in fields:
        star = " *" if needed else ""
        told += (
            f"<tr><td><code>{'&nbsp;' * 3 * depth}{escape(name)}</code>{star}</td>"
            f'<td class="t">{escape(_names(document, schema))}</td><td>{escape(words)}</td></tr>'
        )
        for within in _within(document, schema):
            told += _rows(document, _fields(within), depth + 1) if depth < 3 else ""
    return told


def _within(document: Schema, schema: Schema) -> Iterator[Schema]:
    for one in (schema, schema.get("items", {}), *schema.get("anyOf", ())):
        shape = _shape(document, one)
        if one.get("$ref") and "properties" in shape:
            yield shape


def _names(document: Schema, schema: Schema) -> str:
    """What a value is, in a few words."""
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
    """A command to try, with what must be said."""
    line = f"curl -s http://127.0.0.1:8080{path.replace('{', '').replace('}', '')}"
    if method == "GET":
        return line
    example = {
        name: _example(document, schema) for name, schema, _, needed in _fields(body) if needed
    }
    said = msgspec.json.encode(example).decode()
    return f"{line} \\\n  -H 'content-type: application/json' -d '{said}'"


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
