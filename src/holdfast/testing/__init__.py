"""For tests of stores, and of programs that use holdfast."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.testing import faults
    from holdfast.testing.apps import Bench, memory_app

__all__ = ["Bench", "faults", "memory_app"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: the contracts of stores need no app."""
    if name not in __all__:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    from importlib import import_module

    if name == "faults":
        return import_module("holdfast.testing.faults")
    return getattr(import_module("holdfast.testing.apps"), name)
