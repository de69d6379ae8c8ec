"""The verbs of one server, each called with a request value and answered with one, in every protocol."""

from collections.abc import Callable
from typing import Any

from holdfast.server.context import Context
from holdfast.server.verbs.attempts import Attempts
from holdfast.server.verbs.jobs import Jobs
from holdfast.server.verbs.keys import Keys
from holdfast.server.verbs.maintenance import Maintenance
from holdfast.server.verbs.outputs import Outputs
from holdfast.server.verbs.queries import Queries
from holdfast.wire.verbs import VERBS


class Verbs:
    """The verbs by noun. The caller is in `calls.who`; what it may do is decided here, for all protocols."""

    def __init__(self, context: Context) -> None:
        self.jobs = Jobs(context)
        self.attempts = Attempts(context)
        self.queries = Queries(context)
        self.outputs = Outputs(context)
        self.maintenance = Maintenance(context)
        self.keys = Keys(context)
        nouns = tuple(vars(self).values())
        self._handlers: dict[str, Callable[[Any], Any]] = {
            verb.name: next(getattr(noun, verb.name) for noun in nouns if hasattr(noun, verb.name))
            for verb in VERBS
        }

    def handler(self, name: str) -> Callable[[Any], Any]:
        """Return the method of the verb of this name."""
        return self._handlers[name]
