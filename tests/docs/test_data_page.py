"""The guide to arguments and results: its sweep, run as it is typed, and its forms, as they are written."""

import re
from pathlib import Path

import holdfast
from tests.docs.pages import ROOT, blocks, play, write
from tests.runner.test_json_forms import FREE, PLAIN

PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_sweep_of_the_page_becomes_a_table(tmp_path: Path) -> None:
    write(PAGE, tmp_path, {})
    said = play(blocks(PAGE), tmp_path)

    with holdfast.Client(f"sqlite:///{tmp_path / 'holdfast.db'}") as client:
        rows = list(client.results(kind="fit"))
    assert len(rows) == 10, said
    assert repr(rows[0]) == "{'alpha': 0.0, 'seed': 0, 'loss': 0.09}"
    assert repr(rows[-1]) == "{'alpha': 1.0, 'seed': 1, 'loss': nan}"
    assert "NaN" in "".join(said[-1])


def test_every_form_is_on_the_page() -> None:
    names = {
        name
        for value in PLAIN
        for name in re.findall(r'"holdfast:(\w+)"', bytes(FREE.encode((value,), {})).decode())
    }

    assert len(names) > 10
    for name in names:
        assert re.search(rf"holdfast:{name}\b|`{name}`|`{name.title()}`|`{name.upper()}`", PAGE), name
