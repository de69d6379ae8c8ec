"""The verbs of one server, each asked with a value and answered with one, whatever the protocol."""

from holdfast.server.context import Context
from holdfast.server.judging import Judging
from holdfast.server.keeping import Keeping
from holdfast.server.looking import Looking
from holdfast.server.owning import Owning


class Verbs(Owning, Looking, Keeping, Judging):
    """All of them. Who asks is in `calls.who`; what they may do is decided here, for every protocol."""

    def __init__(self, context: Context) -> None:
        Owning.__init__(self, context)
        Looking.__init__(self, context)
        Keeping.__init__(self, context)
        Judging.__init__(self, context)
