"""URLs are shown without passwords and keys."""

import asyncio
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError, Invalid
from holdfast.outputs.url import open_outputs
from holdfast.sdk.open import open_registry
from holdfast.sdk.store_url import shown_url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana:SECRET@host/jobs",
        "postgresql://ana:a@SECRET@host/jobs",
        "postgresql://ana:a/SECRET@host/jobs",
        "postgresql://ana:a?SECRET@host/jobs",
        "postgresql://ana@host/jobs?password=SECRET",
        "postgresql://ana@host/jobs?x=1&PassWord=SECRET&y=2",
        "postgresql://host/jobs?sslpassword=SECRET",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    shown = shown_url(url)

    assert "SECRET" not in shown
    assert "host/jobs" in shown


MISTYPED = [
    "postgres//u:SECRET@h/db",
    "postgres:u:SECRET@h/db",
    "postgres:/u:SECRET@h/db",
    "postgresql:///u:SECRET@h/db",
    "u:SECRET@h/db",
    "u:SECRET@postgres://h/db",
    "SECRET@h://db",
    "postgre://u:SECRET@h/db",
    "postgre s://u:SECRET@h/db",
    " postgres://u:SECRET@h/db",
    "postgres://u:SECRET@h@i/db",
    "postgres://u:SECRET@h:99999999/db",
    "postgres://u SECRET@h/db",
    "postgres://u%3ASECRET@h/db",
    "postgres://u%3ASECRET%40h/db",
    "postgres%3A%2F%2Fu%3ASECRET%40h/db",
    "postgres//h/db?password=SECRET",
    "postgre://h/db?pass%77ord=SECRET",
    "http//u:SECRET@h:8080",
    "http://u:SECRET@h:99999999",
    "https://u:SECRET@",
    "s3//u:SECRET@bucket",
]


@pytest.mark.parametrize("url", MISTYPED)
def test_a_mistyped_url_is_refused_without_its_password(url: str) -> None:
    async def opened() -> None:
        registry = await open_registry(url, create=False)
        await registry.close()

    with pytest.raises(HoldfastError) as refused:
        asyncio.run(opened())

    assert "SECRET" not in f"{refused.value} {refused.value.advice} {shown_url(url)}"


@pytest.mark.parametrize(
    "url",
    [
        "file://u:SECRET@h/x",
        "u:SECRET@s3://bucket",
        "s3://u:SECRET@bucket",
        "s3//u:SECRET@bucket",
        "S3:u:SECRET@bucket",
        "u:SECRET@bucket",
    ],
)
@pytest.mark.usefixtures("empty_folder")
def test_so_is_that_of_an_output_store(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        asyncio.run(open_outputs(url, create=True))

    assert "SECRET" not in f"{refused.value} {refused.value.advice}"


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a folder would be made that an address was taken for."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("folder", ["s3", "outputs@2", "./a:b@c", "gs/results"])
async def test_the_name_of_a_folder_is_an_address(folder: str) -> None:
    await (await open_outputs(folder, create=True)).close()

    assert Path(folder).is_dir()


@pytest.mark.parametrize(
    "url",
    ["sqlite:///jobs.db", "http://one:8080,two:8080", "postgresql://ana@h:5432/d?sslmode=require"],
)
def test_what_has_no_password_is_shown_as_it_is(url: str) -> None:
    assert shown_url(url) == url
