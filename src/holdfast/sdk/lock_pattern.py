"""The pattern of a lock's name, with arguments of the job in it, such as `order-{order_id}`."""

import inspect
from string import Formatter

import msgspec

from holdfast.core.errors import Invalid
from holdfast.core.limits import check_id
from holdfast.runner.json_forms import text_of
from holdfast.runner.signature import Signature


class LockPattern:
    """Makes the name of the lock for each call."""

    def __init__(self, pattern: str, arguments: Signature) -> None:
        self._arguments = arguments
        self._pattern = pattern
        try:
            parts = list(Formatter().parse(pattern))
        except ValueError as error:
            raise Invalid(f"{arguments.kind}: lock {pattern!r:.80}: {error}.") from error
        for _, name, style, conversion in parts:
            if name is not None and (name not in arguments.parameters or style or conversion):
                taken = ", ".join(arguments.parameters) or "none"
                raise Invalid(
                    f"{arguments.kind}: lock {pattern!r:.80} may name the arguments ({taken}), each as"
                    " {name}."
                )
        sample = "".join(literal + "x" * (name is not None) for literal, name, _, _ in parts)
        check_id(sample, f"{arguments.kind}: lock")
        names = [name for _, name, _, _ in parts if name is not None]
        self._names = dict.fromkeys(names)
        found = {name: arguments.parameters[name].default for name in names}
        self.defaults = {name: value for name, value in found.items() if value is not inspect.Parameter.empty}
        """The defaults of the arguments in the pattern. They are stored with the job: those of the code that
        runs it may differ."""

    def of(self, payload: msgspec.Raw) -> str:
        """Return the name for a call with this payload."""
        given = msgspec.json.decode(payload)
        for name in self._names:
            given[name] = text_of(given[name])
            if type(given[name]) not in (str, int):
                raise Invalid(
                    f"{self._arguments.kind}: {name} is part of the lock's name, so it is text or a"
                    f" whole number, not {given[name]!r:.80}."
                )
        return check_id(self._pattern.format_map(given), f"{self._arguments.kind}: lock")


def lock_pattern(lock: object, arguments: Signature) -> LockPattern | None:
    """Return the pattern, if `lock` names arguments."""
    if isinstance(lock, str) and "{" in lock:
        return LockPattern(lock, arguments)
    return None
