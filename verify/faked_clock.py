"""A wall clock that a test can set, for processes of its own: libfaketime in front of theirs."""

from pathlib import Path

import libfaketime  # type: ignore[import-untyped]

from verify.postgres_server import PostgresServer

LIBRARY = Path(libfaketime.__file__).parent / "vendor/libfaketime/src/libfaketime.so.1"


class FakedClock:
    """The wall clock of the processes that are given its `environment`: the machine's, and an offset. Their
    monotonic clocks stay as they are."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, offset_seconds: float) -> None:
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{offset_seconds:+f}\n")
        draft.chmod(0o644)
        draft.replace(self._file)

    def environment(self, cache_seconds: int = 0) -> dict[str, str]:
        """With `cache_seconds`, the file is not read at every look, which is slow."""
        cache = (
            {"FAKETIME_CACHE_DURATION": str(cache_seconds)} if cache_seconds else {"FAKETIME_NO_CACHE": "1"}
        )
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            **cache,
        }


class SettableServer(PostgresServer):
    """A PostgreSQL whose clock can be set while it runs."""

    def __init__(self, major: int = 15, *, settings: dict[str, str] | None = None) -> None:
        super().__init__(major, fast=True, settings=settings)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.clock = FakedClock(self.folder / "clock")
        given = (f"{name}={value}" for name, value in self.clock.environment().items())
        self.prefix = ("/usr/bin/env", *given)
