"""Calls: what happens to every request before and after its handler. Authentication, rate limits, time
limits and the translation of errors; and whose call the current one is."""

import asyncio
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext

from holdfast.core.access import Principal
from holdfast.core.errors import Exhausted, HoldfastError, Unavailable
from holdfast.ports import Clock
from holdfast.server.call_records import record_failure
from holdfast.server.keyring import Keyring
from holdfast.server.limits import (
    CHORE_SECONDS_MAX,
    RATE_BURST_MAX,
    RATE_PER_SECOND_MAX,
    REFUSAL_SECONDS,
    REQUEST_SECONDS_MAX,
)
from holdfast.wire.errors import INTERNAL_ERROR, connect_error
from holdfast.wire.verbs import VERBS, Load

current_principal: ContextVar[Principal] = ContextVar("holdfast_principal")
"""The principal of the current call."""

client_gone: ContextVar[Callable[[], bool]] = ContextVar("holdfast_gone", default=lambda: False)
"""Whether the client of the current call has disconnected: to send to it then raises no error."""

current_asgi_scope: ContextVar[Mapping[str, Any]] = ContextVar(
    "holdfast_caller", default=MappingProxyType({})
)
"""The ASGI scope of the current call: its headers, and the address it came from."""

Q = TypeVar("Q")
A = TypeVar("A")


class Unauthenticated(Exception):
    """The call has no key, or one that is unknown, revoked or expired."""


async def check_key(keyring: Keyring) -> None:
    """Raise `Unauthenticated` unless the key of the current call, which may have waited, is still valid."""
    if not await keyring.is_valid(current_principal.get()):
        raise Unauthenticated(NO_KEY)


class ShuttingDown(Exception):
    """This server is shutting down, so that a stream ends here. The message says where to read on."""


NO_KEY = (
    "Send the header `Authorization: Bearer hf_...` with an API key that is neither revoked nor expired."
    " `holdfast keys create` makes one."
)
TOO_LONG = "It took too long."
RETRY_SECONDS = "1"
"""How long a caller that is over a limit should wait before it asks again."""

_LOADS = {verb.rpc: verb.load for verb in VERBS}
_READS = frozenset(verb.rpc for verb in VERBS if verb.reads)


def seconds_max(load: Load | None) -> float:
    """Return how long a call of this load may take."""
    return CHORE_SECONDS_MAX if load is Load.CHORE else REQUEST_SECONDS_MAX


class Authentication:
    """Refuses calls without a valid key or above the rate limit, before the body is read."""

    def __init__(self, keyring: Keyring, clock: Clock) -> None:
        self._keyring = keyring
        self._clock = clock
        self._rates: dict[str, _TokenBucket] = {}

    async def on_start(self, ctx: RequestContext[Any, Any]) -> None:
        try:
            await self.authenticate(ctx.request_headers.get("authorization"))
        except Unauthenticated as error:
            raise ConnectError(Code.UNAUTHENTICATED, NO_KEY) from error
        except Exception as error:
            raise visible_error(error, ctx.method.name) from None

    async def authenticate(self, authorization: str | None) -> None:
        """Set the principal of the current call; `Unauthenticated` without a valid key, `Exhausted` when
        the key calls too often, or has too many calls under way."""
        principal = await self._keyring.principal(authorization)
        if principal is None:
            raise Unauthenticated(NO_KEY)
        if (admit := current_asgi_scope.get().get("state", {}).get("admit")) is not None:
            await self._check_connections(admit, principal.key_id)
        if principal.key_id is not None:
            self._check_rate(principal.key_id)
        current_principal.set(principal)

    async def on_end(self, token: None, ctx: RequestContext[Any, Any], error: Exception | None, /) -> None:
        """Required by the protocol of interceptors; nothing is left to do."""

    async def _check_connections(self, admit: Callable[[str | None], bool], key_id: str | None) -> None:
        if not admit(key_id):
            await self._clock.sleep(REFUSAL_SECONDS)  # else the client asks again at once
            raise Exhausted("This key has calls under way on half of the connections of this server.")

    def _check_rate(self, key_id: str) -> None:
        bucket = self._rates.setdefault(key_id, _TokenBucket(self._clock))
        if not bucket.take():
            raise Exhausted(f"This key calls more than {RATE_PER_SECOND_MAX:,} times a second.")


class _TokenBucket:
    """The calls that a key may make now: the limits are `RATE_PER_SECOND_MAX` and `RATE_BURST_MAX`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = float(RATE_BURST_MAX)
        self._at = clock.monotonic()

    def take(self) -> bool:
        now = self._clock.monotonic()
        self._left = min(RATE_BURST_MAX, self._left + (now - self._at) * RATE_PER_SECOND_MAX)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class ErrorTranslation:
    """Translates our errors into those of the protocol. Faults are hidden from callers."""

    def __init__(self, *, job_v1: bool) -> None:
        self._job_v1 = job_v1

    async def intercept_unary(
        self,
        call_next: Callable[[Q, RequestContext[Q, A]], Awaitable[A]],
        request: Q,
        ctx: RequestContext[Q, A],
    ) -> A:
        try:
            async with asyncio.timeout(seconds_max(_LOADS.get(ctx.method.name))):
                return await call_next(request, ctx)
        except Exception as error:
            raise self._translated(error, ctx) from None

    async def intercept_client_stream(
        self,
        call_next: Callable[[AsyncIterator[Q], RequestContext[Q, A]], Awaitable[A]],
        request: AsyncIterator[Q],
        ctx: RequestContext[Q, A],
    ) -> A:
        try:
            return await call_next(request, ctx)
        except Exception as error:
            raise self._translated(error, ctx) from None

    async def intercept_server_stream(
        self,
        call_next: Callable[[Q, RequestContext[Q, A]], AsyncGenerator[A, None]],
        request: Q,
        ctx: RequestContext[Q, A],
    ) -> AsyncGenerator[A, None]:
        try:
            async with aclosing(call_next(request, ctx)) as responses:
                async for response in responses:
                    yield response
        except Exception as error:
            raise self._translated(error, ctx) from None

    def _translated(self, error: Exception, ctx: RequestContext[Any, Any]) -> Exception:
        if isinstance(error, Exhausted):
            ctx.response_headers["retry-after"] = RETRY_SECONDS
        return visible_error(error, ctx.method.name, job_v1=self._job_v1)


def visible_error(error: Exception, method: str, *, job_v1: bool = False) -> ConnectError:
    """Return the error as its caller may see it. What only an operator should know goes to the log."""
    release_frames(error)
    if isinstance(error, ConnectError):
        return error
    if isinstance(error, ShuttingDown):
        return ConnectError(Code.UNAVAILABLE, str(error))
    if isinstance(error, Unauthenticated):
        return ConnectError(Code.UNAUTHENTICATED, str(error))
    record_failure(error, method)
    if isinstance(error, HoldfastError):
        return connect_error(error, job_v1=job_v1)
    if isinstance(error, TimeoutError):
        late = Unavailable(TOO_LONG, applied="no" if method in _READS else "unknown")
        return connect_error(late, job_v1=job_v1)
    return ConnectError(Code.INTERNAL, INTERNAL_ERROR)


def release_frames(error: BaseException) -> None:
    """Release the locals of the frames that an error passed through. They keep each other alive until the
    next full garbage collection: ten refused messages of 32 MiB held 400 MB."""
    traceback.clear_frames(error.__traceback__)
