"""The two sides of bench/key_isolation.py: connections that list all the time, and a worker beside them.

python bench/key_isolation_load.py PORT KEY PATH CONNECTIONS
"""

import asyncio
import json
import sys
import time
from collections import Counter, defaultdict
from typing import Any

BEAT_SECONDS = 0.1
PAUSE_SECONDS = 0.05
LEASE = "PT10S"


class Connection:
    """One connection of HTTP, on which one thing is asked after the other."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._head = f"host: 127.0.0.1\r\nauthorization: Bearer {key}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, form: object = None) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        body = b"" if form is None else json.dumps(form).encode()
        kind = "" if form is None else "content-type: application/json\r\n"
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{kind}content-length: {len(body)}\r\n\r\n"
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
        reader, writer = self._streams
        writer.write(head.encode() + body)
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
            answer = await reader.readexactly(int(headers.get("content-length", 0)))
        except (asyncio.IncompleteReadError, ConnectionError):
            self._streams = None
            return 0, b""
        return int(lines[0].split()[1]), answer


class Worker:
    """A worker that keeps one job, and makes, takes and ends others. `times` are by call."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._key = key
        self.times: dict[str, list[float]] = defaultdict(list)
        self.lost = 0

    async def work(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep(until))
            tasks.create_task(self._turn_over(until))

    async def _keep(self, until: float) -> None:
        connection = Connection(self._port, self._key)
        token = await self._take(connection)
        while time.perf_counter() < until:
            began = time.perf_counter()
            form = {"task_token": token, "lease": LEASE}
            status, _ = await self._asked(connection, "heartbeat", "grants/heartbeat", form)
            if status in (404, 409):
                self.lost += 1
                token = await self._take(connection)
            await asyncio.sleep(max(0.0, began + BEAT_SECONDS - time.perf_counter()))
        await self._end(connection, token)

    async def _turn_over(self, until: float) -> None:
        connection = Connection(self._port, self._key)
        while time.perf_counter() < until:
            await self._end(connection, await self._take(connection))
            await asyncio.sleep(PAUSE_SECONDS)

    async def _take(self, connection: Connection) -> str:
        while True:
            await self._asked(connection, "enqueue", "jobs", {"spec": {"queue": "work"}})
            form = {"queues": ["work"], "owner": "worker-1", "lease": LEASE}
            _, said = await self._asked(connection, "claim", "grants", form)
            grants: list[dict[str, Any]] = json.loads(said or b"{}").get("grants", [])
            if grants:
                return str(grants[0]["task_token"])

    async def _end(self, connection: Connection, token: str) -> None:
        form = {"task_token": token, "success": {}}
        status, said = await self._asked(connection, "complete", "grants/complete", form)
        assert status in (200, 409, 429, 503), said

    async def _asked(self, connection: Connection, call: str, path: str, form: object) -> tuple[int, bytes]:
        began = time.perf_counter()
        answer = await connection.ask("POST", f"/v1/{path}", form)
        self.times[call].append(time.perf_counter() - began)
        return answer


async def list_for_ever(port: int, key: str, path: str, connections: int) -> None:
    """List on so many connections until the process is ended, then print what was answered."""
    told: Counter[int] = Counter()
    size = 0

    async def lister() -> None:
        nonlocal size
        connection = Connection(port, key)
        while True:
            status, said = await connection.ask("GET", path)
            told[status] += 1
            size += len(said)

    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stopped.set)
    listers = [asyncio.create_task(lister()) for _ in range(connections)]
    await asyncio.sleep(0.5)
    print("begun", flush=True)
    await stopped.wait()
    for task in listers:
        task.cancel()
    print(dict(told), f"{size / 2**20:,.0f} MiB", flush=True)


if __name__ == "__main__":
    port, key, path, connections = sys.argv[1:]
    asyncio.run(list_for_ever(int(port), key, path, int(connections)))
