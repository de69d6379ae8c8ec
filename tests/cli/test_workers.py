"""`holdfast workers` and `holdfast queues`: who is there, and what waits for whom."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.cli.queues import short_count
from holdfast.cli.workers import names
from holdfast.ports import Registry
from tests.cli.command_line import PROGRAM, CommandLine, on_a_terminal

APP = """
from holdfast import App

app = App()


@app.job(queue="mail")
def send(to: str) -> None:
    print("sent", to)


@app.job(version=2)
def resize(path: str) -> None:
    print("resized", path)
"""


@contextmanager
def worker(cli: CommandLine, folder: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A worker in a process of its own, from its first line on."""
    (folder / "shop.py").write_text(APP)
    process = subprocess.Popen(
        [*PROGRAM, "worker", *arguments], env=cli.environment, cwd=folder, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def read_until(process: "subprocess.Popen[str]", wanted: str) -> str:
    """What the worker has said, up to a line with this."""
    assert process.stderr is not None
    seen = ""
    while wanted not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    return seen


def listed(cli: CommandLine, *options: str, count: int = 1) -> list[dict[str, object]]:
    """The workers, as soon as there are so many."""
    while True:
        found = json.loads(cli.run("workers", "--json", *options).stdout)["workers"]
        if len(found) >= count:
            return list(found)


def announce(cli: CommandLine, name: str, *queues: str, **more: object) -> None:
    async def work(registry: Registry) -> None:
        await registry.announce(name, instance=name, queues=queues, **more)  # type: ignore[arg-type]

    cli.registry(work)


def test_a_worker_is_listed_while_it_runs_and_its_end_is_told(cli: CommandLine, tmp_path: Path) -> None:
    cli.submit("--job-id", "first")
    with worker(cli, tmp_path, "--name", "w1", "-c", "3") as process:
        read_until(process, "first")
        [found] = listed(cli)
        table = cli.run("workers").stdout.splitlines()
    gone = cli.run("workers")
    [left] = listed(cli, "--all")

    assert (found["name"], found["queues"], found["kinds"], found["slots"]) == (
        "w1",
        ["default"],
        ["command"],
        3,
    )
    assert (found["pid"], found["executors"], found["app"]) == (process.pid, ["command"], None)
    assert table[0].split() == ["WORKER", "STATE", "BUSY", "SEEN", "QUEUES", "KINDS"]
    assert re.match(r"w1 +(idle|busy) +[01]/3 +\d+s +default +command$", table[1])
    assert gone.stderr == "There is no worker now. See those of the last day: holdfast workers --all\n"
    assert left["state"] == "stopped"


def test_the_second_worker_of_a_name_is_told_of_the_first(cli: CommandLine, tmp_path: Path) -> None:
    cli.submit("--job-id", "first")
    with worker(cli, tmp_path, "--name", "w1") as first:
        read_until(first, "first")
        listed(cli)
        with worker(cli, tmp_path, "--name", "w1") as second:
            said = read_until(second, "--name")

    assert f"process {first.pid}" in " ".join(said.split())
    assert "another worker is named w1" in " ".join(said.split())


def enqueue(cli: CommandLine, folder: Path, call: str) -> None:
    (folder / "shop.py").write_text(APP)
    subprocess.run(
        [sys.executable, "-c", f"import shop; shop.{call}"], env=cli.environment, cwd=folder, check=True
    )


def test_a_worker_of_an_app_serves_the_queues_that_its_functions_name(
    cli: CommandLine, tmp_path: Path
) -> None:
    enqueue(cli, tmp_path, "send.enqueue('ana'); shop.resize.enqueue('a.png')")
    with worker(cli, tmp_path, "shop:app", "--name", "w1", "--drain") as process:
        said = read_until(process, "left;")
    jobs = json.loads(cli.run("list", "--json").stdout)["jobs"]
    [found] = listed(cli, "--all")

    assert "queues mail, default, " in said
    assert "leaves out" not in said
    assert {job["state"] for job in jobs} == {"succeeded"}
    assert (found["queues"], found["kinds"]) == (["mail", "default"], ["send", "resize:2"])
    assert (found["app"], found["executors"]) == ("shop:app", ["function"])


def test_a_worker_says_which_queues_of_its_app_it_leaves_out(cli: CommandLine, tmp_path: Path) -> None:
    enqueue(cli, tmp_path, "send.enqueue('ana')")
    with worker(cli, tmp_path, "shop:app", "-q", "default", "--drain") as process:
        said = " ".join(read_until(process, "left").split())
    with worker(cli, tmp_path, "shop:app", "-q", "default", "--drain", "--log", "json") as process:
        [started] = [json.loads(line) for line in read_until(process, "worker_started").splitlines()]

    assert "It leaves out queue mail, which shop:app names: their jobs wait for another worker." in said
    assert (started["queues"], started["left_out"]) == (["default"], ["mail"])
    [job] = json.loads(cli.run("list", "--json").stdout)["jobs"]
    assert job["state"] == "queued"


def test_workers_of_a_queue_are_found_and_a_typo_has_none(cli: CommandLine) -> None:
    announce(cli, "w1", "mail", "default", slots=4, busy=4, kinds=["send"])
    announce(cli, "w2", "images", slots=2, busy=1, paused=True)

    assert [line.split()[:3] for line in cli.run("workers").stdout.splitlines()[1:]] == [
        ["w1", "full", "4/4"],
        ["w2", "paused", "1/2"],
    ]
    assert [one["name"] for one in listed(cli, "-q", "mail")] == ["w1"]
    assert "There is no worker that serves queue defualt." in cli.run("workers", "-q", "defualt").stderr


def test_no_workers_and_no_queues_say_what_to_do(cli: CommandLine) -> None:
    cli.submit("--job-id", "first")

    assert cli.run("workers").stderr == "There is no worker. Start one: holdfast worker\n"
    table = cli.run("queues").stdout.splitlines()
    assert table[0].split() == [
        "QUEUE", "READY", "OLDEST", "LATER", "RUNNING", "DEAD", "BUSY", "WORKERS",
    ]  # fmt: skip
    assert re.match(r"default +1 +\d+s +0 +0 +0 +- +none seen$", table[1])

    cli.file.unlink()
    cli.registry(lambda registry: registry.now())
    assert "There are no queues yet" in cli.run("queues").stderr


def test_queues_show_what_waits_and_who_serves_them(cli: CommandLine) -> None:
    announce(cli, "w1", "mail", "default", slots=4, busy=1)
    announce(cli, "w2", "gone", stopped=True)
    cli.submit("-q", "mail")
    cli.submit("-q", "mail", "--delay", "1h")
    cli.dead_letter()

    lines = {line.split()[0]: line.split()[1:] for line in cli.run("queues").stdout.splitlines()[1:]}
    document = json.loads(cli.run("queues", "--json").stdout)

    assert lines["mail"][0] == "1"
    assert lines["mail"][2:] == ["1", "0", "0", "1/4", "w1"]
    assert lines["default"] == ["0", "-", "0", "0", "1", "1/4", "w1"]
    assert lines["gone"][-3:-1] == ["none", "for"]
    assert [queue["queue"] for queue in document["queues"]] == ["default", "gone", "mail"]
    assert (document["queues"][2]["ready"], document["queues"][2]["workers"]) == (1, ["w1"])


def test_every_line_fits_eighty_columns(cli: CommandLine) -> None:
    many = [f"a-queue-with-a-long-name-{n}" for n in range(20)]
    announce(cli, "a-worker-with-a-very-long-name-indeed-1234567", *many, kinds=["k" * 100], slots=10_000)
    announce(cli, "another-worker-with-a-long-name", *many, slots=10_000, busy=10_000)
    cli.submit("-q", many[3])

    for command in ("workers", "queues"):
        _, screen = on_a_terminal(cli, command, COLUMNS="80", NO_COLOR="1")
        lines = re.sub("\r|\x1b\\[[0-9;]*m", "", screen).splitlines()
        assert len(lines) > 2
        assert max(map(len, lines)) <= 80, screen


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ((), ""),
        (("mail",), "mail"),
        (("mail", "web"), "mail, web"),
        (("mail", "images-of-products", "web", "thumbnails", "x"), "mail, images-of-products, web +2"),
        (("a" * 41, "web"), "a" * 39 + "… +1"),
        (("a" * 41,), "a" * 39 + "…"),
    ],
)
def test_names_that_do_not_fit_are_counted(found: tuple[str, ...], text: str) -> None:
    assert names(found) == text


