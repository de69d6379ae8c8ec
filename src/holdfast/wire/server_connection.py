"""The connection to one or more servers of the same store: where calls go, and what their failures
mean."""

import asyncio
import errno
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cache
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf import Message
from pyqwest import Client, HTTPTransport

from holdfast import tracing
from holdfast.core.errors import HoldfastError, Invalid, Unavailable
from holdfast.system import prepare_rust_client
from holdfast.wire.errors import error_from_connect
from holdfast.wire.generated.holdfast.v1.registry_connect import RegistryServiceClient
from holdfast.wire.mapping import undecodable_response

CALL_MS = 15_000
CHORE_MS = 930_000
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 30.0
SILENT_SECONDS = 45.0
"""A server sends something on every stream each 15 seconds: one that does not is taken for dead."""
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


FORKED = (
    "This process was forked from one that had called a server before, and cannot call any: start it by"
    " spawn (multiprocessing.set_start_method), or call servers only after the fork."
)


class ServerConnection:
    """Calls the server it called last; if that cannot be reached, the next one. A call is sent to each
    server at most once. To send it again is safe: every mutation has an op_id."""

    def __init__(self, addresses: tuple[str, ...], key: str | None, ca: bytes | None = None) -> None:
        _forked()
        if key is not None and not (key.isascii() and key.isprintable()):
            raise Invalid("HOLDFAST_KEY is not a key: it has characters that no key has.")
        self._transport = _transport(ca)
        http = Client(self._transport)
        self.addresses = addresses
        self.headers = {"authorization": f"Bearer {key}"} if key else {}
        self._clients = [
            RegistryServiceClient(address, send_compression=None, accept_compression=(), http_client=http)
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
        if _forked().is_set():
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
                failure = self._failed(error, current, request)
                if tried >= len(self._clients) or not isinstance(failure, Unavailable):
                    raise failure from error

    async def stream(
        self,
        method: str,
        request: Message,
    ) -> AsyncGenerator[Any, None]:
        """The messages of a stream, from the current server."""
        current = self._current
        messages = getattr(self._clients[current], method)(request, headers=self._traced_headers())
        async with aclosing(messages):
            while True:
                limit = asyncio.timeout(SILENT_SECONDS)
                try:
                    async with limit:
                        message = await anext(messages)
                except StopAsyncIteration:
                    return
                except (ConnectError, TimeoutError) as error:
                    if limit.expired() or isinstance(error, TimeoutError):
                        silent = ConnectError(Code.DEADLINE_EXCEEDED, "The stream sent nothing for too long.")
                        raise self._failed(silent, current, request) from error
                    raise self._failed(error, current, request) from error
                yield message

    def _traced_headers(self) -> dict[str, str]:
        traceparent = tracing.current_traceparent()
        return {**self.headers, "traceparent": traceparent} if traceparent else self.headers

    def _failed(self, error: ConnectError, current: int, request: Message) -> HoldfastError:
        """Return the error of a failed call; the next call goes to another server if that may help."""
        cause = error.__cause__
        if isinstance(cause, asyncio.CancelledError):
            raise cause
        if isinstance(cause, ValueError | TypeError | OverflowError):
            encoded_size(request)
            failure: HoldfastError = undecodable_response(str(cause))
        elif not error.details and error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
            failure = self._unreached(error, current)
        else:
            failure = error_from_connect(error)
        if isinstance(failure, Unavailable) and self._current == current:
            self._current = (current + 1) % len(self._clients)
        return failure

    def _unreached(self, error: ConnectError, current: int) -> Unavailable:
        if isinstance(error.__cause__, ConnectionError):
            message = f"No holdfast server answers at {self.addresses[current]}."
            if any(f"(os error {number})" in error.message for number in NO_DESCRIPTOR):
                message = (
                    f"This process has no file descriptor left for a connection to {self.addresses[current]}:"
                    " raise its limit (ulimit -n)."
                )
            elif "certificate" in error.message:
                message = (
                    f"The certificate of {self.addresses[current]} is not trusted: name the"
                    " certificate of its authority in HOLDFAST_CA_FILE."
                )
            return Unavailable(message, applied="no")
        message = f"The server at {self.addresses[current]} did not answer to the end."
        return Unavailable(message, applied="unknown")

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self._transport.aclose()


def encoded_size(request: Message) -> int:
    """Return the size of a request in bytes, or raise `Invalid` if it cannot be encoded."""
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


_forked = cache(prepare_rust_client)
