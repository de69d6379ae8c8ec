"""The SDK under the type checker: right uses pass, wrong ones are reported on their line."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "typing_cases"
BAD = ("bad_uses.py", "# expect: ")
_ERROR = re.compile(r"([^:]+):(\d+): error: .*\[([a-z-]+)\]$")
_REVEALED = re.compile(r'good_uses.py:\d+: note: Revealed type is "(.*)"$')


@cache
def checked() -> list[str]:
    """What mypy says of both files."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    ran = subprocess.run(
        [*command, "good_uses.py", "bad_uses.py"],
        capture_output=True,
        text=True,
        cwd=CASES,
        env={"MYPYPATH": str(ROOT / "src"), "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache" / "cases")},
        timeout=250,
        check=False,
    )
    assert not ran.stderr, ran.stderr
    return ran.stdout.splitlines()


def errors() -> dict[str, dict[int, list[str]]]:
    """The codes of the errors, by file and line."""
    found: dict[str, dict[int, list[str]]] = {}
    for line in checked():
        if match := _ERROR.match(line):
            found.setdefault(match[1], {}).setdefault(int(match[2]), []).append(match[3])
        else:
            assert ": note: " in line, line
    return found


def marked(file: str, mark: str) -> dict[int, str]:
    """What follows the mark, by line."""
    lines = enumerate((CASES / file).read_text().splitlines(), 1)
    return {number: line.partition(mark)[2] for number, line in lines if mark in line}


def test_good_uses_pass_and_have_the_types_they_should() -> None:
    assert errors().get("good_uses.py", {}) == {}


def test_the_type_checker_sees_the_parameters_without_the_context() -> None:
    matches = [_REVEALED.match(line) for line in checked()]
    revealed = [match[1] for match in matches if match]

    assert revealed == list(marked("good_uses.py", "# is: ").values())
    assert len(revealed) == 4


def test_bad_uses_are_found_each_on_its_line() -> None:
    expected = {line: sorted(codes.split(", ")) for line, codes in marked(*BAD).items()}
    found = {line: sorted(codes) for line, codes in errors()["bad_uses.py"].items()}

    assert found == expected
    assert len(expected) > 20


def test_nothing_else_has_errors() -> None:
    assert set(errors()) == {"bad_uses.py"}