def test_large_counts_stay_short() -> None:
    assert [short_count(n) for n in (0, 9_999, 10_000, 1_234_567)] == ["0", "9,999", "10k", "1234k"]


def test_why_tells_the_four_kinds_of_waiting_apart(cli: CommandLine) -> None:
    def why(*options: str) -> str:
        return " ".join(cli.run("why", cli.submit(*options)).stdout.split())

    assert "No known worker serves queue default, nor did one in the last 24 h." in why()
    announce(cli, "w1", "default", slots=2, busy=2, kinds=["command"], region="us")
    announce(cli, "w2", "images", kinds=["resize"])
    assert "Did you mean queue default? w1 serves it." in why("-q", "defualt")
    assert "w1, the only worker that can run it, is busy, with 2 of 2 slots taken" in why()
    assert "; 2 jobs are ahead of it in its queue." in why()
    assert "Queue images is served by w2, but not for commands." in why("-q", "images")
    assert "served by w1, but not in region eu." in why("--region", "eu")


def test_why_of_a_hung_job_says_how_long_it_runs_and_that_it_has_no_timeout(cli: CommandLine) -> None:
    job_id = cli.submit()
    grant = cli.claim(job_id)
    cli.registry(lambda registry: registry.heartbeat(grant))

    for command in ("why", "status"):
        said = " ".join(cli.run(command, job_id).stdout.split())
        assert re.search(r"It has been running for [\d.]+ s, without any output or event so far\.", said)
        assert "It has no timeout." in said
