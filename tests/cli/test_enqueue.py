"""`holdfast enqueue`: a call of a function from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.job import Job
from tests.cli.command_line import CommandLine

SHOP = "tests.cli.enqueue_shop"


def enqueued(cli: CommandLine, *words: str) -> Job:
    job_id = cli.run("enqueue", *words).stdout.strip()
    return cli.registry(lambda registry: registry.status(job_id))


def arguments(cli: CommandLine, *words: str) -> dict[str, Any]:
    found = json.loads(bytes(enqueued(cli, *words).spec.payload))
    assert isinstance(found, dict)
    return found


def test_a_function_is_called_by_its_name_with_arguments_by_place_and_by_name(cli: CommandLine) -> None:
    job = enqueued(cli, f"{SHOP}:resize", "cat.png", "--width", "320")

    assert job.spec.kind == "resize"
    assert (job.spec.queue, job.spec.retry.max_failures) == ("images", 3)
    assert json.loads(bytes(job.spec.payload)) == {"path": "cat.png", "width": 320}


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["resize", "7", "320"], {"path": "7", "width": 320}),
        (["resize", "--path=a b", "--dry-run", "--width=-1"], {"path": "a b", "dry_run": True, "width": -1}),
        (
            ["resize", "x", "--dry_run", "false", "--fit", "inside"],
            {"path": "x", "dry_run": False, "fit": "inside"},
        ),
        (["resize", "x", "--no-dry-run"], {"path": "x", "dry_run": False}),
        (["resize", "--width", "5", "--", "--odd"], {"path": "--odd", "width": 5}),
        (["add", "-1", "2"], {"left": -1, "right": 2}),
        (["monthly", "2026-11-01", "--price", "1.10"], {"day": "2026-11-01", "price": "1.10"}),
        (["monthly", "2026-11-01", "--tags", "a", "--tags", "7"], {"day": "2026-11-01", "tags": ["a", "7"]}),
        (["monthly", "2026-11-01", "--tags", "a"], {"day": "2026-11-01", "tags": ["a"]}),
        (["monthly", "2026-11-01", "--tags", '["a", "b"]'], {"day": "2026-11-01", "tags": ["a", "b"]}),
        (
            [
                "crop",
                '{"left": 1, "right": 2}',
                "--extra",
                '{"n": 1}',
                "--boxes",
                '[{"left": 3, "right": 4}]',
            ],
            {"box": {"left": 1, "right": 2}, "extra": {"n": 1}, "boxes": [{"left": 3, "right": 4}]},
        ),
        (["add_elsewhere", "nan"], {"number": {"holdfast:float": "NaN"}}),
        (["add_elsewhere", "--number=-inf"], {"number": {"holdfast:float": "-Infinity"}}),
        (["untyped", "7", "--two", "seven"], {"one": 7, "two": "seven"}),
        (["untyped", '{"a": [null]}'], {"one": {"a": [None]}}),
    ],
)
def test_arguments_are_typed_by_the_annotations(
    cli: CommandLine, words: list[str], given: dict[str, Any]
) -> None:
    assert arguments(cli, f"{SHOP}:{words[0]}", *words[1:]) == given


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("monthly", "report:2", ["2026-11-01"]),
        ("report:2", "report:2", ["2026-11-01"]),
        ("app.report:2", "report:2", ["2026-11-01"]),
        ("other.add", "add", ["1.5"]),
        ("add", "add", ["1", "2"]),
    ],
)
def test_a_function_is_named_as_in_its_module_or_by_its_job(
    cli: CommandLine, name: str, kind: str, words: list[str]
) -> None:
    assert enqueued(cli, f"{SHOP}:{name}", *words).spec.kind == kind


def test_options_of_the_job_stand_before_the_function(cli: CommandLine) -> None:
    options = "-q bulk --name nightly --priority 2 --delay 5m --timeout 1h30m --label run=1 --request-id r-1"

    job = enqueued(cli, *options.split(), "--max-failures", "7", f"{SHOP}:pay", "3", "--queue", "own")

    spec = job.spec
    assert (spec.queue, spec.name, spec.priority, spec.labels) == ("bulk", "nightly", 2, {"run": "1"})
    assert (spec.delay.total_seconds() if spec.delay else None) == 300
    assert (spec.timeout.total_seconds() if spec.timeout else None) == 5400
    assert (spec.retry.max_failures, spec.lock) == (7, "pay-3")
    assert json.loads(bytes(spec.payload)) == {"order": 3, "queue": "own"}
    assert (
        job.job_id
        == enqueued(cli, *options.split(), "--max-failures", "7", f"{SHOP}:pay", "3", "--queue", "own").job_id
    )


CALLED = f"It is called as: {SHOP}:resize PATH [--width INT] [--fit FIT] [--dry-run]"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["resize"], f"resize: the argument path is missing.\n{CALLED}"),
        (["resize", "x", "--width", "wide"], f"resize: width: Expected `int`, got `str`.\n{CALLED}"),
        (
            ["resize", "x", "--widht", "3"],
            "has no argument --widht. Did you mean --width? Options of the job",
        ),
        (
            ["resize", "x", "--queue", "bulk"],
            "has no argument --queue. Options of the job come before the function",
        ),
        (["resize", "x", "1", "y"], f"There is no place for 'y'.\n{CALLED}"),
        (["resize", "x", "--width"], f"--width needs a value.\n{CALLED}"),
        (["resize", "x", "--width", "1", "--width", "2"], f"--width is given 2 times.\n{CALLED}"),
        (["monthly"], f"It is called as: {SHOP}:monthly DAY [--price DECIMAL] [--tags STR...]"),
        (["crop"], f"It is called as: {SHOP}:crop BOX [--boxes BOX...] [--extra JSON]"),
        (["reszie", "x"], f"{SHOP} has no job reszie.\nThere are: {SHOP}:add, "),
        (["plain"], "plain is no job: put @app.job above it.\nThere are: "),
        (["app"], f"{SHOP}:app is an app.\nThere are: {SHOP}:app.add, "),
    ],
)
def test_what_is_wrong_is_told_with_how_the_function_is_called(
    cli: CommandLine, words: list[str], told: str
) -> None:
    assert told in cli.run("enqueue", f"{SHOP}:{words[0]}", *words[1:], code=2).stderr
    assert not cli.file.exists()


@pytest.mark.parametrize("name", ["shop", "no_such_module:f", ":f", "shop:"])
def test_a_function_that_cannot_be_named_so_is_refused(cli: CommandLine, name: str) -> None:
    told = cli.run("enqueue", name, code=2).stderr

    assert "write module:function, such as shop:resize" in told or "There is no module no_such_module" in told


@pytest.mark.parametrize("asked", ["--help", "-h"])
def test_help_after_the_function_shows_its_parameters(cli: CommandLine, asked: str) -> None:
    told = cli.run("enqueue", f"{SHOP}:resize", asked).stdout

    assert " ".join(told.split()) == (
        f"Usage: holdfast enqueue [OPTIONS OF THE JOB] {SHOP}:resize"
        " PATH [--width INT] [--fit FIT] [--dry-run]"
        " Make a picture smaller."
        " Arguments: --path str [required] --width int [default: 100]"
        f" --fit {SHOP}.Fit [default: <Fit.COVER: 'cover'>] --dry-run bool [default: False]"
    )
    assert not cli.file.exists()


APP = """\
import holdfast

