"""The link to one or more servers of the same store: where calls go, and what their failures mean."""

import asyncio
import errno
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cache
from threading import Event
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf import Message
from pyqwest import Client, HTTPTransport

from holdfast import tracing
from holdfast.core.errors import HoldfastError, Invalid, Unavailable
from holdfast.system import rest_at_exit
from holdfast.wire.errors import heard
from holdfast.wire.generated.holdfast.v1.registry_connect import RegistryServiceClient
from holdfast.wire.mapping import misread

CALL_MS = 15_000
CHORE_MS = 930_000
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 30.0
SILENT_SECONDS = 45.0
"""A server says something on every stream each 15 seconds: one that does not is as good as gone."""
REST_SECONDS = 0.05
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


FORKED = (
    "This process was forked from one that had spoken to a server before, and cannot speak to any: start"
    " it by spawn (multiprocessing.set_start_method), or speak to servers only after the fork."
)


class Link:
    """Calls the server it called last; when that cannot be reached, the next. A call is sent to each at
    most once, and only again when that is safe: callers name every mutation."""

    def __init__(
        self, addresses: tuple[str, ...], key: str | None, ca: bytes | None = None
    ) -> None:
        _prepare()
        if key is not None and not (key.isascii() and key.isprintable()):
            raise Invalid("HOLDFAST_KEY is no key: it has characters that no key has.")
        self._transport = _transport(ca)
        http = Client(self._transport)
        self.addresses = addresses
        self.headers = {"authorization": f"Bearer {key}"} if key else {}
        self._clients = [
            RegistryServiceClient(
                address, send_compression=None, accept_compression=(), http_client=http
            )
            for address in addresses
        ]
        self._current = 0

    async def call(
        self,
        method: str,
        request: Message,
        *,
        timeout_ms: int = CALL_MS,
    ) -> Any:  # noqa: ANN401
        """Return the response to a call, or raise the error that the server returned."""
        if _forked.is_set():
            raise Invalid(FORKED)
        tried = 0
        while True:
            current, tried = self._current, tried + 1
            try:
                client = self._clients[current]
                return await getattr(client, method)(
                    request, headers=self._traced_headers(), timeout_ms=timeout_ms
                )
            except ConnectError as error:
                told = self._failed(error, current, request)
                if tried >= len(self._clients) or not isinstance(told, Unavailable):
                    raise told from error

    async def stream(
        self,
        method: str,
        request: Message,
    ) -> AsyncGenerator[Any, None]:
        """The messages of a stream, from the server that is called now."""
        current = self._current
        answers = getattr(self._clients[current], method)(request, headers=self._traced_headers())
        async with aclosing(answers):
            while True:
                limit = asyncio.timeout(SILENT_SECONDS)
                try:
                    async with limit:
                        message = await anext(answers)
                except StopAsyncIteration:
                    return
                except (ConnectError, TimeoutError) as error:
                    if limit.expired() or isinstance(error, TimeoutError):
                        silent = ConnectError(Code.DEADLINE_EXCEEDED, "The stream fell silent.")
                        raise self._failed(silent, current, request) from error
                    raise self._failed(error, current, request) from error
                yield message

    def _traced_headers(self) -> dict[str, str]:
        traceparent = tracing.current()
        return {**self.headers, "traceparent": traceparent} if traceparent else self.headers

    def _failed(self, error: ConnectError, current: int, request: Message) -> HoldfastError:
        """What a failed call means; the next one goes elsewhere if that may help."""
        cause = error.__cause__
        if isinstance(cause, asyncio.CancelledError):
            raise cause
        if isinstance(cause, ValueError | TypeError | OverflowError):
            check_written(request)
            told: HoldfastError = misread(str(cause))
        elif not error.details and error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
            told = self._unreached(error, current)
        else:
            told = heard(error)
        if isinstance(told, Unavailable) and self._current == current:
            self._current = (current + 1) % len(self._clients)
        return told

    def _unreached(self, error: ConnectError, current: int) -> Unavailable:
        if isinstance(error.__cause__, ConnectionError):
            words = f"No holdfast server answers at {self.addresses[current]}."
            if any(f"(os error {number})" in error.message for number in NO_DESCRIPTOR):
                words = (
                    f"This process has no descriptor left for a connection to {self.addresses[current]}:"
                    " raise its limit (ulimit -n)."
                )
            elif "certificate" in error.message:
                words = (
                    f"The certificate of {self.addresses[current]} is not trusted here: name one that"
                    " it is signed with in HOLDFAST_CA_FILE."
                )
            return Unavailable(words, applied="no")
        words = f"The server at {self.addresses[current]} did not answer to the end."
        return Unavailable(words, applied="unknown")

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self._transport.aclose()


def check_written(request: Message) -> int:
    """How many bytes the request has; `Invalid` for one that cannot be sent at all."""
    try:
        return len(request.to_binary())
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid(f"The request cannot be written: {error}") from error


def _transport(ca: bytes | None) -> HTTPTransport:
    try:
        return HTTPTransport(
            tls_ca_cert=ca,
            tls_include_system_certs=True,
            connect_timeout=CONNECT_SECONDS,
            pool_idle_timeout=IDLE_SECONDS,
            follow_redirects=False,
            enable_otel=False,
        )
    except ValueError as error:
        raise Invalid(f"HOLDFAST_CA_FILE cannot be used: {error}") from error


@cache
def _prepare() -> None:
    rest_at_exit(REST_SECONDS)
    os.register_at_fork(after_in_child=_forked.set)


_forked = Event()
"""Whether this process is a copy of one that had spoken to a server: its threads were not copied."""
