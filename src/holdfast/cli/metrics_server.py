"""The HTTP server of a worker's metrics: one thread, few connections, so that it cannot exhaust the worker.

It has a thread of its own, so that a worker whose loop is stuck is still reported. The port needs no key;
so a connection that sends no request is cut after a few seconds, and the oldest is cut when there are
too many.
"""

import asyncio
import socket
from concurrent.futures import CancelledError
from contextlib import suppress
from threading import Thread
from typing import Any

from holdfast.cli.worker_metrics import WorkerGauges, WorkerMetrics, worker_up
from holdfast.core.errors import Invalid
from holdfast.registry import prometheus_text

PAGE_SECONDS = 3.0
CONNECTIONS_MAX = 16
CONNECTION_SECONDS = 5.0
HEAD_BYTES_MAX = 8 * 1024
CLOSE_SECONDS = 5.0


class MetricsServer:
    """Serves the metrics of one worker. The numbers are read on the worker's own loop."""

    def __init__(self, metrics: WorkerMetrics, source: WorkerGauges) -> None:
        self._metrics = metrics
        self._source = source
        self._thread: Thread | None = None
        self._connections: dict[_Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, host: str, port: int) -> str:
        """Start to serve, and return the URL. To be called on the worker's loop."""
        self._worker_loop = asyncio.get_running_loop()
        shown = f"[{host}]" if ":" in host else host
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            listener = socket.create_server((host, port), family=family, backlog=CONNECTIONS_MAX)
        except OSError as error:
            why = error.strerror or str(error)
            raise Invalid(
                f"Cannot listen on {shown}:{port} for metrics: {why}.",
                advice="Stop what listens there, or use another address: --metrics HOST:PORT",
            ) from error
        self._loop = asyncio.new_event_loop()
        self._done = asyncio.Event()
        self._thread = Thread(target=self._run, args=(listener,), name="metrics", daemon=True)
        self._thread.start()
        return f"http://{shown}:{listener.getsockname()[1]}/metrics"

    def close(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._done.set)
            self._thread.join(CLOSE_SECONDS)

    def _run(self, listener: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        self._loop.set_exception_handler(self._report_error)
        # A turn of the loop accepts as many as the backlog has: that bounds what is open for a moment.
        server = await self._loop.create_server(
            lambda: _Connection(self), sock=listener, backlog=CONNECTIONS_MAX
        )
        await self._done.wait()
        server.close()
        for connection in list(self._connections):
            connection.abort()

    def _report_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report an error of this thread, such as no descriptor left for a client, in the worker's log."""
        why = f"metrics: {context.get('exception') or context.get('message')}"
        with suppress(RuntimeError):  # the worker is gone
            self._worker_loop.call_soon_threadsafe(self._metrics.trouble, why)

    def opened(self, connection: "_Connection") -> None:
        """Add a connection. Beyond the limit the oldest that has sent no request is cut, else the oldest."""
        self._connections[connection] = None
        if len(self._connections) > CONNECTIONS_MAX:
            silent = (one for one in self._connections if not one.requested)
            next(silent, next(iter(self._connections))).abort()

    def closed(self, connection: "_Connection") -> None:
        self._connections.pop(connection, None)

    def requested(self, connection: "_Connection", method: str) -> None:
        """Answer the request of a client, in a task."""
        task = self._loop.create_task(self._respond(connection, method))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _respond(self, connection: "_Connection", method: str) -> None:
        if method != "GET":
            words = b"Method not allowed: send a GET.\n"
            connection.respond("405 Method Not Allowed", "text/plain; charset=utf-8", words)
            return
        page = await self._page()
        body = page.encode() + prometheus_text.process_metrics().encode()
        connection.respond("200 OK", prometheus_text.CONTENT_TYPE, body)

    async def _page(self) -> str:
        """Return the page of the worker's loop; when that is stuck or gone, only that it is not up."""
        page = self._metrics.page(self._source)
        try:
            future = asyncio.run_coroutine_threadsafe(page, self._worker_loop)
        except RuntimeError:  # the loop is closed
            page.close()
            return worker_up(False)
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                return await asyncio.wrap_future(future)
        except (TimeoutError, CancelledError):
            future.cancel()
            return worker_up(False)


class _Connection(asyncio.Protocol):
    """The connection of one client: one request, one response, and the end."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._head = b""
        self.requested = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._cut = asyncio.get_running_loop().call_later(CONNECTION_SECONDS, self.abort)
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        if self.requested:
            return  # a body, which no request here needs
        self._head += data
        if b"\r\n\r\n" in self._head or b"\n\n" in self._head:
            self.requested = True
            self._server.requested(self, self._head.split(b" ", 1)[0].decode("latin-1"))
        elif len(self._head) > HEAD_BYTES_MAX:
            self.requested = True
            words = b"Request head too large: at most 8 KiB.\n"
            self.respond("431 Request Header Fields Too Large", "text/plain; charset=utf-8", words)

    def respond(self, status: str, content_type: str, body: bytes) -> None:
        """Send the response, and close the connection when it is sent."""
        allow = "Allow: GET\r\n" if status.startswith("405") else ""
        head = (
            f"HTTP/1.1 {status}\r\n{allow}Content-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._cut.cancel()  # the client has as long to read as it had to send
        self._cut = asyncio.get_running_loop().call_later(CONNECTION_SECONDS, self.abort)
        self._transport.write(head.encode("latin-1") + body)
        self._transport.close()

    def eof_received(self) -> bool:
        """A client that has sent its request may have closed its half."""
        return self.requested

    def abort(self) -> None:
        self._transport.abort()
        self._server.closed(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cut.cancel()
        self._server.closed(self)
