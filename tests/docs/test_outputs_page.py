"""The guide to outputs, typed and run from top to bottom.

`python tests/docs/test_outputs_page.py` writes what was really said into the page.
"""

import hashlib
import tempfile
from pathlib import Path

import pytest

from holdfast.core.manifest import Task
from holdfast.outputs.paths import TOKEN_1
from tests.docs.pages import ROOT, blocks, differences, play, refreshed, write

PAGE = ROOT / "docs" / "outputs.md"
HOME = "/home/ana/study"
MASKS = (
    (r"-resume-[0-9a-f]{4}", "-resume-XXXX"),
    (r"reports/\S+", "REPORT"),
    (r"(reused +\d+) +[0-9a-f]{12}", r"\1 MARKER"),  # it names the job that wrote it
    (r"manifests/[0-9a-f]{64}", "MANIFEST"),
    (r"output store [0-9a-f-]{36}", "output store ID"),
    (r"(?:/[\w.-]+)+/(?=holdfast\.outputs)", "FOLDER/"),
)


@pytest.mark.slow
def test_the_guide_to_outputs_can_be_followed_to_its_end(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")

    write(page, tmp_path)
    said = play(blocks(page), tmp_path)

    assert not (found := differences(blocks(page), said, MASKS)), "\n".join(found)


def blake2b(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def test_the_paths_are_those_that_the_page_tells_other_programs() -> None:
    bundle, entry = f"registry.example.org/seir@sha256:{64 * 'a'}", "models.seir/baseline"
    params: dict[str, bool | int | float | str] = {"b": 1.0, "a": 1, "c": True, "d": "é"}
    param_id = blake2b('contracts:param:v1|{"a":1,"b":1.0,"c":true,"d":"é"}', 32)
    ids = sorted(blake2b(f"sim:v1|{bundle}|{entry}|{param_id}|{n}", 16) for n in (7, 8))
    agg = blake2b(f"loss/all:{','.join(ids)}", 32)[:16]
    one = Task(bundle=bundle, entrypoint=entry, params=params, seed=7)
    of_all = Task(
        kind="aggregation",
        bundle=bundle,
        entrypoint=entry,
        params=params,
        target="loss/all",
        seeds=(8, 7),
    )

    shard = blake2b(param_id, 32)
    folder = f"{shard[:2]}/{shard[2:4]}/params_{param_id[:8]}/seed_7"
    assert TOKEN_1.path(one) == f"token/v1/sims/{12 * 'a'}/{folder}/"
    assert TOKEN_1.path_beside(one).endswith(f"/seed_7-{one.task_id}/")
    assert one.task_id in ids
    assert TOKEN_1.path(of_all) == f"token/v1/aggs/{12 * 'a'}/target_loss_all/agg_{agg}/"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        text = PAGE.read_text(encoding="utf-8")
        write(text, Path(folder))
        found = refreshed(text, play(blocks(text), Path(folder), {HOME: folder}))
        PAGE.write_text(found, encoding="utf-8")
