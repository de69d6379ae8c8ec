"""Calls: what happens to every request before and after its handler, whatever it asks for."""

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
from holdfast.server.keyring import Keyring
from holdfast.server.limits import (
    CHORE_SECONDS_MAX,
    RATE_BURST_MAX,
    RATE_PER_SECOND_MAX,
    REFUSAL_SECONDS,
    REQUEST_SECONDS_MAX,
)
from holdfast.server.tracing import failed
from holdfast.wire.errors import FAULT, refusal
from holdfast.wire.verbs import VERBS, Load

who: ContextVar[Principal] = ContextVar("holdfast_principal")
"""Who the call under way is from."""

gone: ContextVar[Callable[[], bool]] = ContextVar("holdfast_gone", default=lambda: False)
"""Whether they have left meanwhile: what is sent to them then goes nowhere, and nothing says so."""

caller: ContextVar[Mapping[str, Any]] = ContextVar("holdfast_caller", default=MappingProxyType({}))
"""The request that the call under way came with: its headers, and the address it came from."""

Q = TypeVar("Q")
A = TypeVar("A")


class Unknown(Exception):
    """Nobody we know: there is no key, or none that counts."""


async def check_key(keyring: Keyring) -> None:
    """Raise `Unknown` unless the key of the call under way still counts. A call that has waited asks this
    before it is answered."""
    if not await keyring.still(who.get()):
        raise Unknown(NO_KEY)


class Leaving(Exception):
    """This server stops, so that a stream ends here. Its words say where to read on."""


NO_KEY = (
    "Say who you are: send the header `Authorization: Bearer hf_...` with a key that is neither revoked"
    " nor expired. `holdfast keys create` makes one."
)
RETRY_SECONDS = "1"
"""How long a caller waits that is over a limit, before it asks again."""

_LOADS = {verb.rpc: verb.load for verb in VERBS}


def seconds_max(load: Load | None) -> float:
    """How long a call of this load may take."""
    return CHORE_SECONDS_MAX if load is Load.CHORE else REQUEST_SECONDS_MAX


class Gate:
    """Lets nobody in whose key is unknown, before a byte of the body is read."""

    def __init__(self, keyring: Keyring, clock: Clock) -> None:
        self._keyring = keyring
        self._clock = clock
        self._rates: dict[str, _Rate] = {}

    async def on_start(self, ctx: RequestContext[Any, Any]) -> None:
        try:
            await self.admit(ctx.request_headers.get("authorization"))
        except Unknown as error:
            raise ConnectError(Code.UNAUTHENTICATED, NO_KEY) from error
        except Exception as error:
            raise told(error, ctx.method.name) from None

    async def admit(self, authorization: str | None) -> None:
        """Say who the call under way is from, or raise `Unknown`, or `Exhausted`: they ask too often, or
        too much at once."""
        principal = await self._keyring.principal(authorization)
        if principal is None:
            raise Unknown(NO_KEY)
        if (let_in := caller.get().get("state", {}).get("let_in")) is not None:
            await self._enter(let_in, principal.key_id)
        if principal.key_id is not None:
            self._count(principal.key_id)
        who.set(principal)

    async def on_end(
        self, token: None, ctx: RequestContext[Any, Any], error: Exception | None, /
    ) -> None:
        """Nothing is left to do."""

    async def _enter(self, let_in: Callable[[str | None], bool], key_id: str | None) -> None:
        if not let_in(key_id):
            await self._clock.sleep(REFUSAL_SECONDS)  # else it is asked again at once
            raise Exhausted(
                "This key has calls under way on half of the connections of this server."
            )

    def _count(self, key_id: str) -> None:
        rate = self._rates.setdefault(key_id, _Rate(self._clock))
        if not rate.take():
            words = f"This key asks more than {RATE_PER_SECOND_MAX:,} times a second."
            raise Exhausted(words)


class _Rate:
    """How often a key may still ask: so many a second, and some at once."""

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


class Translation:
    """Says our errors in the words of the protocol, and of faults no more than that there was one."""

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
            raise self._told(error, ctx) from None

    async def intercept_client_stream(
        self,
        call_next: Callable[[AsyncIterator[Q], RequestContext[Q, A]], Awaitable[A]],
        request: AsyncIterator[Q],
        ctx: RequestContext[Q, A],
    ) -> A:
        try:
            return await call_next(request, ctx)
        except Exception as error:
            raise self._told(error, ctx) from None

    async def intercept_server_stream(
        self,
        call_next: Callable[[Q, RequestContext[Q, A]], AsyncGenerator[A, None]],
        request: Q,
        ctx: RequestContext[Q, A],
    ) -> AsyncGenerator[A, None]:
        try:
            async with aclosing(call_next(request, ctx)) as answers:
                async for answer in answers:
                    yield answer
        except Exception as error:
            raise self._told(error, ctx) from None

    def _told(self, error: Exception, ctx: RequestContext[Any, Any]) -> Exception:
        said = told(error, ctx.method.name, job_v1=self._job_v1)
        if isinstance(error, Exhausted):
            ctx.response_headers["retry-after"] = RETRY_SECONDS
        return said


def told(error: Exception, method: str, *, job_v1: bool = False) -> ConnectError:
    """The error as its caller is told of it. What only an operator should know goes to the log."""
    release_frames(error)
    if isinstance(error, ConnectError):
        return error
    if isinstance(error, Leaving):
        return ConnectError(Code.UNAVAILABLE, str(error))
    if isinstance(error, Unknown):
        return ConnectError(Code.UNAUTHENTICATED, str(error))
    noted(error, method)
    if isinstance(error, HoldfastError):
        return refusal(error, job_v1=job_v1)
    if isinstance(error, TimeoutError):
        return refusal(Unavailable("It took too long.", applied="unknown"), job_v1=job_v1)
    return ConnectError(Code.INTERNAL, FAULT)


def noted(error: Exception, method: str) -> None:
    """Keep what only an operator should know, for the line that the call has in the log."""
    failed(error, method)


def release_frames(error: BaseException) -> None:
    """Let go of what the failed functions had in hand. An error and the frames it passed through keep each
    other until the next full garbage collection: ten refused messages of 32 MiB held 400 MB until then."""
    traceback.clear_frames(error.__traceback__)
