"""What a hostile review found in the server, first part: what it shows, keeps and lets in."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from connectrpc.code import Code
from protobuf import Message
from wire_load_world import sqlite_url
from wire_reviewed_world import LARGE, Scene, play, refusal, traced

from holdfast.core.access import Scope
from holdfast.core.command import decode_command
from holdfast.core.errors import Invalid
from holdfast.core.job import Job
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import Grant, Request
from holdfast.sdk.open import open_local
from holdfast.server.context import Settings
from holdfast.wire.generated.holdfast.v1 import registry_pb as pb
from holdfast.wire.generated.job.v1 import job_pb as old

HUGE = "x" * 900_000


def test_a_job_made_again_shows_nothing_of_the_one_before() -> None:
    async def lives(here: Scene, *texts: bytes) -> list[bytes | None]:
        await here.enqueue(job_id="nightly")
        [grant] = await here.registry.claim(["q"], owner="w")
        events = [here.output(number, text) for number, text in enumerate(texts, 1)]
        await here.registry.publish(grant, events)
        await here.registry.complete(grant, Success())
        seen = [event async for event in here.remote.watch("nightly")]
        return [event.data for event in seen if event.sequence is not None]

    async def body(here: Scene) -> None:
        before = [b"secret %d" % number for number in range(8)]
        assert await lives(here, *before) == before
        here.clock.advance(days=2)
        assert (await here.registry.prune(older_than=timedelta(days=1))).jobs == 1

        assert await lives(here, b"new") == [b"new"]

    play(body)


@pytest.mark.parametrize("name", ["HOLDFAST_KEY", "HOLDFAST_KEY_FILE", "HOLDFAST_STORE"])
def test_no_job_can_ask_for_what_its_worker_is_let_in_with(name: str) -> None:
    asked = msgspec.json.encode({"argv": ["env"], "secrets": [name]})

    with pytest.raises(Invalid, match=name):
        decode_command(msgspec.Raw(asked))


@pytest.mark.parametrize("variable", ["HOLDFAST_KEY", "HOLDFAST_KEY_FILE"])
def test_a_workers_own_key_is_taken_out_of_what_a_job_prints(tmp_path: Path, variable: str) -> None:
    url, key = sqlite_url(tmp_path), "hf_0123456789ab_" + "k" * 43
    (tmp_path / "key").write_text(key + "\n")
    spec = Spec(payload=msgspec.Raw(msgspec.json.encode({"argv": ["echo", "found", key]})))

    async def made() -> None:
        registry = await open_local(url)
        await registry.enqueue(Request(spec=spec, job_id="thief"), actor="user:eve")
        await registry.close()

    async def printed() -> bytes:
        registry = await open_local(url)
        log = await registry.log("thief")
        await registry.close()
        return b"".join(event.data or b"" for event in log.events)

    asyncio.run(made())
    value = key if variable == "HOLDFAST_KEY" else str(tmp_path / "key")
    subprocess.run(
        [sys.executable, "-m", "holdfast", "worker", "--drain"],
        env={**os.environ, "HOLDFAST_STORE": url, variable: value},
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=True,
    )

    assert asyncio.run(printed()) == b"found ***\n"


async def status(url: str, key: str | None = None, **headers: str) -> int:
    """How a call with these headers is answered."""
    place = urlsplit(url)
    told = {"host": place.netloc, "content-type": "application/json", "content-length": "2"}
    told |= headers | ({"authorization": f"Bearer {key}"} if key else {})
    lines = [
        "POST /holdfast.v1.RegistryService/Now HTTP/1.1",
        *(f"{k}: {v}" for k, v in told.items()),
    ]
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write("\r\n".join([*lines, "", "{}"]).encode())
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return int(answer.split()[1])


def test_without_keys_no_page_of_a_browser_can_reach_the_server() -> None:
    async def body(here: Scene) -> None:
        url = here.served.url
        for host in ("localhost", "127.0.0.1", "127.0.0.1:1", "[::1]:8080"):
            assert (host, await status(url, host=host)) == (host, 200)
        for host in (
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "10.1.2.3",
            "x",
        ):
            assert (host, await status(url, host=host)) == (host, 403)
        for origin in ("http://evil.example", "https://localhost.evil.example:8080", "null"):
            assert (origin, await status(url, origin=origin)) == (origin, 403)

    play(body)


def test_with_keys_it_does_not_matter_by_what_name_a_server_is_called() -> None:
    async def body(here: Scene) -> None:
        _, key = await here.registry.create_key(name="a", scopes=[Scope.OBSERVE], actor="user:r")
        evil = {"host": "jobs.example", "origin": "http://evil.example"}
        assert await status(here.served.url, key, **evil) == 200
        assert await status(here.served.url, **evil) == 401

    play(body, Settings(keys=True))


def _huge(number: int) -> list[tuple[str, Message]]:
    """Calls with a name that no queue, kind, region or executor has."""
    name = f"{number}{HUGE}"
    claims = [
        pb.ClaimRequest(queues=[name], owner="w"),
        pb.ClaimRequest(queues=["a"], owner="w", kinds=[name]),
        pb.ClaimRequest(queues=["a"], owner="w", region=name),
        pb.ClaimRequest(queues=["a"], owner="w", executor=name),
    ]
    made = pb.Request(job_id="made", spec=pb.Spec(queue=name))
    return [
        *(("claim", one) for one in claims),
        *(("await_change", pb.AwaitChangeRequest(claim=one)) for one in claims),
        ("enqueue", pb.EnqueueRequest(requests=[made], actor="user:a")),
        ("acquire", pb.AcquireRequest(job_id="made", owner="w", create=made)),
    ]


def test_refused_names_are_not_remembered() -> None:
    async def body(here: Scene) -> None:
        async def refused(number: int) -> None:
            for method, asked in _huge(number):
                told = await refusal(getattr(here.caller.registry, method)(asked))
                assert (method, told.code) == (method, Code.INVALID_ARGUMENT)
            echo = old.JobParams(command="echo")
            made = old.EnqueueJobRequest(queue=f"{number}{HUGE}", job_params=echo)
            assert (await refusal(here.caller.jobs.enqueue_job(made))).code is Code.INVALID_ARGUMENT

        await refused(0)
        with traced() as grown:
            for number in range(1, 5):
                await refused(number)
            assert grown() < 3_000_000

    play(body, Settings(poll_seconds=0))


def test_an_answer_is_never_larger_than_it_may_be() -> None:
    async def body(here: Scene) -> None:
        asked = [Request(spec=Spec(queue="q", payload=LARGE), job_id=f"j{n}") for n in range(50)]
        await here.registry.enqueue_many(asked, actor="user:a")
        ids = [f"j{n}" for n in range(50)]

        for some in (ids, ["j1"] * 400):
            told = await refusal(here.caller.registry.get_jobs(pb.GetJobsRequest(job_ids=some)))
            assert (told.code, bool(told.message)) == (Code.RESOURCE_EXHAUSTED, True)
        page = old.ListJobsRequest(queue="q", page_size=50)
        told = await refusal(here.caller.jobs.list_jobs(page))
        assert told.code in (Code.RESOURCE_EXHAUSTED, Code.INVALID_ARGUMENT)
        assert "fewer" in told.message

        jobs = await here.remote.get_many(ids)
        assert [job.job_id for job in jobs if job] == ids

    play(body)


def test_a_job_named_often_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(here: Scene) -> None:
        await here.enqueue(job_id="one")
        real, read = here.registry.get_many, list[str]()

        async def get_many(job_ids: Sequence[str]) -> list[Job | None]:
            read.extend(job_ids)
            return await real(job_ids)

        monkeypatch.setattr(here.registry, "get_many", get_many)
        asked = pb.GetJobsRequest(job_ids=["one", "none"] * 500)
        answer = await here.caller.registry.get_jobs(asked)

        assert [one.answer is not None for one in answer.answers] == [True, False] * 500
        assert sorted(read) == ["none", "one"]

    play(body)


def test_how_large_a_job_is_says_nothing_to_those_who_may_not_know_of_it() -> None:
    async def body(here: Scene) -> None:
        spec = Spec(queue="secret", payload=LARGE)
        await here.registry.enqueue(Request(spec=spec, job_id="large"), actor="user:a")
        eve = await here.key("eve", Scope.SUBMIT)

        asked = pb.GetJobsRequest(job_ids=["large"] * 400)
        answer = await eve.registry.get_jobs(asked, headers=eve.headers)

        assert {one.answer is None for one in answer.answers} == {True}

    play(body, Settings(keys=True))


def test_a_job_that_lands_before_its_client_waits_comes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.server.lanes.LOOK_SECONDS", 30.0)

    async def body(here: Scene) -> None:
        real, took = here.registry.claim, list[float]()

        async def claim(*queues: Any, **more: Any) -> list[Grant]:  # noqa: ANN401
            got = await real(*queues, **more)
            if not made:
                made.append(await here.enqueue())
            return got

        monkeypatch.setattr(here.registry, "claim", claim)
        for _ in range(3):
            made, began = list[Job](), time.monotonic()
            asked = pb.ClaimRequest(queues=["q"], owner="w", wait_seconds=20)
            answer = await here.caller.registry.claim(asked)
            took.append(time.monotonic() - began)
            assert len(answer.grants) == 1
        assert max(took) < 5
        assert min(took) < 0.5

    play(body)


def test_a_job_that_lands_before_its_worker_listens_is_heard_of_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.server.lanes.LOOK_SECONDS", 30.0)

    async def body(here: Scene) -> None:
        took: list[float] = []
        for _ in range(3):
            mark = here.remote.mark(ready=True)
            assert await here.remote.claim(["q"], owner="w") == []
            await here.enqueue()
            began = time.monotonic()
            await here.remote.changed(since=mark, timeout=15, ready=True)
            took.append(time.monotonic() - began)
            assert len(await here.remote.claim(["q"], owner="w")) == 1
        assert max(took) < 5
        assert min(took) < 0.5

    play(body)
