"""The contract of output stores, on a disk, on emulators of S3 and Azure, and in the words of Google's."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from holdfast.outputs.bucket_connection import connect_bucket
from holdfast.outputs.url import open_outputs
from holdfast.ports import Outputs
from holdfast.testing.outputs_contract import OutputsContract, Place
from tests.outputs.bucket_servers import AZURE, GOOGLE, S3, Emulator


class FolderPlace:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def open(self, *, create: bool = True) -> Outputs:
        return await open_outputs(str(self.folder), create=create)

    async def lose(self) -> None:
        shutil.rmtree(self.folder)
        self.folder.mkdir()


class BucketPlace:
    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self, *, create: bool = True) -> Outputs:
        return await open_outputs(self.url, create=create)

    async def lose(self) -> None:
        scheme, _, rest = self.url.partition("://")
        store = connect_bucket(scheme, *rest.split("/", 1))
        async for found in store.list():
            await store.delete_async([one["path"] for one in found])


class TestDirectory(OutputsContract):
    @pytest.fixture(autouse=True)
    def _places(self) -> Iterator[None]:
        self.above = Path(mkdtemp(prefix="holdfast outputs "))
        yield
        shutil.rmtree(self.above)

    def new_place(self) -> Place:
        return FolderPlace(Path(mkdtemp(dir=self.above)) / "a b" / "outputs")


class BucketContract(OutputsContract):
    emulator: Emulator

    @pytest.fixture(autouse=True)
    def _environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in self.emulator.environment().items():
            monkeypatch.setenv(name, value)

    def new_place(self) -> Place:
        return BucketPlace(self.emulator.address())


class TestS3(BucketContract):
    emulator = S3


class TestAzure(BucketContract):
    emulator = AZURE


class TestGoogle(BucketContract):
    emulator = GOOGLE
