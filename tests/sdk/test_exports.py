"""What `import holdfast` exports, and how little it loads."""

import subprocess
import sys

import pytest

import holdfast

HEAVY = ("asyncio", "apsw", "asyncpg", "rich", "click", "msgspec", "typing")


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(holdfast, name).__name__ == name
    assert name in dir(holdfast)


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Nothing'"):
        holdfast.Nothing  # type: ignore[attr-defined]  # noqa: B018


def loaded_by(code: str) -> list[str]:
    script = f"import sys; sys.modules.pop('typing', None); {code}; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {script}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [name for name in HEAVY if name in ran.stdout.split()]


def test_importing_holdfast_loads_nothing_heavy() -> None:
    assert loaded_by("import holdfast") == []


def test_an_app_loads_no_database_driver() -> None:
    loaded = loaded_by("import holdfast; holdfast.App; holdfast.Client; holdfast.Context")

    assert "msgspec" in loaded
    assert not {"apsw", "asyncpg", "rich", "click"} & set(loaded)
