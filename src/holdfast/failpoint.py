"""Failpoints: named places in the code where a test may stop, kill or fail the process. Off unless
armed."""

from collections.abc import Callable

_armed: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """Call the armed hook, if there is one, with the name of this failpoint."""
    if _armed is not None:
        _armed(name)


def arm(hook: Callable[[str], None] | None) -> None:
    """Call `hook` with the name of every failpoint that is passed from now on; None disarms."""
    global _armed  # noqa: PLW0603  # one per process, as the code that passes them is
    _armed = hook
