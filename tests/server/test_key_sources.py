"""Where commands, programs and workers take their key from; no job gets at it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.core.errors import Denied, Invalid
from holdfast.core.process_spec import decode_process_spec
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest
from holdfast.sdk.client import Client
from holdfast.sdk.open import open_local, open_registry
from tests.server.programs import invoke, key
from tests.server.server_process import server_process, sqlite_url


@pytest.mark.parametrize("name", ["HOLDFAST_KEY", "HOLDFAST_KEY_FILE"])
def test_commands_and_programs_take_their_key_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text = key(tmp_path, "submit,observe")
    kept = tmp_path / "key"
    kept.write_text(f"{text}\n", encoding="ascii")
    given = text if name == "HOLDFAST_KEY" else str(kept)

    with server_process(sqlite_url(tmp_path), tmp_path, "--keys") as server:
        url = server.url
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


@pytest.mark.parametrize(("name", "text"), [("HOLDFAST_KEY", "hf_secret\nx"), ("HOLDFAST_CA_FILE", __file__)])
def test_what_cannot_be_used_is_named_and_a_key_not_repeated(tmp_path: Path, name: str, text: str) -> None:
    result = invoke(tmp_path, "list", "--store", "https://127.0.0.1:1", **{name: text})

    assert result.exit_code == 2
    assert name in result.stderr
    assert "secret" not in result.output
    assert isinstance(result.exception, SystemExit)


def test_a_key_in_the_url_of_a_store_is_refused(tmp_path: Path) -> None:
    for url in ("http://hf_x:y@127.0.0.1:1", "http://127.0.0.1:1?key=hf_x"):
        result = invoke(tmp_path, "list", "--store", url)
        assert result.exit_code == 2
        assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("name", ["HOLDFAST_KEY", "HOLDFAST_KEY_FILE", "HOLDFAST_STORE"])
def test_no_job_can_ask_for_what_its_worker_is_let_in_with(name: str) -> None:
    asked = msgspec.json.encode({"argv": ["env"], "secrets": [name]})

    with pytest.raises(Invalid, match=name):
        decode_process_spec(msgspec.Raw(asked))


@pytest.mark.parametrize("variable", ["HOLDFAST_KEY", "HOLDFAST_KEY_FILE"])
def test_a_workers_own_key_is_taken_out_of_what_a_job_prints(tmp_path: Path, variable: str) -> None:
    url, secret = sqlite_url(tmp_path), "hf_0123456789ab_" + "k" * 43
    (tmp_path / "key").write_text(secret + "\n")
    spec = Spec(payload=msgspec.Raw(msgspec.json.encode({"argv": ["echo", "found", secret]})))

    async def made() -> None:
        registry = await open_local(url)
        await registry.enqueue(JobRequest(spec=spec, job_id="thief"), actor="user:eve")
        await registry.close()

    async def printed() -> bytes:
        registry = await open_local(url)
        log = await registry.logs("thief")
        await registry.close()
        return b"".join(event.data or b"" for event in log.events)

    asyncio.run(made())
    value = secret if variable == "HOLDFAST_KEY" else str(tmp_path / "key")
    subprocess.run(
        [sys.executable, "-m", "holdfast", "worker", "--drain"],
        env={**os.environ, "HOLDFAST_STORE": url, variable: value},
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=True,
    )

    assert asyncio.run(printed()) == b"found ***\n"
