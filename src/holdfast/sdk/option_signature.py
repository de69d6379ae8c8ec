"""The options of a function as parameters of their own, for `help()`, notebooks and editors."""

from collections.abc import Callable
from inspect import Parameter, cleandoc, signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Unset:
    """The default of an option that need not be given."""

    def __repr__(self) -> str:
        return "..."


def with_options_of(options: type, *explained_by: type) -> Callable[[F], F]:
    """Return a decorator for a function that takes `**options` of this TypedDict: its signature gets them as
    parameters, and its docstring that of the TypedDict and of `explained_by`. Calls stay as they are."""

    def extend(function: F) -> F:
        own = signature(function)
        given = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=_Unset(), annotation=hint)
            for name, hint in options.__annotations__.items()
        ]
        function.__signature__ = own.replace(parameters=[*given, *added])  # type: ignore[attr-defined]
        texts = [one.__doc__ for one in (function, options, *explained_by)]
        function.__doc__ = "\n\n".join(cleandoc(text) for text in texts if text)
        return function

    return extend
