"""A proxy that can lose an answer, or let something happen just before a request goes on."""

import select
import socket
import socketserver
import threading
from collections.abc import Callable


class Proxy:
    """Stands before a port of this machine: `with Proxy(port) as proxy`, then talk to `proxy.port`.

    `lose = b"PUT "` drops the connection once, in place of the next answer to such a request.
    `before` is called with every request before it goes on.
    """

    def __init__(self, port: int) -> None:
        self.lose: bytes | None = None
        self.lost = 0
        self.before: Callable[[bytes], None] = lambda _: None
        self._target = port
        proxy = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                proxy._pass_on(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Connection)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _pass_on(self, client: socket.socket) -> None:
        asked = b""
        with socket.create_connection(("127.0.0.1", self._target), timeout=60) as server:
            while True:
                ready, _, _ = select.select([client, server], [], [], 60)
                if not ready:
                    return
                if server in ready:
                    answer = server.recv(65536)
                    if self.lose is not None and self.lose in asked:
                        self.lose, self.lost = None, self.lost + 1
                        return
                    if not answer:
                        return
                    client.sendall(answer)
                    asked = b""
                if client in ready:
                    request = client.recv(65536)
                    if not request:
                        return
                    self.before(request)
                    asked += request
                    server.sendall(request)
