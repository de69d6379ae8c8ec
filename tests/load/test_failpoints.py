"""The failpoints: each is in the catalogue, each is passed, and none does anything unless armed."""

import asyncio
import re
from collections import Counter
from pathlib import Path

from documents_process import crash, crash_at_each

from holdfast.failpoint import arm, failpoint
from verify.kills import failpoints
from verify.kills_harness import ROOT, Nursery
from verify.kills_runs import rehearse

_ENTRY = re.compile(r"^\| `([a-z]+\.[a-z_]+)` \| ([A-Z].+\.) \|$", re.MULTILINE)


def catalogue() -> list[str]:
    """The names in the documentation, each with its sentence."""
    page = (ROOT / "docs" / "failpoints.md").read_text("utf-8")
    return [name for name, _ in _ENTRY.findall(page)]


def test_the_catalogue_lists_every_failpoint_of_the_code_once_and_no_other() -> None:
    assert Counter(catalogue()) == Counter(failpoints().keys())


def test_a_failpoint_is_in_one_place() -> None:
    assert {name: n for name, n in failpoints().items() if n > 1} == {}


def test_every_failpoint_is_passed(tmp_path: Path) -> None:
    with Nursery() as nursery:
        scenes = rehearse(nursery, tmp_path)
    passed = set(asyncio.run(crash(None, 0))).union(*scenes.values())

    assert failpoints().keys() - passed == set()


def test_a_document_store_that_dies_at_any_failpoint_loses_nothing_acknowledged() -> None:
    deaths = asyncio.run(crash_at_each(short=True))

    assert deaths.keys() == {name for name in failpoints() if name.startswith("cas.")}


def test_a_failpoint_tells_its_name_to_whoever_has_armed_it_and_else_to_nobody() -> None:
    told: list[str] = []

    failpoint("test.before")
    arm(told.append)
    failpoint("test.armed")
    arm(None)
    failpoint("test.after")

    assert told == ["test.armed"]
