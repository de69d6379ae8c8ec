"""Methods derived from a port, so that a wrapper of it need not repeat names, parameters and defaults."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, iscoroutinefunction, signature
from typing import Any, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


@cache
def async_methods(port: type) -> dict[str, Callable[..., Any]]:
    """Return the asynchronous methods of a port by name."""
    return {name: method for name, method in vars(port).items() if iscoroutinefunction(method)}


def derive(owner: type, port: type, make: Callable[[str], Callable[..., Any] | None]) -> None:
    """Give a class the asynchronous methods of a port that it does not define itself: `make` returns one
    by its name, or None to leave it out."""
    for name in async_methods(port):
        if name not in vars(owner) and (method := make(name)) is not None:
            setattr(owner, name, method)


def arguments(method: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of a port's method by name, with the defaults of the port."""
    positional, defaults = _parameters(method)
    return defaults | dict(zip(positional, args, strict=False)) | dict(kwargs)


class Call(Struct, frozen=True):
    """A call of a method: `given` are its arguments by name, with the defaults of the port."""

    name: str
    method: Callable[..., Awaitable[Any]]
    given: dict[str, Any]

    async def send(self) -> Any:
        return await self.method(**self.given)


class Intercepted(Generic[T]):
    """An implementation of a port whose asynchronous calls pass through `around`. Everything else is that
    of the implementation. Cast it to the port: a type checker cannot derive this."""

    def __init__(self, port: type, target: T, around: Callable[[Call], Awaitable[Any]]) -> None:
        self._port = port
        self._target = target
        self._around = around

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if name not in async_methods(self._port):
            return method
        port_method = async_methods(self._port)[name]

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._around(Call(name, method, arguments(port_method, args, kwargs)))

        return call


@cache
def _parameters(method: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the parameters that may be passed by position, and the defaults. `...` is a default that
    only the implementation knows."""
    [_, *parameters] = signature(method).parameters.values()
    positional = tuple(p.name for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD)
    unknown = (Parameter.empty, ...)
    return positional, {p.name: p.default for p in parameters if p.default not in unknown}
