"""What a worker counts: right, documented, bounded, and cheap."""

import asyncio
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import click
import pytest
from cli_world import CliWorld
from msgspec.structs import replace
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from worker_talk import arguments, calls_per_job, granted, shop

from holdfast.cli import worker_metrics
from holdfast.cli.worker_metrics import Address, Metrics, Server, Source
from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.job import Job
from holdfast.core.state import State
from holdfast.ports import Grant, Registry, Request
from holdfast.sdk.open import open_registry

DOCS = Path(__file__).parents[2] / "docs" / "workers.md"
REQUIRED = (  # R1.43
    "claims",
    "claim_conflicts",
    "lease_renewals",
    "lease_expiries",
    "retries",
    "failures",
    "dead_letters",
)
CALLS_MAX = 10


class Deaf:
    """A report that nobody hears."""

    def started(self, grant: Grant) -> None: ...

    def ended(self, job: Job, seconds: float) -> None: ...

    def lost(self, grant: Grant, why: str) -> None: ...

    def trouble(self, why: str) -> None: ...


class Away:
    """A registry whose store is away."""

    async def counts(self, queue: str | None = None) -> dict[State, int]:
        raise Unavailable("The store is away.")


AWAY = cast("Registry", Away())


def source(registry: Registry, tally: Counter[str] | None = None) -> Source:
    return Source(
        registry=registry,
        tally=tally or Counter(),
        queues=("default", "images"),
        slots=4,
        running=lambda: 1,
        waiting=lambda: 2,
        leaving=lambda: False,
        spool_bytes=lambda: 3,
    )


def collected(metrics: Metrics, tally: Counter[str] | None = None) -> dict[str, Metric]:
    """The metrics by name, over an empty store."""

    async def main() -> list[Metric]:
        registry = await open_registry("memory://")
        try:
            return await metrics.collect(source(registry, tally))
        finally:
            await registry.close()

    return {metric.name: metric for metric in asyncio.run(main())}


def value(metric: Metric, **labels: str) -> float:
    """Of the one sample with these labels; of a histogram, its count."""
    [found] = [
        sample.value
        for sample in metric.samples
        if sample.labels == labels and not sample.name.endswith("_sum")
    ]
    return found


@pytest.fixture
def world(tmp_path: Path) -> CliWorld:
    return CliWorld(tmp_path)


def test_every_ending_is_counted_by_kind_and_state() -> None:
    metrics = Metrics(Deaf())
    grants = [granted(f"job-{n}", "mail") for n in range(6)]
    for grant in grants:
        metrics.started(grant)
    one, two, three, four, five, _ = (grant.job for grant in grants)
    metrics.ended(replace(one, state=State.SUCCEEDED), 0.2)
    metrics.ended(replace(two, state=State.QUEUED, attempt=2, failures=1), 0.2)
    metrics.ended(replace(three, state=State.QUEUED, attempt=2), 0.2)
    metrics.ended(replace(four, state=State.DEAD_LETTERED, failures=1), 40)
    metrics.lost(grants[4], "taken")
    metrics.ended(replace(five, job_id="unbegun", state=State.QUEUED), 0.0)
    metrics.trouble("the store is away")

    found = collected(metrics)

    assert value(found["holdfast_jobs_started"], kind="mail") == 6
    assert value(found["holdfast_attempts_ended"], kind="mail", state="succeeded") == 1
    assert value(found["holdfast_attempts_ended"], kind="mail", state="queued") == 3
    assert value(found["holdfast_retries"], kind="mail") == 1
    assert value(found["holdfast_failures"], kind="mail") == 2
    assert value(found["holdfast_dead_letters"], kind="mail") == 1
    assert value(found["holdfast_leases_lost"], kind="mail") == 1
    assert value(found["holdfast_troubles"]) == 1
    assert value(found["holdfast_jobs_ending"]) == 0


def test_how_long_jobs_take_is_a_histogram_of_those_that_had_begun() -> None:
    metrics = Metrics(Deaf())
    for number, seconds in enumerate((0.001, 0.2, 0.25, 9000.0)):
        grant = granted(f"job-{number}")
        metrics.started(grant)
        metrics.ended(replace(grant.job, state=State.SUCCEEDED), seconds)
    metrics.ended(replace(granted("unbegun").job, state=State.QUEUED), 0.0)

    histogram = collected(metrics)["holdfast_job_seconds"]

    buckets = {s.labels["le"]: s.value for s in histogram.samples if "le" in s.labels}
    assert (buckets["0.001"], buckets["0.1"], buckets["0.25"]) == (1, 1, 3)
    assert (buckets["7200.0"], buckets["+Inf"]) == (3, 4)


def test_what_the_registry_counts_is_passed_on() -> None:
    tally = Counter(
        {
            "job_claimed": 7,
            "lease_renewals": 5,
            "lease_expiries": 3,
            "claim_conflicts": 2,
            "fenced": 4,
        }
    )

    found = collected(Metrics(Deaf()), tally)

    assert value(found["holdfast_claims"]) == 7
    assert value(found["holdfast_lease_renewals"]) == 5
    assert value(found["holdfast_lease_expiries"]) == 3
    assert value(found["holdfast_claim_conflicts"]) == 2
    assert value(found["holdfast_refusals"], error="fenced") == 4
    assert value(found["holdfast_events"], type="job_claimed") == 7


