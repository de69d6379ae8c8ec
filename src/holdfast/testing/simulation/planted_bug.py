"""Planted bugs: attributes of the product that are replaced during a run of the simulator."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeAlias

from msgspec import Struct

Swaps: TypeAlias = tuple[tuple[object, str, Any], ...]
"""The object, the name of one of their attributes, and what stands there while the bug is
planted."""


class Bug(Struct, frozen=True, kw_only=True):
    """A known mistake. `store` is the only store that shows it; it is searched for with this many
    `validators`, with timeouts of jobs (`timed`), and with steps of the store's clock (`steps`)."""

    name: str
    words: str
    trap: int | str
    swaps: Callable[[], Swaps]
    store: str | None = None
    validators: int = 0
    timed: bool = False
    steps: bool = False

    def plant(self) -> AbstractContextManager[None]:
        return _planted(self.swaps())


BUGS: dict[str, Bug] = {}


def bug(
    *,
    trap: int | str,
    store: str | None = None,
    validators: int = 0,
    timed: bool = False,
    steps: bool = False,
) -> Callable[[Callable[[], Swaps]], Bug]:
    """Make a bug of a function that returns its swaps, with the function's name and docstring."""

    def keep(swaps: Callable[[], Swaps]) -> Bug:
        words = (swaps.__doc__ or "").rstrip(".")
        made = Bug(
            name=swaps.__name__,
            words=words,
            trap=trap,
            swaps=swaps,
            store=store,
            validators=validators,
            timed=timed,
            steps=steps,
        )
        BUGS[made.name] = made
        return made

    return keep


@contextmanager
def _planted(swaps: Swaps) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, planted in swaps:
            stack.callback(setattr, owner, name, _own(owner, name))
            setattr(owner, name, planted)
        yield


def _own(owner: object, name: str) -> Any:
    """Return the attribute as it is defined: a property stays a property."""
    return vars(owner).get(name, getattr(owner, name))
