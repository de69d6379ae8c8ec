"""The line of a call in the log: what failed, what was slow, about which job, and never what is in it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from holdfast.cli.server_log import LineHandler
from holdfast.core.errors import Fenced, HoldfastError, Unavailable
from holdfast.core.lifecycle import Success
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from holdfast.registry.local import LocalRegistry
from holdfast.server import call_records
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from tests.server.running_server import serving

SERVICE = "holdfast.v1.RegistryService/"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ASKED = JobRequest(
    spec=Spec(payload=msgspec.Raw(b'{"a": "canary"}')),
    job_id="job-1",
    correlation_id="order-7",
    traceparent=f"00-{TRACE}-00f067aa0ba902b7-01",
)
Body = Callable[[Registry], Coroutine[Any, Any, object]]


class Kept:
    """Where lines go in these tests."""

    def __init__(self) -> None:
        self.missing = 0
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


def told(
    monkeypatch: pytest.MonkeyPatch,
    body: Body,
    *,
    level: int = logging.DEBUG,
    **broken: BaseException,
) -> list[dict[str, Any]]:
    """What a server writes while this is done; `broken` are verbs that raise."""

    async def main() -> None:
        ids = SystemIds()
        registry = LocalRegistry(MemoryStore(SystemClock(), ids), ids)
        for verb, error in broken.items():
            monkeypatch.setattr(registry, verb, raising(error))
        async with serving(registry) as served:
            remote = served.remote()
            try:
                await remote.enqueue(ASKED, actor="user:ana")
                await body(remote)
            finally:
                await remote.close()
        await registry.close()

    out = Kept()
    log, lines = logging.getLogger("holdfast.server"), LineHandler(out, as_json=True)
    monkeypatch.setattr(log, "level", level)
    log._cache.clear()  # type: ignore[attr-defined]
    log.addHandler(lines)
    try:
        asyncio.run(main())
    finally:
        log.removeHandler(lines)
        log._cache.clear()  # type: ignore[attr-defined]
    return [msgspec.json.decode(line) for line in out.text.splitlines()]


def raising(error: BaseException) -> Callable[..., Coroutine[Any, Any, None]]:
    async def fail(*_: object, **__: object) -> None:
        raise error

    return fail


async def cancelled(registry: Registry) -> None:
    with pytest.raises(HoldfastError):
        await registry.cancel("job-1", actor="user:ana")


def test_a_fault_is_told_by_its_place_and_not_by_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        raise ValueError("canary in the cause")
    except ValueError as cause:
        error = KeyError("canary")
        error.__cause__ = cause

    [line] = told(monkeypatch, cancelled, cancel=error)

    assert (line["level"], line["event"], line["code"]) == ("error", "call_failed", "internal")
    assert line["method"] == SERVICE + "Cancel"
    assert line["reason"].startswith("KeyError at ")
    assert "test_call_records.py" in line["reason"]
    assert "; after ValueError at test_call_records.py" in line["reason"]
    assert (line["job_id"], line["correlation_id"]) == ("job-1", "order-7")
    assert line["trace_id"] == TRACE
    assert "canary" not in msgspec.json.encode(line).decode()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unavailable("The disk is full."), "The disk is full."),
        (TimeoutError("canary"), "It took too long."),
    ],
)
def test_what_the_store_did_not_do_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    [line] = told(monkeypatch, cancelled, level=logging.INFO, cancel=error)

    assert (line["level"], line["event"]) == ("warning", "call_failed")
    assert (line["code"], line["reason"], line["job_id"]) == ("unavailable", words, "job-1")


def test_what_is_refused_is_told_only_to_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(registry: Registry) -> None:
        [grant] = await registry.claim(["default"], owner="w")
        await registry.complete(grant, Success(result="canary"))
        with pytest.raises(Fenced):
            await registry.heartbeat(grant)

    assert told(monkeypatch, late, level=logging.INFO) == []
    [line] = told(monkeypatch, late)

    assert (line["level"], line["event"]) == ("debug", "call_refused")
    assert (line["job_id"], line["attempt"]) == ("job-1", 1)
    assert (line["correlation_id"], line["trace_id"]) == ("order-7", TRACE)
    assert line["reason"] == "Token 1 holds nothing: the job is succeeded, attempt 1."


def test_a_slow_call_is_told_unless_it_waits_by_design(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_records, "SLOW_SECONDS", -1.0)

    async def look(registry: Registry) -> None:
        await registry.status("job-1")
        await registry.claim(["default"], owner="w")

    lines = told(monkeypatch, look)

    methods = [line["method"].removeprefix(SERVICE) for line in lines]
    assert "Status" in methods
    assert "Claim" not in methods
    assert {(line["level"], line["event"], line["code"]) for line in lines} == {
        ("warning", "call_slow", "ok")
    }


def test_a_record_of_anybody_else_has_no_words_of_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = Kept()
    lines = LineHandler(out, as_json=False)
    out.missing = 3
    try:
        raise RuntimeError("canary")
    except RuntimeError as error:
        kind = (type(error), error, error.__traceback__)
        record = logging.LogRecord("uvicorn", logging.ERROR, "", 0, "It \x1b[31mbroke", (), kind)
    lines.emit(record)

    first, second = out.text.splitlines()
    assert first.endswith("3 lines are missing: stderr was not read in time")
    assert second.split(" ", 1)[1].startswith("It broke: RuntimeError at test_call_records.py")
    assert "canary" not in out.text
