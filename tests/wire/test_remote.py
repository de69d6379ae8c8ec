"""The remote registry: its addresses, its waits while a server is away, and a process that was forked."""

import asyncio
import re
import socket
import sys

import pytest

from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.ports import JobRequest
from holdfast.sdk.open import open_registry, open_remote
from holdfast.server.http_server import ListenAddress
from tests.server import running_server
from tests.server.running_server import serving
from tests.server.served_registry import ServedRegistry
from tests.server.server_process import until

FORK = """
import asyncio, os, sys
from holdfast.sdk.open import open_registry

async def ask(registry):
    try:
        async with asyncio.timeout(20):
            await registry.counts()
        return "answered"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"

async def main(registry=None):
    registry = registry or await open_registry(sys.argv[1])
    print(await ask(registry), flush=True)
    return registry

registry = asyncio.run(main())
if not (child := os.fork()):
    asyncio.run(main())
    asyncio.run(main(registry))
    os._exit(0)
os.waitpid(child, 0)
"""


async def test_a_process_that_was_forked_is_told_what_to_do(served: ServedRegistry) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FORK, served.server.url, stdout=asyncio.subprocess.PIPE
    )
    said = (await process.communicate())[0].decode().splitlines()
    assert said[0] == "answered"
    assert len(said) == 3
    for words in said[1:]:
        assert words.startswith("Invalid: ")
        assert "spawn" in words


async def test_who_waits_for_a_job_waits_also_while_its_server_is_started_again(
    monkeypatch: pytest.MonkeyPatch, served: ServedRegistry
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(running_server, "ListenAddress", lambda port=port, at=port: ListenAddress(port=at))
    job = await served.enqueue()
    async with serving(served.registry) as first:
        remote = first.remote()
        waiting = asyncio.create_task(remote.wait(job.job_id))
        await until(lambda: bool(first.server.server_state.tasks))
    await asyncio.sleep(0.5)
    assert not waiting.done()

    [grant] = await served.registry.claim(["q"], owner="w")
    await served.registry.complete(grant, Success())
    async with serving(served.registry):
        assert (await waiting).state is State.SUCCEEDED
    await remote.close()


async def test_who_waits_for_so_long_does_not_wait_longer_for_a_server_that_is_gone(
    served: ServedRegistry,
) -> None:
    async with serving(served.registry) as gone:
        remote = gone.remote()
    async with asyncio.timeout(10):
        with pytest.raises(Unavailable):
            await remote.wait("any", timeout=1.0)
    await remote.close()


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1,", "http://one:80:80", "http://one:99999", "https://one:http"],
)
def test_an_address_that_is_none_is_refused_with_an_example(url: str) -> None:
    words = f"{url!r} does not name a server. Write http://127.0.0.1:8080"
    with pytest.raises(Invalid, match=re.escape(words)):
        open_remote(url)


async def test_an_address_may_be_written_in_capitals(served: ServedRegistry) -> None:
    registry = await open_registry(served.server.url.replace("http", "HTTP"))
    assert await registry.counts() == {}
    await registry.close()


async def test_jobs_that_were_made_before_are_named(served: ServedRegistry) -> None:
    named = [JobRequest(spec=Spec(), job_id="a"), JobRequest(spec=Spec(), request_id="r")]

    first = await served.remote.enqueue_many([*named, JobRequest(spec=Spec())], actor="user:ana")
    again = await served.remote.enqueue_many([*named, JobRequest(spec=Spec())], actor="user:ana")

    assert first.existed == frozenset()
    assert again.existed == {"a", first[1].job_id}
