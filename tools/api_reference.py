"""Write the generated parts of docs/api.md: the public names of the package, from source and docstrings.

`python tools/api_reference.py` writes them; with `--check` nothing is written, and a part that is out of date
makes it exit with 1. A text in quotation marks below a field, an attribute or an option is its docstring.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import TypeGuard

from msgspec import Struct
from states import main, table

import holdfast

SECTIONS = {
    "Apps and jobs": ("sdk.app.App", "sdk.job_function.JobFunction", "runner.call.Call"),
    "A worker from Python": ("sdk.app_worker.AppWorker", "sdk.work_report.WorkSummary"),
    "Clients": (
        "sdk.client.Client",
        "sdk.async_client.AsyncClient",
        "sdk.handle.Handle",
        "sdk.async_client.OutputChunk",
        "sdk.job_calls.command",
    ),
    "In a handler": (
        "runner.context.Context",
        "runner.task_handle.TaskHandle",
        "runner.errors.TransientError",
        "runner.errors.PermanentError",
        "runner.errors.ValidationError",
        "runner.errors.Snooze",
        "runner.errors.Cancelled",
    ),
    "Values": (
        "core.retry.Retry",
        "core.retry.OnExhausted",
        "core.job.Job",
        "core.spec.Spec",
        "core.state.State",
        "core.outputs.File",
        "core.manifest.Task",
        "core.manifest.study",
    ),
    "Errors": (
        "core.errors.HoldfastError",
        "core.errors.Invalid",
        "core.errors.NotFound",
        "core.errors.Conflict",
        "core.errors.Fenced",
        "core.errors.Exhausted",
        "core.errors.Denied",
        "core.errors.Unavailable",
        "core.errors.Corrupt",
        "sdk.handle.JobFailed",
    ),
}
"""What is described, in this order. Every public name has to be here."""

OPTIONS = {
    "`@app.job(…)`": ("SpecOptions", "FunctionOptions", "DecoratorOptions"),
    "`configure(…)`, `enqueue(…)`": ("SpecOptions", "OutputOptions", "Options"),
    "`command(…)`, `client.submit(…)`": ("CommandOptions",),
    "`client.list(…)`": ("ListOptions",),
    "`client.logs(…)`": ("LogOptions",),
}
_HOMES = {
    "OutputOptions": "runner.output_promises",
    "ListOptions": "sdk.async_client",
    "LogOptions": "sdk.async_client",
}
_WIDE = 100

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Attribute(Struct):
    """A field, an attribute or an option: its type, default and docstring, as they are written."""

    name: str
    hint: str = ""
    default: str = ""
    text: str = ""


@cache
def module_of(home: str) -> ast.Module:
    """Return the syntax tree of a module of holdfast."""
    return ast.parse(inspect.getsource(import_module(f"holdfast.{home}")))


def definition(path: str) -> ast.ClassDef | Function:
    """Return the definition of a class or function."""
    home, _, name = path.rpartition(".")
    for node in module_of(home).body:
        if isinstance(node, ast.ClassDef | Function) and node.name == name and not _has(node, "overload"):
            return node
    raise SystemExit(f"There is no {name} in holdfast.{home}.")


def reference() -> str:
    """Return all sections."""
    missing = set(holdfast.__all__) - {one.rpartition(".")[2] for part in SECTIONS.values() for one in part}
    if missing:
        raise SystemExit(f"SECTIONS lacks {', '.join(sorted(missing))}.")
    parts = []
    for section, paths in SECTIONS.items():
        parts.append(f"## {section}")
        for path in paths:
            node = definition(path)
            parts += _class(node) if isinstance(node, ast.ClassDef) else _function(node, "")
    return "\n\n".join(parts)


def options() -> str:
    """Return a table for each place that takes options. Every option must have its meaning."""
    parts = []
    for place, names in OPTIONS.items():
        found: dict[str, Attribute] = {}
        for name in names:
            node = definition(f"{_HOMES.get(name, 'sdk.job_options')}.{name}")
            assert isinstance(node, ast.ClassDef)
            found |= {one.name: one for one in _fields(node)}
        if bare := [one.name for one in found.values() if not one.text]:
            raise SystemExit(f"{names[-1]}: there is no text below {', '.join(bare)}.")
        rows = [(f"`{one.name}`", _code(one.hint), one.text) for one in found.values()]
        parts.append(f"### Options of {place}\n\n{table(('option', 'type', 'meaning'), rows)}")
    return "\n\n".join(parts)


def _class(node: ast.ClassDef) -> Iterator[str]:
    bases = [ast.unparse(base) for base in node.bases]
    init = next((one for one in node.body if isinstance(one, Function) and one.name == "__init__"), None)
    yield f"### `{node.name}`"
    if init is not None and node.name not in ("JobFunction", "Handle", "Context", "TaskHandle"):
        yield _signature(init, node.name, method=True)
    elif "Exception" in bases or any(base.endswith("Error") for base in bases):
        yield f"An error; a kind of `{bases[0]}`."
    yield from _text(node)
    if advice := [ast.literal_eval(one.value) for one in node.body if _is_advice(one)]:
        yield f"What to do: {advice[0]}"
    own = _fields(node) if "Struct" in bases or "StrEnum" in bases else []
    if "StrEnum" in bases:
        yield ", ".join(f"`{one.default.strip(chr(39))}`" for one in own)
    elif own:
        # What has no text is for the registry itself.
        yield table(("field", "type", "default", "meaning"), [_row(one) for one in own if one.text])
    if rest := [one for one in _attributes(node, init) if "Internal" not in one.text]:
        if bare := [one.name for one in rest if not one.text]:
            raise SystemExit(f"{node.name}: there is no text for {', '.join(bare)}.")
        yield table(("attribute", "type", "meaning"), [(f"`{a.name}`", _code(a.hint), a.text) for a in rest])
    for one in node.body:
        if isinstance(one, Function) and _is_shown(one) and not _is_property(one):
            yield from _function(one, f"{node.name}.")


def _is_advice(node: ast.stmt) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "advice"


def _row(one: Attribute) -> tuple[str, str, str, str]:
    return f"`{one.name}`", _code(one.hint), f"`{one.default}`" if one.default else "", one.text


def _function(node: Function, prefix: str) -> Iterator[str]:
    if not ast.get_docstring(node):
        raise SystemExit(f"{prefix}{node.name} has no docstring.")
    yield f"#### `{prefix}{node.name}`"
    yield _signature(node, node.name, method=bool(prefix))
    yield from _text(node)


def _text(node: ast.ClassDef | Function) -> Iterator[str]:
    """Yield the paragraphs of a docstring; an example in it, which is indented or a block, stays as it is."""
    code: list[str] = []
    for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
        if paragraph.startswith(("    ", "async with ")):
            code.append(textwrap.dedent(paragraph))
            continue
        yield from _block(code)
        code = []
        yield _plain(paragraph)
    yield from _block(code)


def _block(code: list[str]) -> Iterator[str]:
    if code:
        yield "```python\n" + "\n\n".join(code) + "\n```"


def _fields(node: ast.ClassDef) -> list[Attribute]:
    """Return the fields of a class, which are annotated or, in an enum, assigned."""
    found: list[Attribute] = []
    for one in node.body:
        match one:
            case ast.AnnAssign(target=ast.Name(name)):
                default = "" if one.value is None else ast.unparse(one.value)
                found.append(Attribute(name, ast.unparse(one.annotation), default))
            case ast.Assign(targets=[ast.Name(name)]):
                found.append(Attribute(name, default=ast.unparse(one.value)))
            case ast.Expr(value=ast.Constant(value=str(text))) if found:
                found[-1].text = _plain(text)
    return [one for one in found if not one.name.startswith("_")]


def _attributes(node: ast.ClassDef, init: Function | None) -> Iterator[Attribute]:
    """Yield the attributes that have a docstring where they are set, and the properties."""
    body = [] if init is None else init.body
    for one, after in pairwise(body):
        match one, after:
            case (
                ast.Assign(targets=[ast.Attribute(attr=name)])
                | ast.AnnAssign(target=ast.Attribute(attr=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if not name.startswith("_"):
                hint = ast.unparse(one.annotation) if isinstance(one, ast.AnnAssign) else ""
                yield Attribute(name, hint, text=_plain(text))
    for one in node.body:
        if isinstance(one, Function) and _is_property(one) and _is_shown(one):
            hint = "" if one.returns is None else ast.unparse(one.returns).strip("'")
            yield Attribute(one.name, hint, text=_plain(ast.get_docstring(one) or ""))


def _is_shown(node: Function) -> bool:
    setter = any(isinstance(one, ast.Attribute) and one.attr == "setter" for one in node.decorator_list)
    internal = "Internal" in (ast.get_docstring(node) or "")
    return not (node.name.startswith("_") or internal or setter or _has(node, "overload"))


def _is_property(node: Function) -> bool:
    return _has(node, "property") or _has(node, "cached_property")


def _has(node: ast.ClassDef | Function, decorator: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == decorator for one in node.decorator_list)


def _signature(node: Function, name: str, *, method: bool) -> str:
    parts = [*_parameters(node.args)]
    if method and "staticmethod" not in map(ast.unparse, node.decorator_list):
        del parts[0]  # self
    parts = parts[1:] if parts[:1] == ["/"] else parts
    returns = "" if node.returns is None or node.name == "__init__" else f" -> {_returned(node.returns)}"
    start = f"{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}{name}("
    line = f"{start}{', '.join(parts)}){returns}"
    if len(line) > _WIDE:
        lines = "".join(f"    {part},\n" for part in parts)
        line = f"{start}\n{lines}){returns}"
    return f"```python\n{line}\n```"


def _parameters(found: ast.arguments) -> Iterator[str]:
    """Yield the parameters as they are written; those of `**options` by the name of their TypedDict."""
    plain = [*found.posonlyargs, *found.args]
    defaults = [None] * (len(plain) - len(found.defaults)) + [*found.defaults]
    for n, (one, default) in enumerate(zip(plain, defaults, strict=True), 1):
        yield _parameter(one, default)
        if n == len(found.posonlyargs):
            yield "/"
    if found.vararg is not None:
        yield f"*{_parameter(found.vararg, None)}"
    elif found.kwonlyargs:
        yield "*"
    for one, default in zip(found.kwonlyargs, found.kw_defaults, strict=True):
        yield _parameter(one, default)
    if found.kwarg is not None:
        yield f"**{_parameter(found.kwarg, None)}".replace("Unpack[", "").removesuffix("]")


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    hint = "" if one.annotation is None else f": {ast.unparse(one.annotation)}"
    return f"{one.arg}{hint}" + ("" if default is None else f" = {ast.unparse(default)}")


def _returned(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def _plain(text: str) -> str:
    """Return a text in one line. A bar would end a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{text.strip(chr(39))}`".replace("|", "\\|") if text else ""


if __name__ == "__main__":
    sys.exit(main({"api.md": {"reference": reference(), "options": options()}}, sys.argv[1:]))
