"""What the documentation says of the simulation: its commands print what is shown, its figures are ours."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from holdfast.testing.simulation.bugs import BUGS

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "docs" / name for name in ("evidence.md", "simulation.md", "track-record.md")]
COMMAND = "python -m holdfast.testing.simulation"


def session() -> list[tuple[str, str]]:
    """The commands on the page about the tests, each with what it is shown to print."""
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    [block] = re.findall(rf"^```\w*\n(\$ {COMMAND}.*?)^```", page, re.DOTALL | re.MULTILINE)
    typed = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in typed)]


def test_the_commands_of_the_page_print_what_it_shows() -> None:
    shown = session()

    printed = []
    for command, _ in shown:
        words = shlex.split(command.removeprefix("python "))
        ran = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=280, check=False
        )
        printed.append((command, ran.stdout + ran.stderr))

    assert printed == shown
    assert [command.removeprefix(COMMAND).split()[0] for command, _ in shown] == [
        "--seeds",
        "--seed",
    ]


def test_the_page_says_how_many_mistakes_can_be_planted() -> None:
    page = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")

    said = re.findall(r"(\d+) mistakes", page)

    assert said == [str(len(BUGS))]


def test_every_planted_bug_that_a_page_names_is_there() -> None:
    named = {name for page in PAGES for name in re.findall(r"--bug\s+(\w+)", page.read_text())}

    assert named >= {"complete_by_id", "two_writes"}
    assert named - {"NAME"} <= BUGS.keys()
