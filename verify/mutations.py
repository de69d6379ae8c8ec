"""The operators of the mutator: what else could have been written in place of one node."""

import ast
from collections.abc import Iterable, Iterator
from typing import TypeVar

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
NOTES = ("note", "gc")
_TRIMMERS = ("lower", "strip", "rstrip", "removeprefix")
_CONDITIONS = ("test", "ifs", "guard")
_ORDERLESS = ("isinstance", "getattr", "map", "_by")


class Enums:
    """The enums of the core by name, so that a member can be taken for the one after it."""

    ERRORS = (
        "Invalid", "NotFound", "Conflict", "Fenced", "Exhausted", "Denied", "Unavailable", "Corrupt",
    )  # fmt: skip

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self._members: dict[str, list[str]] = {}
        statements = [statement for tree in trees for statement in tree.body]
        for statement in statements:
            if isinstance(statement, ast.ClassDef) and _is_enum(statement):
                self._members[statement.name] = _members(statement)
        for statement in statements:
            match statement:
                case ast.Assign(targets=[ast.Name(id=alias)], value=ast.Name(id=name)):
                    if name in self._members:
                        self._members[alias] = self._members[name]

    def following(self, node: ast.Attribute) -> str | None:
        members = self._members.get(node.value.id, []) if isinstance(node.value, ast.Name) else []
        if node.attr not in members:
            return None
        return members[(members.index(node.attr) + 1) % len(members)]


def _is_enum(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "StrEnum" for base in node.bases)


def _members(node: ast.ClassDef) -> list[str]:
    return [
        target.id
        for statement in node.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name)
    ]


def variations(
    node: ast.AST, parent: ast.AST, field: str, enums: Enums, *, wording: bool
) -> Iterator[ast.AST]:
    """What else could stand here. `wording` is set inside an error message, whose words are free."""
    if field in _CONDITIONS and not isinstance(parent, ast.Assert):
        yield ast.Constant(True)
        yield ast.Constant(False)
    match node:
        case ast.stmt():
            yield from _statements(node)
        case ast.match_case(guard=None):
            yield ast.match_case(node.pattern, ast.Constant(False), node.body)
        case ast.ExceptHandler():
            yield ast.ExceptHandler(ast.Tuple([], ast.Load()), node.name, node.body)
        case ast.MatchOr():
            yield from (ast.MatchOr(rest) if len(rest) > 1 else rest[0] for rest in _less(node.patterns))
        case ast.Constant() if not wording:
            yield from _constants(node)
        case ast.Call():
            yield from _calls(node)
        case ast.Attribute() if following := enums.following(node):
            yield ast.Attribute(node.value, following, node.ctx)
        case ast.Set() | ast.List() | ast.Tuple() | ast.Dict():
            yield from _displays(node, parent)
        case ast.expr():
            yield from _operators(node)


def _statements(node: ast.stmt) -> Iterator[ast.stmt]:
    match node:
        case ast.Expr() | ast.Raise():
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield ast.Return(ast.Constant(None))
        case ast.Continue():
            yield ast.Break()
        case ast.AugAssign():
            yield ast.Pass()
            if operator := _ARITHMETIC.get(type(node.op)):
                yield ast.AugAssign(node.target, operator(), node.value)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript() | ast.Tuple()]):
            if not _makes_names(node.targets[0]):
                yield ast.Pass()
        case ast.Assign(targets=[ast.Name()], value=value):
            if not isinstance(value, ast.Constant | ast.Attribute | ast.Name):
                yield ast.Assign(node.targets, ast.Constant(None))


def _makes_names(target: ast.expr) -> bool:
    return isinstance(target, ast.Tuple) and any(isinstance(e, ast.Name) for e in target.elts)


def _constants(node: ast.Constant) -> Iterator[ast.Constant]:
    match node.value:
        case bool():
            yield ast.Constant(not node.value)
        case int() | float():
            yield ast.Constant(node.value + 1)
            yield ast.Constant(node.value - 1)
        case str() as text:
            yield ast.Constant("XX" + (text if len(text) > 2 else ""))
        case bytes() as data:
            yield ast.Constant(b"XX" + (data if len(data) > 2 else b""))


def _calls(node: ast.Call) -> Iterator[ast.expr]:
    function = node.func
    for keyword in node.keywords:
        if keyword.arg not in NOTES:
            rest = [other for other in node.keywords if other is not keyword]
            yield ast.Call(function, node.args, rest)
    match function:
        case ast.Name(id=name) if name in Enums.ERRORS:
            other = _error("Conflict" if name == "Invalid" else "Invalid")
            yield ast.Call(other, node.args, node.keywords)
            return
        case ast.Name(id=name) if name in _OPPOSITES:
            yield ast.Call(ast.Name(_OPPOSITES[name], ast.Load()), node.args, node.keywords)
            return
        case ast.Name(id=name) if name.startswith("check_") or name == "clip":
            yield node.args[0]
        case ast.Name(id=name) if name in _ORDERLESS:
            return
        case ast.Attribute(attr=name) if name in _TRIMMERS:
            yield function.value
    if len(node.args) >= 2 and not any(isinstance(arg, ast.Starred) for arg in node.args[:2]):
        first, second, *others = node.args
        if ast.dump(first) != ast.dump(second):
            yield ast.Call(function, [second, first, *others], node.keywords)


def _error(name: str) -> ast.expr:
    """An error class by its full name, which every module knows."""
    return ast.parse(f"__import__('holdfast.core.errors').core.errors.{name}", mode="eval").body


def _displays(node: ast.expr, parent: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Dict():
            for keys, values in zip(_less(node.keys, 0), _less(node.values, 0), strict=True):
                yield ast.Dict(keys, values)
        case ast.Set():
            yield from (ast.Set(rest) for rest in _less(node.elts))
        case ast.List():
            yield from (ast.List(rest, node.ctx) for rest in _less(node.elts))
        case ast.Tuple() if isinstance(node.ctx, ast.Load):
            if not isinstance(parent, ast.Subscript | ast.Assign):
                yield from (ast.Tuple(rest, node.ctx) for rest in _less(node.elts))


def _operators(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                for other in _COMPARISONS[type(operator)]:
                    changed = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                    yield ast.Compare(node.left, changed, node.comparators)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
            for rest in _less(node.values):
                yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.UnaryOp():
            yield node.operand
        case ast.BinOp():
            if operator_type := _ARITHMETIC.get(type(node.op)):
                yield ast.BinOp(node.left, operator_type(), node.right)
        case ast.Slice():
            if node.lower is not None:
                yield ast.Slice(None, node.upper, node.step)
            if node.upper is not None:
                yield ast.Slice(node.lower, None, node.step)


T = TypeVar("T")


def _less(items: list[T], least: int = 1) -> Iterator[list[T]]:
    """The list without each of its items, where at least so many are left."""
    if len(items) > least:
        yield from ([*items[:at], *items[at + 1 :]] for at in range(len(items)))
