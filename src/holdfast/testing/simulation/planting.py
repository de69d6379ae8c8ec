"""How a bug is planted: a switch of the simulator's own build. The product never has one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeAlias

from msgspec import Struct

Swaps: TypeAlias = tuple[tuple[object, str, Any], ...]
"""Objects, the name of one of their attributes, and what stands there while the bug is planted."""


class Bug(Struct, frozen=True, kw_only=True):
    """A mistake somebody made once. `store` names the one family it can show itself in; with
    `validators`, it is hunted where so many look for promised outputs, `timed` where jobs have
    timeouts, `steps` where the store's clock is set."""

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
    """Make a function that says what is swapped into a bug, named and described as the function is."""

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
    """The attribute as it stands there: a property stays one."""
    return vars(owner).get(name, getattr(owner, name))
