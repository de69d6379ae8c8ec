"""Buckets for tests of outputs: S3 and Azure emulators, one of each per test process, on loopback.

Each starts when it is first asked for something. Put `environment()` into the environment, and `address()`
is a new, empty place each time. There is no honest emulator of Google's: `GOOGLE` is the one of S3, told in
S3's words what obstore says in Google's, which shows that we speak it, not what Google does.
"""

import atexit
import base64
import hashlib
import hmac
import http.client
import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Mapping
from email.utils import formatdate
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Protocol

from verify.bucket_server import PLAIN, bucket_port, stop_server
from verify.node_packages import NODE, packages
from verify.postgres_server import ServerFailed, free_port, temporary_folder

ACCOUNT = "devstoreaccount1"
KEY = base64.b64encode(b"a key for tests alone, of 64 bytes: nothing else is kept by it!!").decode()
CONTAINER = "outputs"
_SOURCE = Path(__file__).parent / "azurite"
_PATIENCE_SECONDS = 120.0
_numbers = count()


class Emulator(Protocol):
    """A server of buckets."""

    scheme: str

    def environment(self) -> dict[str, str]: ...

    def address(self, bucket: str | None = None) -> str: ...

    def make_bucket(self, name: str) -> None: ...

    def remove_bucket(self, name: str) -> None: ...


class S3Emulator:
    """ministack, which compares in the write itself."""

    scheme = "s3"

    def environment(self) -> dict[str, str]:
        return s3_environment(bucket_port())

    def address(self, bucket: str | None = None) -> str:
        return f"s3://{bucket or PLAIN}/outputs/{next(_numbers)}"

    def make_bucket(self, name: str) -> None:
        _ask("PUT", f"http://127.0.0.1:{bucket_port()}/{name}", {})

    def remove_bucket(self, name: str) -> None:
        _ask("DELETE", f"http://127.0.0.1:{bucket_port()}/{name}", {})


class AzureEmulator:
    """Azurite."""

    scheme = "az"

    def environment(self) -> dict[str, str]:
        return azure_environment(azurite_port())

    def address(self, bucket: str | None = None) -> str:
        azurite_port()
        return f"az://{bucket or CONTAINER}/outputs/{next(_numbers)}"

    def make_bucket(self, name: str) -> None:
        ask_azurite(azurite_port(), "PUT", name)

    def remove_bucket(self, name: str) -> None:
        ask_azurite(azurite_port(), "DELETE", name)


class GoogleFake(S3Emulator):
    """Not an emulator of Google's: see above."""

    scheme = "gs"

    def environment(self) -> dict[str, str]:
        base = f"http://127.0.0.1:{google_port()}"
        account = {
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"GOOGLE_BASE_URL": base, "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}

    def address(self, bucket: str | None = None) -> str:
        return super().address(bucket).replace("s3://", "gs://")


S3, AZURE, GOOGLE = S3Emulator(), AzureEmulator(), GoogleFake()


def s3_environment(port: int, key: str = "test") -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": key,
        "AWS_REGION": "us-east-1",
    }


def azure_environment(port: int, key: str = KEY) -> dict[str, str]:
    return {
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": key,
    }


@cache
def azurite_port() -> int:
    """The port of this process's Azurite, which has the container `CONTAINER`."""
    folder, port = temporary_folder("holdfast-azurite-"), free_port()
    own = {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PATH": os.environ["PATH"],
        "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}",
    }
    program = packages(_SOURCE) / "azurite" / "dist" / "src" / "blob" / "main.js"
    options = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    # The kernel ends it should this process be killed.
    command = ["setpriv", "--pdeathsig", "KILL", str(NODE), str(program)]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), *options]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    atexit.register(stop_server, process, folder)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            ask_azurite(port, "PUT", CONTAINER)
            return port
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                said = (folder / "log").read_text()[-2000:]
                raise ServerFailed(f"No Azurite starts:\n{said}") from None
            time.sleep(0.05)


class _InGooglesWords(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.other = http.client.HTTPConnection("127.0.0.1", bucket_port(), timeout=60)

    def finish(self) -> None:
        self.other.close()
        super().finish()

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        if self.headers.get("x-goog-if-generation-match") == "0":
            headers["If-None-Match"] = "*"
        self.other.request(self.command, self.path, body, headers)
        answer = self.other.getresponse()
        said = answer.read()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815  # as the base class wants them

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # five is what a busy machine overruns


@cache
def google_port() -> int:
    bucket_port()  # here: the kernel ends it together with the thread that has started it
    server = _Server(("127.0.0.1", 0), _InGooglesWords)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return int(server.server_address[1])


def ask_azurite(port: int, method: str, container: str) -> None:
    """Make or remove a container, signed as Azure wants it: obstore knows objects only."""
    headers = {
        "x-ms-date": formatdate(usegmt=True),
        "x-ms-version": "2021-12-02",
        "Content-Length": "0",
    }
    signed = "\n".join(
        [
            method,
            *[""] * 11,
            f"x-ms-date:{headers['x-ms-date']}",
            f"x-ms-version:{headers['x-ms-version']}",
            f"/{ACCOUNT}/{ACCOUNT}/{container}",
            "restype:container",
        ]
    )
    mac = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(mac.digest()).decode()}"
    _ask(method, f"http://127.0.0.1:{port}/{ACCOUNT}/{container}?restype=container", headers)


def _ask(method: str, url: str, headers: Mapping[str, str]) -> bytes:
    request = urllib.request.Request(url, method=method, headers=dict(headers))
    with urllib.request.urlopen(request, timeout=60) as answer:
        return bytes(answer.read())
