"""A metric means the same at a worker on the store, a server, and a worker behind it."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta

import pytest
from msgspec import Raw, Struct
from prometheus_client.parser import text_string_to_metric_families

from holdfast.core.job import Job
from holdfast.core.retry import Retry
from holdfast.core.spec import Spec
from holdfast.ports import JobRequest, Registry
from tests.cli.command_line import SOURCE, CommandLine

APP = """
import holdfast
app = holdfast.App()

@app.job
def good() -> None: ...

@app.job
def bad() -> None:
    raise holdfast.TransientError("as ever")
"""
GOOD = 20
TWICE = Retry(max_failures=2, backoff=timedelta(0))
DEADLINE_SECONDS = 60
COUNTED = (
    "holdfast_claims_total",
    "holdfast_claim_conflicts_total",
    "holdfast_lease_expiries_total",
    "holdfast_retries_total",
    "holdfast_failures_total",
    "holdfast_dead_letters_total",
    "holdfast_deadline_hits_total",
    "holdfast_job_events_total",
    "holdfast_job_seconds_count",
    "holdfast_job_wait_seconds_count",
    "holdfast_job_latency_seconds_count",
    "holdfast_queue_jobs",
)
"""What the same work makes the same numbers of; how many commits and renewals it takes is chance."""


class Scrape(Struct):
    """One page: of every family type, help and names of labels, and the numbers."""

    families: dict[str, tuple[str, str, frozenset[str]]]
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    def all(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {labels: n for (own, labels), n in self.samples.items() if own == name and n}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scrape]:
    """The same work, done by a worker on its store, and by one behind a server."""
    alone, served = (CommandLine(tmp_path_factory.mktemp(name)) for name in ("alone", "served"))
    with ExitStack() as stack:
        for cli in (alone, served):
            _make(cli)
        server = stack.enter_context(_started(served, r"(http://\S+) ", "serve", "--listen", "[::1]:0"))
        served.environment["HOLDFAST_STORE"] = server
        workers = [stack.enter_context(_worker(cli)) for cli in (alone, served)]
        for cli, url in ((alone, workers[0]), (served, server)):
            cli.registry(_all_ended)
            _until_counted(url)
        return {
            "alone": _scrape(workers[0]),
            "server": _scrape(server),
            "behind": _scrape(workers[1]),
        }


def _make(cli: CommandLine) -> None:
    """Jobs that succeed, one that fails twice, and one whose first owner has gone away."""
    folder = cli.file.parent
    (folder / "shop.py").write_text(APP)
    cli.environment["PYTHONPATH"] = f"{folder}{os.pathsep}{SOURCE}"

    async def fill(registry: Registry) -> None:
        good, bad = (Spec(kind=kind, payload=Raw(b"{}"), retry=TWICE) for kind in ("good", "bad"))
        await registry.enqueue(JobRequest(spec=good, job_id="lost"), actor="user:ada")
        await registry.acquire("lost", owner="gone", lease=timedelta(seconds=1))
        specs = [*[good] * GOOD, bad]
        await registry.enqueue_many([JobRequest(spec=spec) for spec in specs], actor="user:ada")

    cli.registry(fill)


@contextmanager
def _started(cli: CommandLine, says: str, *words: str) -> Generator[str, None, None]:
    """The command as a process; the address that it says."""
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        env=cli.environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            found = (re.search(says, line) for line in process.stderr)
            yield next(match[1] for match in found if match)
        finally:
            process.terminate()
            process.communicate(timeout=120)


def _worker(cli: CommandLine) -> AbstractContextManager[str]:
    spool = str(cli.file.parent / "spool")
    words = ("worker", "shop:app", "--metrics", "0", "--name", "w1", "--spool", spool)
    return _started(cli, r"Metrics: (http\S+)/metrics", *words)


async def _all_ended(registry: Registry) -> None:
    jobs: list[Job] = list((await registry.list_jobs()).jobs)
    assert len(jobs) == GOOD + 2
    for job in jobs:
        await registry.wait(job.job_id, timeout=DEADLINE_SECONDS)


def _until_counted(url: str) -> None:
    """A process counts what it has committed just after others may see it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while sum(_scrape(url).all("holdfast_job_latency_seconds_count").values()) < GOOD + 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _scrape(url: str) -> Scrape:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    page = Scrape({}, {})
    for family in text_string_to_metric_families(text):
        labels = {name for sample in family.samples for name in sample.labels}
        page.families[family.name] = (family.type, family.documentation, frozenset(labels))
        for sample in family.samples:
            page.samples[sample.name, frozenset(sample.labels.items())] = sample.value
    return page


def _shared(one: Scrape, other: Scrape) -> set[str]:
    return {name for name in one.families.keys() & other.families if "process_" not in name}


def test_what_worker_and_server_both_tell_has_one_type_one_help_and_one_set_of_labels(
    pages: dict[str, Scrape],
) -> None:
    worker, server = pages["alone"], pages["server"]
    shared = _shared(worker, server)

    assert {"holdfast_claims", "holdfast_retries", "holdfast_job_seconds"} <= shared
    for name in shared:
        assert worker.families[name] == server.families[name]


@pytest.mark.parametrize("name", COUNTED)
def test_the_same_work_is_the_same_number_at_a_worker_and_at_a_server(
    pages: dict[str, Scrape], name: str
) -> None:
    assert pages["alone"].all(name) == pages["server"].all(name)


def test_the_numbers_are_those_of_the_work(pages: dict[str, Scrape]) -> None:
    def of(name: str) -> dict[str, float]:
        return {dict(labels)["kind"]: n for labels, n in pages["alone"].all(name).items()}

    assert of("holdfast_claims_total") == {"good": GOOD + 1, "bad": 2}
    assert of("holdfast_lease_expiries_total") == {"good": 1}
    assert of("holdfast_retries_total") == {"good": 1, "bad": 1}
    assert of("holdfast_failures_total") == {"good": 1, "bad": 2}
    assert of("holdfast_dead_letters_total") == {"bad": 1}
    assert of("holdfast_job_seconds_count") == {"good": GOOD + 2, "bad": 2}


def test_a_sum_over_a_server_and_the_workers_behind_it_counts_nothing_twice(
    pages: dict[str, Scrape],
) -> None:
    server, behind = pages["server"], pages["behind"]

    assert _shared(server, behind) == {"holdfast_store_up"}


def test_what_only_a_worker_knows_is_told_alike_wherever_it_works(
    pages: dict[str, Scrape],
) -> None:
    alone, behind = pages["alone"], pages["behind"]
    own = {name for name in behind.families if name.startswith("holdfast_worker_")}

    assert _shared(alone, behind) == own | {"holdfast_store_up"}
    for name in own:
        assert alone.families[name] == behind.families[name]
    for name in ("attempts_started_total", "attempts_ended_total", "attempt_seconds_count"):
        assert alone.all(f"holdfast_worker_{name}") == behind.all(f"holdfast_worker_{name}") != {}
