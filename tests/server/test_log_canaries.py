"""I31: no line of any log has what is in a job, or a key, or a token, however the job ends; but a worker's
lines show the arguments of a function."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.state import State
from tests.server.log_canaries import TRACE, Logs, calls, play

STYLES = ("text", "json")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Logs]:
    """What a server and a worker wrote, in either style."""

    async def both() -> list[Logs]:
        folders = [tmp_path_factory.mktemp(style) for style in STYLES]
        plays = [play(Path(folder), style) for folder, style in zip(folders, STYLES, strict=True)]
        return list(await asyncio.gather(*plays))

    return dict(zip(STYLES, asyncio.run(both()), strict=True))


def entries(text: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in text.splitlines()]


@pytest.mark.parametrize("style", STYLES)
def test_no_line_has_a_canary_but_an_argument_nor_a_key_or_a_token(logs: dict[str, Logs], style: str) -> None:
    told = logs[style]
    assert re.findall("canary-in-.*", told.server) == []
    assert set(re.findall("canary-in-[a-z]*", told.worker)) == {"canary-in-payload"}  # in its arguments
    for text in (told.server, told.worker):
        assert [one for one in told.secrets if one in text] == []
    assert {name: str(job.state) for name, job in told.jobs.items()} == {
        "return": State.SUCCEEDED,
        "fail": State.FAILED,
        "validation": State.DEAD_LETTERED,
        "unwritable": State.SUCCEEDED,
        "snooze": State.QUEUED,
        "crash": State.DEAD_LETTERED,
        "time": State.DEAD_LETTERED,
        "cancel": State.CANCELLED,
        "misfit": State.DEAD_LETTERED,
        "done": State.SUCCEEDED,
        "exit": State.FAILED,
        "unsecret": State.FAILED,
    }


def test_a_worker_says_of_every_job_what_it_is_tied_to(logs: dict[str, Logs]) -> None:
    ends = [one for one in entries(logs["json"].worker) if one["event"] == "job_ended"]

    assert {one["job_id"] for one in ends} == set(calls())
    tied = {one["job_id"]: (one["correlation_id"], one.get("trace_id")) for one in ends}
    assert tied["return"] == tied["crash"] == ("order-7", TRACE)
    assert tied["done"] == ("done", None)


def test_a_server_says_of_every_refused_call_what_it_was_about(logs: dict[str, Logs]) -> None:
    told = entries(logs["json"].server)
    refused = [one for one in told if one["event"] == "call_refused"]

    assert told[0]["event"] == "server_started"
    assert told[-1]["event"] == "server_stopped"
    assert {one["level"] for one in refused} == {"debug"}
    [late] = [one for one in refused if "holds nothing" in one.get("reason", "")]
    assert late["method"] == "holdfast.v1.RegistryService/Heartbeat"
    assert (late["job_id"], late["attempt"], late["correlation_id"]) == ("hand", 1, "order-8")
    assert late["seconds"] < 60
    codes = {one["code"] for one in refused}
    assert {"invalid_argument", "not_found"} <= codes
    assert "unauthenticated" not in codes  # whoever is turned away fills no log


def test_the_same_is_said_to_people(logs: dict[str, Logs]) -> None:
    server = logs["text"].server

    words = "job hand, attempt 1, correlation order-8"
    [late] = [line for line in server.splitlines() if "holds nothing" in line]
    assert words in late
    assert "Stopped: all that was acknowledged is stored." in server
