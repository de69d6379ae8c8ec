"""A server and a worker, as processes, whose jobs hold canaries; and calls that are refused."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.access import Scope
from holdfast.core.job import Job
from holdfast.core.spec import Spec
from holdfast.core.state import ENDED, State
from holdfast.ports import JobRequest, Registry
from holdfast.runner.call import Call
from holdfast.sdk.job_calls import command
from holdfast.sdk.open import open_local
from holdfast.system import SystemClock, SystemIds
from holdfast.wire.remote import RemoteRegistry
from holdfast.wire.server_connection import ServerConnection
from tests import ROOT
from tests.server import canary_app

PATIENCE_SECONDS = 90.0
MARK = "5d1f"
SECRET = "canary-in-secret-5d1f"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HOWS = ("return", "fail", "validation", "unwritable", "snooze", "crash", "time", "cancel")
METHODS = "/holdfast.v1.RegistryService/"


class Logs(msgspec.Struct):
    """The logs, the secrets that must not be in them, and the jobs."""

    server: str
    worker: str
    secrets: list[str]
    jobs: dict[str, Job]


def calls() -> dict[str, Call[Any]]:
    """Return a job for each way to end."""
    ids: dict[str, Any] = {"correlation_id": "order-7", "traceparent": f"00-{TRACE}-{'1' * 16}-00"}
    made: dict[str, Call[Any]] = {
        how: canary_app.job.configure(job_id=how, timeout=0.5 if how == "time" else None, **ids).call(
            how=how, canary=MARK
        )
        for how in HOWS
    }
    wrong = msgspec.Raw(b'{"how": "return", "canary": ["canary-in-payload-5d1f"]}')
    made["misfit"] = Call(JobRequest(spec=Spec(kind="job", payload=wrong), job_id="misfit"))
    words = "echo canary-in-output-5d1f; echo $SECRET >&2; exit $0"
    for name, code in (("done", "0"), ("exit", "3")):
        made[name] = command(
            ["sh", "-c", words, code, "canary-in-payload-5d1f"], secrets=["SECRET"], job_id=name
        )
    made["unsecret"] = command(["true", "canary-in-payload-5d1f"], secrets=["NONE"], job_id="unsecret")
    return made


async def play(folder: Path, style: str) -> Logs:
    """Run a server, a worker and all the jobs, and return what was logged."""
    store = f"sqlite:///{folder / 'jobs.db'}"
    local = await open_local(store)
    scopes = (Scope.SUBMIT, Scope.WORK, Scope.OBSERVE, Scope.DATA, Scope.ADMIN)
    _, key = await local.create_key(name="all", scopes=scopes, actor="user:root")
    server = Process(folder / "server.log", "serve", "--store", store, "--keys", "--verbose",
                     "--listen", "127.0.0.1:0", "--log", style)  # fmt: skip
    try:
        url = await server.saying(r"(http://127\.0\.0\.1:\d+)")
        remote = RemoteRegistry(ServerConnection((url,), key), SystemClock(), SystemIds())
        worker = Process(folder / "worker.log", "worker", "tests.server.canary_app:app", "--commands",
                         "--store", url, "--log", style, "--spool", str(folder / "spool"),
                         key=key)  # fmt: skip
        try:
            secrets = await misuse(url, key, remote)
            jobs = await drain(remote)
            await worker.stopped()
        finally:
            worker.kill()
            await remote.close()
        await server.stopped()
    finally:
        server.kill()
        await local.close()
    return Logs(server.text(), worker.text(), [key, SECRET, *secrets], jobs)


async def drain(registry: Registry) -> dict[str, Job]:
    """Enqueue the jobs, and return them once all that end have ended."""
    await registry.enqueue_many([call.request for call in calls().values()], actor="user:ana")
    names = list(calls())
    limit = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < limit:
        jobs = {job.job_id: job for job in await registry.status_many(names) if job is not None}
        if jobs["cancel"].state is State.RUNNING and jobs["cancel"].cancel is None:
            await registry.cancel("cancel", actor="user:ana")
        if all(job.state in ENDED for name, job in jobs.items() if name != "snooze"):
            return jobs
        await asyncio.sleep(0.05)
    raise AssertionError({name: job.state for name, job in jobs.items()})


async def misuse(url: str, key: str, registry: Registry) -> list[str]:
    """Calls that are refused, with canaries in every place. Return the secrets in them."""
    spec = Spec(queue="by-hand", kind="hand")
    await registry.enqueue(JobRequest(spec=spec, job_id="hand", correlation_id="order-8"), actor="u:a")
    [grant] = await registry.claim(["by-hand"], owner="me")
    token = grant.task_token or ""
    forged = f"canary-in-token-{MARK}"
    event = {"eventType": "canary-in-output-5d1f", "eventClass": "worker", "sequence": "1",
             "data": "Y2FuYXJ5"}  # fmt: skip
    asked: list[tuple[str, object]] = [
        ("Enqueue", {"requests": [{"spec": {"payload": "{canary-in-payload-5d1f"}}]}),
        ("Enqueue", {"requests": [{"spec": {"payload": '{"a": "canary-in-payload-5d1f"}'},
                                   "jobId": "canary-in-payload-5d1f!"}]}),
        ("Enqueue", "canary-in-payload-5d1f"),
        ("Heartbeat", {"taskToken": token, "checkpoint": "{canary-in-checkpoint-5d1f"}),
        ("Heartbeat", {"taskToken": forged}),
        ("Publish", {"taskToken": token, "events": [event]}),
        ("Complete", {"completions": [{"taskToken": token,
                                       "success": {"result": "{canary-in-result-5d1f"}}]}),
        ("Complete", {"completions": "canary-in-result-5d1f"}),
        ("Release", {"taskToken": token}),
        ("Heartbeat", {"taskToken": token}),
        ("Cancel", {"jobId": "nobody", "reason": "canary-in-payload-5d1f"}),
    ]  # fmt: skip
    for method, body in asked:
        await asyncio.to_thread(post, f"{url}{METHODS}{method}", body, key)
    await asyncio.to_thread(post, f"{url}{METHODS}Now", {}, f"hf_canary-in-key-{MARK}")
    return [token]


def post(url: str, body: object, key: str) -> None:
    """Send a request, whatever the response, unless it is an error of the server."""
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(url, msgspec.json.encode(body), headers)
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        if error.code >= 500:
            raise


class Process:
    """One command of holdfast, and the file that it writes to."""

    def __init__(self, log: Path, *words: str, key: str = "") -> None:
        self._log = log
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "SECRET": SECRET, "PYTHONPATH": path}
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *words],
                env={**env, "HOLDFAST_KEY": key} if key else env,
                cwd=log.parent,
                stdout=out,
                stderr=out,
            )

    def text(self) -> str:
        return self._log.read_text()

    async def saying(self, pattern: str) -> str:
        """Return the first match in the log, once there is one."""
        found = await self._until(lambda: re.search(pattern, self.text()))
        return str(found[1])

    async def stopped(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        await self._until(lambda: self._process.poll() is not None)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)

    async def _until(self, met: Callable[[], Any]) -> Any:  # noqa: ANN401
        limit = time.monotonic() + PATIENCE_SECONDS
        while not (found := met()):
            assert time.monotonic() < limit, self.text()
            await asyncio.sleep(0.02)
        return found