app = holdfast.App("sqlite:///own.db")


@app.job
def add(left: int, right: int) -> dict[str, int]:
    if right == 13:
        raise ValueError("no luck")
    return {"sum": left + right}


@app.job
def train(size: int) -> dict[str, object]:
    return {"loss": float("nan"), "curve": "x" * size}


@app.job(outputs=["out.txt"])
def write(ctx: holdfast.Context) -> None:
    with ctx.output("out.txt") as file:
        file.write(b"x")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop.py").write_text(APP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_store_is_that_of_the_app_unless_another_is_named(cli: CommandLine, folder: Path) -> None:
    own = cli.process("enqueue", "shop:add", "1", "2")
    named = cli.process("enqueue", "--store", cli.url, "shop:add", "1", "2")

    assert (own.returncode, named.returncode) == (0, 0), (own.stderr, named.stderr)
    assert cli.run("list", "--store", "sqlite:///own.db").stdout.count("queued") == 1
    assert named.stdout.decode().strip() in cli.run("list").stdout


def test_wait_prints_the_result_or_how_it_ended(cli: CommandLine, folder: Path) -> None:
    options = ["--store", cli.url, "--request-id"]
    cli.process("enqueue", *options, "good", "shop:add", "1", "2")
    cli.process("enqueue", "--max-failures", "1", *options, "bad", "shop:add", "1", "13")
    worked = cli.process("worker", "shop:app", "--drain", "--store", cli.url)
    assert worked.returncode == 0, worked.stderr

    again = cli.process("enqueue", *options, "good", "shop:add", "1", "2")
    good = cli.process("enqueue", "--wait", *options, "good", "shop:add", "1", "2")
    bad = cli.process("enqueue", "--max-failures", "1", "--wait", *options, "bad", "shop:add", "1", "13")

    assert (good.returncode, good.stdout) == (0, b'{"sum":3}\n'), good.stderr
    assert (bad.returncode, bad.stdout) == (1, b"")
    assert b"no luck" in bad.stderr
    assert b"it has ended (succeeded). Nothing was submitted." in again.stderr


def test_wait_prints_nan_and_what_is_large_and_status_says_where_that_is(
    cli: CommandLine, folder: Path
) -> None:
    for size, name in ((3, "small"), (300_000, "large")):
        options = ["--store", cli.url, "--request-id", name]
        job_id = cli.process("enqueue", *options, "shop:train", str(size)).stdout.decode().strip()
        cli.process("worker", "shop:app", "--drain", "--store", cli.url)

        ended = cli.process("enqueue", "--wait", *options, "shop:train", str(size))

        assert json.loads(ended.stdout) == {"loss": {"holdfast:float": "NaN"}, "curve": "x" * size}
    shown = cli.run("status", job_id).stdout
    assert "300,0" in shown
    assert "jobs.outputs/returned/" in "".join(shown.split())


def test_a_store_in_memory_is_refused(cli: CommandLine) -> None:
    assert (
        "ends with this command"
        in cli.run("enqueue", "--store", "memory://", f"{SHOP}:add", "1", "2", code=2).stderr
    )


def test_the_outputs_of_a_function_are_promised_where_they_are_to_be(cli: CommandLine, folder: Path) -> None:
    kept = ["--store", cli.url, "--outputs", str(folder / "kept")]

    made = cli.process("enqueue", *kept, "shop:write")
    worked = cli.process("worker", "shop:app", "--drain", *kept)

    assert (made.returncode, worked.returncode) == (0, 0), (made.stderr, worked.stderr)
    assert "1 of 1 output verified" in cli.run("outputs", made.stdout.decode().strip()).stderr
    assert list((folder / "kept").rglob("out.txt"))
