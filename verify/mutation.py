"""The mutator: every small change to a module of the core that some test ought to notice.

Left out, because no test should pin them: docstrings, types, imports, asserts, decorators, the `gc`
switch of a struct, notes of the transition table, and the words (not the values) of error messages.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType

from verify.mutations import NOTES, Enums, variations

PACKAGE = "holdfast.core"
SOURCE = Path(__file__).parent.parent / "src" / "holdfast" / "core"
_CONTEXT_CHARACTERS = 32


@dataclass(frozen=True)
class Slot:
    """A place in a syntax tree that holds one node."""

    parent: ast.AST
    field: str
    index: int | None

    def get(self) -> ast.AST:
        held = getattr(self.parent, self.field)
        return held if self.index is None else held[self.index]  # type: ignore[no-any-return]

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


@dataclass(frozen=True)
class Place:
    """Where a node stands: in which scope and statement, and how that statement reads now."""

    scope: str
    in_body: bool
    lines: tuple[int, int]
    text: Callable[[], str]
    wording: bool = False


@dataclass(frozen=True)
class Mutant:
    """One change. Its id names the words changed and not the line, so that it outlives other edits."""

    id: str
    module: str
    scope: str
    in_body: bool
    lines: tuple[int, int]
    tree: ast.Module
    slot: Slot
    node: ast.AST

    @property
    def path(self) -> Path:
        return _path(self.module)

    @property
    def name(self) -> str:
        return f"{PACKAGE}.{self.module}" if self.module else PACKAGE

    def code(self) -> CodeType:
        """The compiled module with this change in it."""
        kept = self.slot.get()
        self.slot.put(self.node)
        try:
            return compile(ast.fix_missing_locations(self.tree), str(self.path), "exec")
        finally:
            self.slot.put(kept)


def all_mutants() -> list[Mutant]:
    """Every mutant of the core, always in the same order."""
    trees = {_module(path): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    enums = Enums(trees.values())
    return [mutant for module, tree in trees.items() for mutant in mutants_of(module, tree, enums)]


def mutants_of(module: str, tree: ast.Module, enums: Enums) -> Iterator[Mutant]:
    seen: Counter[str] = Counter()
    top = Place("", False, (0, 0), lambda: "")
    for slot, place in _places(tree, top):
        before, kept = place.text(), slot.get()
        for node in variations(kept, slot.parent, slot.field, enums, wording=place.wording):
            if getattr(node, "lineno", None) is None:
                ast.copy_location(node, kept)
            slot.put(node)
            words = _change(before, place.text())
            slot.put(kept)
            name = f"{'.'.join(filter(None, (module, place.scope)))}: {words}"
            seen[name] += 1
            number = f" #{seen[name]}" if seen[name] > 1 else ""
            yield Mutant(name + number, module, place.scope, place.in_body, place.lines, tree, slot, node)


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _path(module: str) -> Path:
    file = SOURCE.joinpath(*module.split("."))
    return file / "__init__.py" if file.is_dir() else file.with_suffix(".py")


def _change(before: str, after: str) -> str:
    """The words that differ, with a few around them to find them by."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    while start and _inside_word(before, start):
        start -= 1
    while end and _inside_word(before, len(before) - end):
        end -= 1
    cut = len(before) - end
    left = before[max(0, start - _CONTEXT_CHARACTERS) : start]
    right = before[cut : cut + _CONTEXT_CHARACTERS]
    gone, new = before[start:cut], after[start : len(after) - end]
    return " ".join(f"{left}[{_short(gone)} -> {_short(new)}]{right}".split())


def _inside_word(text: str, at: int) -> bool:
    return all(character.isalnum() or character == "_" for character in text[at - 1 : at + 1])


def _short(text: str) -> str:
    most = 3 * _CONTEXT_CHARACTERS
    return text if len(text) <= most else f"{text[:most]}…"


def _places(node: ast.AST, place: Place) -> Iterator[tuple[Slot, Place]]:
    """Every slot below `node` that may be changed, with where it stands."""
    for slot in _slots(node):
        child = slot.get()
        here = _place(slot, child, place)
        yield slot, here
        yield from _places(child, _inner(child, here))


def _place(slot: Slot, child: ast.AST, outer: Place) -> Place:
    if isinstance(slot.parent, ast.FunctionDef) and slot.field == "body":
        outer = replace(outer, in_body=True)
    match child:
        case ast.FunctionDef() | ast.ClassDef():
            return outer
        case ast.If() | ast.While() | ast.For() | ast.Match() | ast.Try() | ast.With():
            first = child.cases[0].pattern if isinstance(child, ast.Match) else child.body[0]
            return _at(outer, child.lineno, first.lineno, lambda: _header(child))
        case ast.stmt():
            end = child.end_lineno or child.lineno
            return _at(outer, child.lineno, end, lambda: ast.unparse(slot.get()))
        case ast.match_case():
            last = child.body[0].lineno
            return _at(outer, child.pattern.lineno, last, lambda: _header(slot.get()))
        case ast.ExceptHandler():
            return _at(outer, child.lineno, child.body[0].lineno, lambda: _header(slot.get()))
        case ast.Call() if not outer.in_body and isinstance(slot.parent, ast.Tuple):
            end = child.end_lineno or child.lineno
            return _at(outer, child.lineno, end, lambda: ast.unparse(slot.get()))
        case _:
            return outer


def _at(outer: Place, first: int, last: int, text: Callable[[], str]) -> Place:
    return replace(outer, lines=(first, last), text=text)


def _inner(node: ast.AST, here: Place) -> Place:
    match node:
        case ast.ClassDef():
            scope = f"{here.scope}.{node.name}".lstrip(".")
            return replace(here, scope=scope, text=lambda: _header(node))
        case ast.FunctionDef() if not here.in_body:
            scope = f"{here.scope}.{node.name}".lstrip(".")
            return replace(here, scope=scope, text=lambda: _header(node))
        case ast.Call(func=ast.Name(id=name)) if name in Enums.ERRORS:
            return replace(here, wording=True)
        case _:
            return here


def _header(node: ast.AST) -> str:
    """A compound statement without its body."""
    if isinstance(node, ast.FunctionDef):
        return f"def {node.name}({ast.unparse(node.args)})"
    return ast.unparse(node).lstrip().split("\n", 1)[0]


def _slots(node: ast.AST) -> Iterator[Slot]:
    for field in _fields(node):
        held = getattr(node, field)
        if isinstance(held, list):
            for index, item in enumerate(held):
                if isinstance(item, ast.AST) and not _left_out(node, item):
                    yield Slot(node, field, index)
        elif isinstance(held, ast.AST) and not _left_out(node, held):
            yield Slot(node, field, None)


def _fields(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.FunctionDef():
            return ("args", "body")
        case ast.arguments():
            return ("defaults", "kw_defaults")
        case ast.ClassDef():
            return ("keywords", "body")
        case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr():
            return ("value",)
        case ast.Assign():
            return ("targets", "value")
        case ast.For():
            return ("iter", "body", "orelse")
        case ast.comprehension():
            return ("iter", "ifs")
        case ast.FormattedValue():
            return ("value",)
        case _:
            return node._fields


def _left_out(parent: ast.AST, node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.expr_context():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "advice")]):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
            return True
        case ast.keyword(arg=name) | ast.AnnAssign(target=ast.Name(id=name)) if name in NOTES:
            return True
        case ast.Name() | ast.Attribute() | ast.Tuple() if isinstance(parent, ast.Assign):
            return isinstance(node.ctx, ast.Store)
        case _:
            return False
