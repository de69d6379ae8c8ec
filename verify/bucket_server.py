"""A real S3 emulator for tests: one per test process, on loopback, gone with the process."""

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from obstore.store import S3Store

from verify.postgres_server import ServerFailed, free_port, temporary_folder

PLAIN, VERSIONED = "plain", "versioned"
_VERSIONING = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
_PATIENCE_SECONDS = 60.0


@cache
def bucket_port() -> int:
    """The port of this process's server, which has the buckets `PLAIN` and `VERSIONED`."""
    folder, port = temporary_folder("holdfast-buckets-"), free_port()
    own = {"HOME": str(folder), "TMPDIR": str(folder), "PATH": os.environ["PATH"]}
    settings = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SERVICES": "s3"}
    # The kernel ends it should this process be killed. It runs as we do: nobody else reaches a venv.
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "ministack"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=own | settings,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    atexit.register(stop_server, process, folder)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise ServerFailed(f"No emulator starts:\n{(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.02)
    for bucket in (PLAIN, VERSIONED):
        _ask(port, "PUT", bucket)
    _ask(port, "PUT", f"{VERSIONED}?versioning", _VERSIONING)
    return port


def s3_store(bucket: str = PLAIN, port: int | None = None, *, retries: int = 0) -> S3Store:
    return S3Store(
        bucket,
        endpoint=f"http://127.0.0.1:{port or bucket_port()}",
        access_key_id="test",
        secret_access_key="test",
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "timeout": "60s"},
        retry_config={"max_retries": retries},
    )


def versions(path: str) -> list[str]:
    """The ids of all versions of an object in the bucket `VERSIONED`, oldest first."""
    answer = ElementTree.fromstring(_ask(bucket_port(), "GET", f"{VERSIONED}?versions&prefix={path}"))
    found = [v.findtext("{*}VersionId") or "" for v in answer.findall("{*}Version")]
    assert answer.findtext("{*}IsTruncated") == "false"
    return found[::-1]


def _ask(port: int, method: str, path: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", body, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        _ask(port, "GET", "_ministack/health")
        return True
    return False


def stop_server(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """End it, and remove what it left."""
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
