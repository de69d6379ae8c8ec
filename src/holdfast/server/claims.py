"""Claims: what one asks for, whether its caller may have that, and who waits for the same."""

import re
from collections.abc import Sequence
from hashlib import blake2b

from holdfast.core.access import Scope
from holdfast.core.errors import Invalid
from holdfast.core.limits import check_id
from holdfast.server import admission
from holdfast.server.calls import caller, who
from holdfast.server.limits import KINDS_PER_CLAIM_MAX, QUEUES_PER_CLAIM_MAX
from holdfast.wire.asks import Claim

_PRODUCT = re.compile(rb"[A-Za-z0-9._-]{1,40}")
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{1,45}\Z")


def owner_of(said: str) -> str:
    """Who will own what is claimed: as they say, with the name of their key behind an @, which no name has in
    it, so that none can pass for another's; or by the key alone. Without keys as they say, else by their
    program and the address they call from, such as connect-go:127.0.0.1:40312."""
    principal = who.get()
    if principal.key_id is not None:
        mine = principal.name
        return mine if said in ("", mine) else f"{check_id(said, 'owner')}@{mine}"
    if said:
        return said
    scope = caller.get()
    product = _PRODUCT.match(dict(scope.get("headers", ())).get(b"user-agent", b""))
    name = product[0].decode() if product else principal.name
    host, port = scope.get("client") or ("", 0)
    return f"{name}:{host}:{port}" if _ADDRESS.match(host) else name


def enter(ask: Claim) -> None:
    """Raise `Denied` unless the caller may claim all that it asks for, and `Invalid` for what nobody may."""
    if not ask.queues:
        raise Invalid("Name at least one queue to claim from.")
    if len(ask.queues) > QUEUES_PER_CLAIM_MAX:
        raise Invalid(f"At most {QUEUES_PER_CLAIM_MAX} queues are named in one claim.")
    if len(ask.kinds) > KINDS_PER_CLAIM_MAX:
        raise Invalid(f"At most {KINDS_PER_CLAIM_MAX} kinds are named in one claim.")
    for kind in ask.kinds:
        check_id(kind, "kind")
    if ask.region is not None:
        check_id(ask.region, "region")
    if ask.executor is not None:
        check_id(ask.executor, "executor")
    for queue in ask.queues:
        admission.enter(who.get(), Scope.WORK, check_id(queue, "queue"), region(ask))


def region(ask: Claim) -> str | None:
    """The region to claim from: the caller's own, if it has one and names none."""
    return admission.region_of(who.get(), ask.region)


def lane(ask: Claim) -> bytes:
    """What two claims must share to get the same jobs."""
    return lane_of(ask.queues, ask.kinds, region(ask), ask.executor)


def lane_of(
    queues: Sequence[str], kinds: Sequence[str], region: str | None, executor: str | None
) -> bytes:
    """A few bytes, however much is asked for."""
    asked = repr((tuple(queues), tuple(kinds), region, executor))
    return blake2b(asked.encode(), digest_size=16).digest()
