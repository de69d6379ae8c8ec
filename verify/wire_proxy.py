"""A TCP proxy that reads the PostgreSQL protocol, and loses exactly the answer it is asked to lose.

A batch is what the server answers with one ReadyForQuery: the start of a session, a simple query, or
everything up to a Sync. Answers are lost by the batch: the server has answered in full, the client
hears nothing of it, and its connection is closed.
"""

import asyncio
import contextlib
import re
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from verify.postgres_server import free_port

_CANCEL, _TLS, _GSS = 80877102, 80877103, 80877104
_PATIENCE_SECONDS = 10.0
_NO_BATCH = b"Xpdcf"  # good-bye, password, and the data of a COPY that a batch began
_COPY_ANSWERS = b"GHW"
_WRITE_TAG = re.compile(rb"(INSERT|UPDATE|DELETE|MERGE|COPY|COMMIT)\b")
_WRITE_WORD = re.compile(rb"\b(INSERT|UPDATE|DELETE|MERGE|commit_\d+)\b", re.IGNORECASE)


class WireProxy:
    """Forwards a loopback port to the target's. Its methods may be called from any thread.

    Each method has taken effect when it returns. `swallowed` counts the answers lost so far.
    """

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self.swallowed = 0
        self.target_port = target_port
        self.flowing = asyncio.Event()
        self._wanted: list[bytes] = []
        self._commits_wanted = 0
        self._links: set[_Link] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.thaw()
        self.accept()

    def close(self) -> None:
        if not self._loop.is_closed():
            self.refuse()
            self._do(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_PATIENCE_SECONDS)
            self._loop.close()

    async def _end(self) -> None:
        """Close every connection, also those that were accepted and have not begun."""
        while asyncio.all_tasks() - {asyncio.current_task()}:
            for link in list(self._links):
                link.cut()
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)  # so that what was closed is told

    def through(self, url: str) -> str:
        """Return the same address by way of this proxy."""
        parts = urlsplit(url)
        user = f"{parts.username}@" if parts.username else ""
        return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{self.port}"))

    def refuse(self) -> None:
        """Turn new connections away. Those there are stay."""

        async def refuse() -> None:
            if self._listener is not None:
                await _accepted(self._listener)
                self._listener.close()
                self._listener = None

        self._do(refuse())

    def accept(self) -> None:
        """Take new connections again, on the same port."""

        async def accept() -> None:
            if self._listener is None:
                self._listener = await asyncio.start_server(self._meet, "127.0.0.1", self.port)

        self._do(accept())

    def cut(self) -> None:
        """Close every connection now, on both sides."""

        async def cut() -> None:
            while self._links:
                for link in list(self._links):
                    link.cut()
                await asyncio.sleep(0.001)

        self._do(cut())

    def freeze(self) -> None:
        """Stop forwarding, both ways. Connections stay, new ones too."""
        self._soon(self.flowing.clear)

    def thaw(self) -> None:
        self._soon(self.flowing.set)

    def swallow_answer(self, matching: bytes, times: int = 1) -> None:
        """Lose the answer to the next execution with these bytes in its text or its arguments."""
        self._soon(lambda: self._wanted.extend([matching] * times))

    def swallow_commit_answer(self, times: int = 1) -> None:
        """Lose the answer to the next commit: a COMMIT, or a writing statement of its own.

        A SELECT counts when its text has a writing word, or the name of the function that writes our
        commits. One that writes inside another function does not: use `swallow_answer`.
        """

        def want() -> None:
            self._commits_wanted += times

        self._soon(want)

    def forget(self) -> None:
        """Swallow nothing more."""

        def forget() -> None:
            self._wanted.clear()
            self._commits_wanted = 0

        self._soon(forget)

    def __enter__(self) -> "WireProxy":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wants(self, executed: bytes) -> bool:
        """Whether this execution's answer shall be lost. Counts it."""
        for wanted in self._wanted:
            if wanted in executed:
                self._wanted.remove(wanted)
                return True
        return False

    @property
    def awaits_commit(self) -> bool:
        return self._commits_wanted > 0

    def take_commit(self) -> bool:
        taken = self.awaits_commit
        self._commits_wanted -= taken
        return taken

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def _soon(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        self._do(act())

    def _do(self, step: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(step, self._loop).result(_PATIENCE_SECONDS)


@dataclass
class _Batch:
    simple: bool = False
    swallow: bool = False
    watched: bool = False
    text: bytes = b""
    tags: list[bytes] = field(default_factory=list)
    failed: bool = False
    held: list[bytes] = field(default_factory=list)

    def committed(self, status: bytes) -> bool:
        """Whether it left something written behind. The status is the session's after it."""
        if status != b"I" or self.failed or b"ROLLBACK\0" in self.tags:
            return False
        if any(_WRITE_TAG.match(tag) for tag in self.tags):
            return True
        return bool(self.tags) and _WRITE_WORD.search(self.text) is not None


class _Link:
    """One client's connection and ours to the server for it."""

    def __init__(self, proxy: WireProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = reader, writer
        self._over = asyncio.Event()
        self._batches: deque[_Batch] = deque()
        self._open: _Batch | None = None
        self._statements: dict[bytes, bytes] = {}
        self._portals: dict[bytes, bytes] = {}

    def cut(self) -> None:
        self._over.set()
        self._to_client.transport.abort()

    async def run(self) -> None:
        try:
            self._from_server, self._to_server = await asyncio.open_connection(
                "127.0.0.1", self._proxy.target_port
            )
        except OSError:
            await _shut(self._to_client)
            return
        try:
            await _first(self._serve(), self._over.wait())
        finally:
            if self._over.is_set():
                self._to_client.transport.abort()
                self._to_server.transport.abort()
            await _shut(self._to_server)
            await _shut(self._to_client)

    async def _serve(self) -> None:
        if await self._greet():
            await _first(self._ask(), self._answer())
        else:
            await _first(
                self._copy(self._from_client, self._to_server),
                self._copy(self._from_server, self._to_client),
            )

    async def _greet(self) -> bool:
        """Pass on the untyped first messages. Whether typed ones in clear text follow."""
        while True:
            head = await self._from_client.readexactly(8)
            length, code = struct.unpack("!II", head)
            rest = await self._from_client.readexactly(length - 8)
            if code not in {_CANCEL, _TLS, _GSS}:
                self._batches.append(_Batch())
            await self._send(self._to_server, head + rest)
            if code not in {_TLS, _GSS}:
                return bool(code != _CANCEL)
            answer = await self._from_server.readexactly(1)
            await self._send(self._to_client, answer)
            if answer != b"N":
                return False

    async def _ask(self) -> None:
        while True:
            message = await _message(self._from_client)
            await self._proxy.flowing.wait()
            self._note(message[:1], message[5:])
            await self._send(self._to_server, message)

    def _note(self, kind: bytes, body: bytes) -> None:
        if kind in _NO_BATCH:
            return
        if self._open is None:
            self._open = _Batch()
            self._batches.append(self._open)
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._statements[name] = text
        elif kind == b"B":
            portal, name, arguments = body.split(b"\0", 2)
            self._portals[portal] = self._statements.get(name, b"") + b"\0" + arguments
        elif kind in b"QE":
            executed = body if kind == b"Q" else self._portals.get(body.split(b"\0", 1)[0], b"")
            self._open.text += executed
            self._open.simple = kind == b"Q"
            self._open.watched |= self._proxy.awaits_commit
            self._open.swallow |= self._proxy.wants(executed)
        if kind in b"QSF":
            self._open = None

    async def _answer(self) -> None:
        while True:
            message = await _message(self._from_server)
            await self._proxy.flowing.wait()
            for passed in self._judge(message[:1], message):
                await self._send(self._to_client, passed)
            if self._over.is_set():
                return

    def _judge(self, kind: bytes, message: bytes) -> list[bytes]:
        """Return what the client may hear now."""
        if not self._batches:
            return [message]
        batch = self._batches[0]
        batch.failed |= kind == b"E"
        if kind == b"C":
            batch.tags.append(message[5:])
        if kind == b"G" and not batch.simple:
            self._open = batch  # a Sync sent before the data of a COPY is ignored: one more comes
        if kind != b"Z" and kind not in _COPY_ANSWERS:
            if batch.swallow:
                return []
            if batch.watched:
                batch.held.append(message)
                return []
            return [message]
        if kind == b"Z":
            self._batches.popleft()
            committed = batch.watched and batch.committed(message[5:6])
            if batch.swallow or (committed and self._proxy.take_commit()):
                self._proxy.swallowed += 1
                self._over.set()
                return []
        passed, batch.held = [*batch.held, message], []
        return passed

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._send(writer, data)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        await self._proxy.flowing.wait()
        writer.write(data)
        await writer.drain()


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head + await reader.readexactly(length - 4)


async def _first(*steps: Coroutine[None, None, object]) -> None:
    """Run them until one ends. The end of a connection is no error."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception) and not isinstance(end, EOFError | OSError):
            raise end


async def _accepted(listener: asyncio.Server) -> None:
    """Accept no more, and wait for what was accepted to begin: CPython 3.11 leaves connections open that
    begin when their server is closed already."""
    loop = asyncio.get_running_loop()
    for one in listener.sockets:
        loop.remove_reader(one.fileno())
    while beginning := [task for task in asyncio.all_tasks() if "_accept_connection2" in repr(task)]:
        await asyncio.wait(beginning)


async def _shut(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
