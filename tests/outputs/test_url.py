"""The address of an output store: what is understood, what is refused, and what is never repeated."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core.errors import Invalid, Unavailable
from holdfast.outputs.url import open_outputs
from tests.outputs.bucket_servers import S3, s3_environment
from verify.postgres_server import free_port

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")


@pytest.mark.parametrize("form", ["{path}", "file://{uri}", "FILE://{uri}", "{path}/", "{path}/x/.."])
async def test_a_directory_is_a_path_or_a_file_url(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c" / "outputs"
    uri = str(folder).replace("%", "%25").replace(" ", "%20")

    first = await open_outputs(form.format(path=folder, uri=uri), create=True)
    again = await open_outputs(first.place, create=False)

    assert (folder / "holdfast-outputs.json").is_file()
    assert first.place == again.place == folder.as_uri()
    assert first.store_id == again.store_id
    await first.close()
    await again.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "has an address: write a path, file:///path, s3://bucket/prefix"),
        ("http://127.0.0.1:8080", "No output store is called http://; write a path, file:///path"),
        ("https://bucket.s3.amazonaws.com/x", "No output store is called https://; write"),
        ("http:/x", "has an address: write a path"),
        ("s3:bucket/x", "has an address: write a path"),
        ("sqlite:///jobs.db", "No output store is called sqlite://"),
        ("memory://", "No output store is called memory://"),
        ("file://outputs", "file:// is followed by a whole path; write file:///outputs"),
        ("file://", "followed by a whole path"),
        ("s3://", r"s3:// is followed by a bucket; write s3://bucket/prefix"),
        ("az:///prefix", r"az:// is followed by a bucket"),
        ("s3://bucket/a//b", "is not a path"),
        ("s3://bucket/../b", "is not a path"),
        ("s3://bucket/" + "x" * 121, "at most 120 bytes"),
    ],
)
def test_an_address_we_do_not_know_is_refused_with_what_to_write(url: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        asyncio.run(open_outputs(url, create=True))


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hunter2@bucket/prefix",
        "az://container/prefix?sv=1&sig=hunter2",
        "gs://bucket/prefix#hunter2",
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        asyncio.run(open_outputs(url, create=True))

    assert "hunter2" not in caught.value.message


def test_without_the_extra_a_bucket_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(Invalid, match=r"pip install 'holdfast\[buckets\]'"):
        asyncio.run(open_outputs("s3://bucket/x", create=True))


def test_without_encryption_only_this_machine_is_talked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://192.0.2.1:9000")

    with pytest.raises(Invalid, match=r"AWS_ENDPOINT_URL is not encrypted.*AWS_ALLOW_HTTP=true"):
        asyncio.run(open_outputs("s3://bucket/x", create=True))


def test_whoever_owns_the_network_may_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**s3_environment(free_port()), "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value.replace("127.0.0.1", "127.0.0.2"))

    with pytest.raises(Unavailable, match=r"does not answer: .*error sending request"):
        asyncio.run(open_outputs("s3://bucket/x", create=True))


def test_what_a_bucket_lacks_is_told_when_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ENDPOINT",
        "AZURE_STORAGE_ACCOUNT_KEY",
    ):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(Invalid, match=r"az://container cannot be reached: .*[Aa]ccount"):
        asyncio.run(open_outputs("az://container/x", create=True))


async def test_of_the_endpoints_that_are_set_the_one_that_counts_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in s3_environment(9).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://192.0.2.1:9000")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", S3.environment()["AWS_ENDPOINT_URL"])

    await open_outputs(S3.address(), create=True)


LEAVING = """
import asyncio, sys
from holdfast.outputs.url import open_outputs

async def main():
    outputs = await open_outputs(sys.argv[1], create=True)
    await outputs.get_many([f"absent-{n}" for n in range(100)])

asyncio.run(main())
"""


def test_a_process_that_ends_right_after_its_last_answer_ends_well() -> None:
    environment = {**os.environ, **S3.environment()}
    command = [sys.executable, "-c", LEAVING, S3.address()]

    ends = [subprocess.run(command, env=environment, check=False).returncode for _ in range(8)]

    assert ends == [0] * 8


FORKING = """
import asyncio, os, sys
from holdfast.core.errors import Unavailable
from holdfast.outputs.url import open_outputs

async def put(outputs, path):
    await outputs.put(path, b"x")
    return outputs

async def opened():
    return await put(await open_outputs(sys.argv[1], create=True), "a")

outputs = asyncio.run(opened())
if (child := os.fork()) == 0:
    try:
        asyncio.run(put(outputs, "b"))
    except Unavailable as error:
        print(error, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
asyncio.run(put(outputs, "c"))
"""


def test_a_fork_uses_a_directory_as_before(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(tmp_path)]

    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)

    assert done.stdout == ""
    assert {path.name for path in tmp_path.iterdir()} == {"holdfast-outputs.json", "a", "b", "c"}


def test_a_fork_is_told_that_it_cannot_use_a_bucket() -> None:
    command = [sys.executable, "-c", FORKING, S3.address()]
    environment = {**os.environ, **S3.environment()}

    done = subprocess.run(command, env=environment, check=True, timeout=60, capture_output=True, text=True)

    assert "was forked from one that had used a bucket" in done.stdout
