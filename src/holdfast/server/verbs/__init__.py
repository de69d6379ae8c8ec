"""The verbs of one server: each takes a request value and returns a response value, for every protocol."""

from collections.abc import Callable
from typing import Any

from holdfast.server.context import ServerContext
from holdfast.server.verbs.attempts import AttemptVerbs
from holdfast.server.verbs.derived import derive_handler
from holdfast.server.verbs.jobs import JobVerbs
from holdfast.server.verbs.keys import KeyVerbs
from holdfast.server.verbs.maintenance import MaintenanceVerbs
from holdfast.server.verbs.outputs import OutputVerbs
from holdfast.server.verbs.queries import QueryVerbs
from holdfast.server.verbs.workers import WorkerVerbs
from holdfast.wire.verbs import VERBS


class Verbs:
    """The verbs: derived from the table, or by noun. The caller is `calls.current_principal`; what it may do
    is decided here."""

    def __init__(self, context: ServerContext) -> None:
        self.jobs = JobVerbs(context)
        self.attempts = AttemptVerbs(context)
        self.queries = QueryVerbs(context)
        self.outputs = OutputVerbs(context)
        self.maintenance = MaintenanceVerbs(context)
        self.keys = KeyVerbs(context)
        self.workers = WorkerVerbs(context)
        nouns = tuple(vars(self).values())
        self._handlers: dict[str, Callable[[Any], Any]] = {
            verb.name: derive_handler(context, verb) if verb.caller else _method(nouns, verb.name)
            for verb in VERBS
        }

    def handler(self, name: str) -> Callable[[Any], Any]:
        """Return the method of the verb of this name."""
        return self._handlers[name]


def _method(nouns: tuple[object, ...], name: str) -> Callable[[Any], Any]:
    for noun in nouns:
        if hasattr(noun, name):
            method: Callable[[Any], Any] = getattr(noun, name)
            return method
    raise TypeError(f"The verb {name} has neither a `caller` in the table nor a method here.")