def test_the_depth_of_the_queues_is_that_of_the_store() -> None:
    async def main() -> list[Metric]:
        registry = await open_registry("memory://")
        request = Request(spec=replace(granted("x").job.spec, queue="images"))
        await registry.enqueue_many([request] * 3, actor="user:ada")
        return await Metrics(Deaf()).collect(source(registry))

    found = {metric.name: metric for metric in asyncio.run(main())}

    assert value(found["holdfast_queue_jobs"], queue="images", state="queued") == 3
    assert value(found["holdfast_queue_jobs"], queue="default", state="queued") == 0
    assert value(found["holdfast_store_up"]) == 1


def test_a_store_that_is_away_is_told_and_the_rest_still_shown() -> None:
    found = {m.name: m for m in asyncio.run(Metrics(Deaf()).collect(source(AWAY)))}

    assert value(found["holdfast_store_up"]) == 0
    assert found["holdfast_queue_jobs"].samples == []
    assert value(found["holdfast_slots"]) == 4


def test_a_job_is_counted_in_a_handful_of_calls() -> None:
    assert calls_per_job(Metrics(Deaf()), 1000) < CALLS_MAX


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("[::1]:80", ("::1", 80)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_a_port_alone_is_for_this_machine_only(given: str, meant: tuple[str, int]) -> None:
    assert Address().convert(given, None, None) == meant


@pytest.mark.parametrize("given", [":9464", "0.0.0.0", "x", "", "65536", "-1", "host:"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(click.BadParameter):
        Address().convert(given, None, None)


@contextmanager
def serving(metrics: Metrics, registry: Registry) -> Generator[str, None, None]:
    server = Server(metrics, source(registry))
    try:
        yield server.open("127.0.0.1", 0)
    finally:
        server.close()


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def test_a_loop_that_is_stuck_shows_as_a_worker_that_is_not_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_metrics, "ANSWER_SECONDS", 0.2)

    async def main() -> tuple[str, str]:
        with serving(Metrics(Deaf()), AWAY) as url:
            stuck = scrape(url)  # in the loop itself, which can answer nobody meanwhile
            return stuck, await asyncio.to_thread(scrape, url)

    stuck, well = asyncio.run(main())

    assert "holdfast_worker_up 0.0" in stuck
    assert "holdfast_worker_up 1.0" in well
    assert "holdfast_slots 4.0" in well


def test_a_port_that_is_taken_is_refused_in_words() -> None:
    async def main(port: int) -> None:
        Server(Metrics(Deaf()), source(AWAY)).open("127.0.0.1", port)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        work: Coroutine[Any, Any, None] = main(taken.getsockname()[1])
        with pytest.raises(Invalid, match=r"Metrics cannot be served at 127\.0\.0\.1:\d+: Address"):
            asyncio.run(work)


def test_the_library_is_only_loaded_when_metrics_are_wanted(world: CliWorld) -> None:
    code = "import sys, holdfast.cli.worker\nsys.exit('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=world.environment, check=False)

    assert done.returncode == 0


def test_a_working_worker_is_scraped_and_everything_is_documented(
    world: CliWorld, tmp_path: Path
) -> None:
    shop(world, tmp_path, 200)
    words = [
        word for word in arguments(tmp_path, "shop:app", "--metrics", "0") if word != "--drain"
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], env=world.environment, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        process.stderr.readline()
        url = process.stderr.readline().decode().split()[-1]
        text = _scrape_until(
            url, 'holdfast_attempts_ended_total{kind="resize",state="succeeded"} 200'
        )
        listening = _listening(int(re.findall(r":(\d+)/", url)[0]))
    finally:
        process.terminate()
        process.communicate(timeout=30)

    assert process.returncode == 0
    assert listening == ["0100007F"]
    assert 'holdfast_failures_total{kind="mail"} 1.0' in text
    assert 'holdfast_queue_jobs{queue="default",state="succeeded"} 200.0' in text
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", text)
    families = {metric.name for metric in text_string_to_metric_families(text)}
    ours = {name for name in families if name.startswith("holdfast_")}
    assert {f"holdfast_{name}" for name in REQUIRED} <= ours
    assert _documented() == ours


def _scrape_until(url: str, line: str) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        text = scrape(url)
        if line in text:
            return text
        time.sleep(0.1)
    raise AssertionError(text)


def _listening(port: int) -> list[str]:
    """The addresses, as the kernel writes them, where somebody listens on this port."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    local = [row[1].split(":") for row in rows if row[3] == "0A"]
    return [address for address, number in local if int(number, 16) == port]


def _documented() -> set[str]:
    """The names in the table of docs/workers.md, as a scraper knows them."""
    names = re.findall(r"^\| `(holdfast_\w+)", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    return {name.removesuffix("_total") for name in names}
