"""Where a server may listen, TLS, and where commands and programs take their key from."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from wire_load_world import PATIENCE_SECONDS, sqlite_url

from holdfast.cli.main import cli
from holdfast.core.access import Scope
from holdfast.core.errors import Denied, Invalid, Unavailable
from holdfast.sdk.client import Client
from holdfast.sdk.open import open_local, open_registry
from holdfast.server.serving import Place, check_place

ANYWHERE = "0.0.0.0"  # it is refused, or never opened
PEM = Path("server.pem")


def invoke(folder: Path, *arguments: str, **environment: str) -> Result:
    runner = CliRunner(env={"HOLDFAST_STORE": sqlite_url(folder), **environment})
    return runner.invoke(cli, arguments)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ([], "--keys, or listen on 127.0.0.1"),
        (["--tls-cert", "c", "--tls-key", "k"], "--keys, or listen on 127.0.0.1"),
        (["--keys"], "--tls-cert and --tls-key, or say --behind-proxy"),
        (["--keys", "--tls-cert", "c"], "both --tls-cert and --tls-key"),
        (["--keys", "--behind-proxy"], "holdfast keys create"),
    ],
)
def test_a_server_does_not_listen_where_it_would_be_open_to_all(
    tmp_path: Path, options: list[str], advice: str
) -> None:
    result = invoke(tmp_path, "serve", "--listen", f"{ANYWHERE}:0", *options)

    assert result.exit_code != 0
    assert advice in " ".join(result.stderr.split())


def test_places_that_are_safe_are_taken() -> None:
    certified = Place(host=ANYWHERE, certificate=PEM, certificate_key=PEM)

    check_place(Place(host="127.0.0.1"), keys=False)
    check_place(Place(host="::1"), keys=False)
    check_place(Place(host=ANYWHERE, proxy=True), keys=True)
    check_place(certified, keys=True)
    with pytest.raises(Invalid, match="--keys"):
        check_place(certified, keys=False)


@contextmanager
def serve(folder: Path, *options: str) -> Iterator[str]:
    """A server process that asks for keys; its address."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "holdfast", "serve", "--keys", "--listen", "127.0.0.1:0"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, *options],
            env={**os.environ, "HOLDFAST_STORE": sqlite_url(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        yield address(process, log)
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


def address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    limit = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < limit and process.poll() is None:
        if found := re.search(r"(https?://\S+) serves ", log.read_text(encoding="utf-8")):
            return found[1]
        time.sleep(0.02)
    raise AssertionError(log.read_text(encoding="utf-8"))


def new_key(folder: Path, *scopes: Scope) -> str:
    async def make() -> str:
        registry = await open_local(sqlite_url(folder))
        _, text = await registry.create_key(name="ana", scopes=scopes, actor="user:root")
        await registry.close()
        return text

    return asyncio.run(make())


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that nobody else has signed, and its key."""
    names = folder / "server.pem", folder / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1,DNS:localhost", "-addext", "basicConstraints=CA:FALSE",
         "-out", names[0], "-keyout", names[1]],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return names


def test_a_server_with_a_certificate_is_trusted_by_those_who_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = new_key(tmp_path, Scope.SUBMIT, Scope.OBSERVE)
    pem, private = certificate(tmp_path)
    monkeypatch.setenv("HOLDFAST_KEY", text)

    async def counts(url: str) -> object:
        registry = await open_registry(url)
        try:
            return await registry.counts()
        finally:
            await registry.close()

    with serve(tmp_path, "--tls-cert", str(pem), "--tls-key", str(private)) as url:
        assert url.startswith("https://")
        with pytest.raises(Unavailable, match="HOLDFAST_CA_FILE"):
            asyncio.run(counts(url))
        monkeypatch.setenv("HOLDFAST_CA_FILE", str(pem))
        assert asyncio.run(counts(url)) == {}
        submitted = invoke(tmp_path, "submit", "--store", url, "--", "true")
        assert submitted.exit_code == 0, submitted.output
        with pytest.raises(Unavailable):
            asyncio.run(counts(url.replace("https", "http")))


@pytest.mark.parametrize("name", ["HOLDFAST_KEY", "HOLDFAST_KEY_FILE"])
def test_commands_and_programs_take_their_key_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text = new_key(tmp_path, Scope.SUBMIT, Scope.OBSERVE)
    kept = tmp_path / "key"
    kept.write_text(f"{text}\n", encoding="ascii")
    given = text if name == "HOLDFAST_KEY" else str(kept)

    with serve(tmp_path) as url:
        stranger = invoke(tmp_path, "list", "--store", url)
        known = invoke(tmp_path, "submit", "--store", url, "--", "true", **{name: given})
        monkeypatch.setenv(name, given)
        with Client(url) as client:
            [job] = client.list()
        monkeypatch.delenv(name)

        async def nameless() -> None:
            registry = await open_registry(url)
            try:
                await registry.counts()
            finally:
                await registry.close()

        with pytest.raises(Denied, match="HOLDFAST_KEY"):
            asyncio.run(nameless())

    assert stranger.exit_code != 0
    assert "HOLDFAST_KEY" in stranger.stderr
    assert known.exit_code == 0, known.output
    assert job.submitted_by == "key:ana"
    assert job.job_id in known.output


@pytest.mark.parametrize("text", ["missing", "latin"])
def test_a_key_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    if text == "latin":
        path.write_bytes("schlüssel".encode("latin-1"))

    result = invoke(tmp_path, "list", "--store", "http://127.0.0.1:1", HOLDFAST_KEY_FILE=str(path))

    assert result.exit_code != 0
    assert "HOLDFAST_KEY_FILE cannot be read" in result.stderr


@pytest.mark.parametrize(
    ("name", "text"), [("HOLDFAST_KEY", "hf_secret\nx"), ("HOLDFAST_CA_FILE", __file__)]
)
def test_what_cannot_be_used_is_named_and_a_key_not_repeated(
    tmp_path: Path, name: str, text: str
) -> None:
    result = invoke(tmp_path, "list", "--store", "https://127.0.0.1:1", **{name: text})

    assert result.exit_code == 2
    assert name in result.stderr
    assert "secret" not in result.output
    assert isinstance(result.exception, SystemExit)


def test_a_certificate_that_cannot_be_used_is_refused_with_words(tmp_path: Path) -> None:
    new_key(tmp_path, Scope.WORK)
    files = ["--tls-cert", __file__, "--tls-key", str(tmp_path / "none")]

    result = invoke(tmp_path, "serve", "--keys", "--listen", "127.0.0.1:0", *files)

    assert result.exit_code == 2
    assert "--tls-cert or --tls-key cannot be used" in result.stderr


def test_a_key_in_the_url_of_a_store_is_refused(tmp_path: Path) -> None:
    for url in ("http://hf_x:y@127.0.0.1:1", "http://127.0.0.1:1?key=hf_x"):
        result = invoke(tmp_path, "list", "--store", url)
        assert result.exit_code == 2
        assert isinstance(result.exception, SystemExit)
