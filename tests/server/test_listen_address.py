"""Where a server may listen, and TLS."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from holdfast.cli.serve import Listen
from holdfast.core.errors import Invalid, Unavailable
from holdfast.sdk.open import open_registry
from holdfast.server.http_server import ListenAddress, check_address
from tests.server.programs import invoke, key, service
from tests.server.server_process import server_process, sqlite_url

ANYWHERE = "0.0.0.0"  # it is refused, or never opened
PEM = Path("server.pem")


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ([], "--keys, or listen on 127.0.0.1"),
        (["--tls-cert", "c", "--tls-key", "k"], "--keys, or listen on 127.0.0.1"),
        (["--keys"], "--tls-cert and --tls-key, or --behind-proxy"),
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


@pytest.mark.parametrize(
    ("address", "begins"),
    [
        (("--port", "0"), "http://127.0.0.1:"),
        (("--listen", "0"), "http://127.0.0.1:"),
        (("--host", "localhost", "--port", "0"), "http://localhost:"),
        (("--host", "[::1]", "--port", "0"), "http://[::1]:"),
    ],
)
def test_the_address_may_be_a_port_or_a_host_and_a_port(
    tmp_path: Path, address: tuple[str, ...], begins: str
) -> None:
    with service(tmp_path, address=address) as url:
        counted = invoke(tmp_path, "list", "--store", url)

    assert (counted.exit_code, url.startswith(begins)) == (0, True), (url, counted.output)
    assert not url.endswith((":0", ":8080"))


def test_a_port_alone_is_one_of_this_machine() -> None:
    assert Listen().convert("8095", None, None) == ("127.0.0.1", 8095)
    assert Listen().convert("[::1]:8095", None, None) == ("::1", 8095)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--listen", "8095", "--port", "8096"], "Give --listen HOST:PORT, or --host and --port, not both"),
        (["--listen", ":8095"], "is not HOST:PORT or a port, such as 127.0.0.1:8080 or 8080"),
        (["--listen", "65536"], "is not HOST:PORT or a port"),
        (["--listen", "here"], "is not HOST:PORT or a port"),
        (["--host", ANYWHERE, "--port", "0"], "can be reached from other machines"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(tmp_path: Path, options: list[str], words: str) -> None:
    result = invoke(tmp_path, "serve", *options)

    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_places_that_are_safe_are_taken() -> None:
    certified = ListenAddress(host=ANYWHERE, certificate=PEM, certificate_key=PEM)

    check_address(ListenAddress(host="127.0.0.1"), keys=False)
    check_address(ListenAddress(host="::1"), keys=False)
    check_address(ListenAddress(host=ANYWHERE, proxy=True), keys=True)
    check_address(certified, keys=True)
    with pytest.raises(Invalid, match="--keys"):
        check_address(certified, keys=False)


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
    text = key(tmp_path, "submit,observe")
    pem, private = certificate(tmp_path)
    monkeypatch.setenv("HOLDFAST_KEY", text)

    async def counts(url: str) -> object:
        registry = await open_registry(url)
        try:
            return await registry.counts()
        finally:
            await registry.close()

    options = ("--keys", "--tls-cert", str(pem), "--tls-key", str(private))
    with server_process(sqlite_url(tmp_path), tmp_path, *options) as server:
        url = server.url
        assert url.startswith("https://")
        with pytest.raises(Unavailable, match="HOLDFAST_CA_FILE"):
            asyncio.run(counts(url))
        monkeypatch.setenv("HOLDFAST_CA_FILE", str(pem))
        assert asyncio.run(counts(url)) == {}
        submitted = invoke(tmp_path, "submit", "--store", url, "--", "true")
        assert submitted.exit_code == 0, submitted.output
        with pytest.raises(Unavailable):
            asyncio.run(counts(url.replace("https", "http")))


def test_a_certificate_that_cannot_be_used_is_refused_with_words(tmp_path: Path) -> None:
    key(tmp_path, "work")
    files = ["--tls-cert", __file__, "--tls-key", str(tmp_path / "none")]

    result = invoke(tmp_path, "serve", "--keys", "--listen", "127.0.0.1:0", *files)

    assert result.exit_code == 2
    assert "--tls-cert or --tls-key cannot be used" in result.stderr
