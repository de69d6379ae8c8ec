"""A browser's own EventSource, as Node has it: cut off again and again, it misses nothing and reads
nothing twice, and stops when the job has ended."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from holdfast.core.catalogue import EventClass
from holdfast.core.event import Event
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.registry.local import LocalRegistry
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from tests.server.node_programs import NODE
from tests.server.programs import PATIENCE_SECONDS
from tests.server.running_server import serving

PROGRAM = """
const [url, ...types] = process.argv.slice(1);
const source = new EventSource(url);
const heard = [];
const awake = setInterval(() => {}, 1000);
let opened = 0;
source.onopen = () => { opened += 1; };
for (const type of types)
  source.addEventListener(type, (event) => heard.push(JSON.parse(event.data).event_id));
source.onerror = () => {
  if (source.readyState !== EventSource.CLOSED) return;
  console.log(JSON.stringify({ heard, opened }));
  clearInterval(awake);
};
"""
TYPES = ("job_queued", "job_claimed", "job_started", "output", "job_succeeded")
OUTPUTS = 60
CUTS = (1_500, 9_000)
"""After so many bytes of an answer its connection is cut, the first times."""


@asynccontextmanager
async def cutting(port: int) -> AsyncIterator[int]:
    """A way to the server that breaks a few times; its port."""
    cuts = list(CUTS)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while some := await reader.read(2_000):
            writer.write(some)

    async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        left = cuts.pop(0) if cuts else 1 << 30
        asking = asyncio.create_task(forward(reader, back))
        while left > 0 and (some := await there.read(min(left, 2_000))):
            writer.write(some)
            left -= len(some)
        asking.cancel()
        writer.close()
        back.close()

    proxy = await asyncio.start_server(through, "127.0.0.1", 0)
    async with proxy:
        yield proxy.sockets[0].getsockname()[1]


async def _job(registry: LocalRegistry) -> list[str]:
    """A job with a long log, ended; the ids of its events, in order."""
    await registry.enqueue(JobRequest(spec=Spec(), job_id="told"), actor="user:ana")
    grant = await registry.acquire("told", owner="w")
    await registry.heartbeat(grant)
    now = datetime.now(UTC)
    said = [
        Event("output", EventClass.WORKER, now, sequence=n, stream="stdout", data=b"line\n")
        for n in range(1, OUTPUTS + 1)
    ]
    await registry.publish(grant, said)
    await registry.complete(grant, Success())
    page = await registry.logs("told")
    return [event.event_id for event in page.events]


async def test_an_event_source_that_is_cut_off_reads_on_and_stops_at_the_end() -> None:
    ids = SystemIds()
    registry = LocalRegistry(MemoryStore(SystemClock(), ids), ids)
    expected = await _job(registry)
    async with serving(registry) as served, cutting(int(served.url.rpartition(":")[2])) as port:
        url = f"http://127.0.0.1:{port}/v1/jobs/told/stream"
        node = await asyncio.create_subprocess_exec(
            NODE, "--no-warnings", "--experimental-eventsource", "-e", PROGRAM, url, *TYPES,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                told, _ = await node.communicate()
        finally:
            if node.returncode is None:
                node.kill()
    answer = json.loads(told)

    assert answer["heard"] == expected
    assert answer["opened"] == len(CUTS) + 1
