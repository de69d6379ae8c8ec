"""A lock whose name is made of the job's arguments, such as `order-{order_id}`."""

from string import Formatter

import msgspec

from holdfast.core.errors import Invalid
from holdfast.core.limits import check_id
from holdfast.sdk.signature import Signature


class LockName:
    """Makes the name of the lock of each call."""

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
        self._names = [name for _, name, _, _ in parts if name is not None]

    def of(self, payload: msgspec.Raw) -> str:
        """The name for a call with this payload."""
        given = self._arguments.decode(payload)
        values = {}
        for name in self._names:
            value = given.get(name, self._arguments.parameters[name].default)
            if not isinstance(value, str | int):
                raise Invalid(
                    f"{self._arguments.kind}: {name} is part of the lock's name, so it is text or a"
                    f" whole number, not {value!r:.80}."
                )
            values[name] = value
        return check_id(self._pattern.format_map(values), f"{self._arguments.kind}: lock")


def lock_name(lock: object, arguments: Signature) -> LockName | None:
    """What makes the names, if `lock` names arguments."""
    if isinstance(lock, str) and "{" in lock:
        return LockName(lock, arguments)
    return None
