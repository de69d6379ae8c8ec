"""The guide to arguments and results: its sweep, run as it is typed, and its forms, as they are written."""

import re
from math import nan
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

import holdfast
from holdfast.testing import memory_app
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


async def test_a_route_of_fastapi_returns_a_job_as_the_page_says() -> None:
    app, api = holdfast.App(), FastAPI()

    @app.job
    def train(ctx: holdfast.Context, lr: float) -> dict[str, float]:
        ctx.progress(1, 2)
        return {"loss": lr}

    with memory_app(app) as bench:
        await bench.run_async(train.call(nan))
    [job] = bench.jobs()
    api.add_api_route("/one", lambda: job)
    api.add_api_route("/typed", lambda: job, response_model=holdfast.Job)
    api.add_api_route("/many", lambda: [job])
    api.add_api_route("/inside", lambda: {"job": job})

    async with AsyncClient(transport=ASGITransport(api), base_url="http://api") as client:
        shown: list[Any] = [
            (await client.get(path)).json() for path in ("/one", "/typed", "/many", "/inside")
        ]
        described = await client.get("/openapi.json")

    assert shown == [job.to_dict(), job.to_dict(), [job.to_dict()], {"job": job.to_dict()}]
    assert shown[0]["result"] == {"loss": {"holdfast:float": "NaN"}}
    assert shown[0]["progress"] == {"done": 1, "total": 2}
    assert described.status_code == 200
