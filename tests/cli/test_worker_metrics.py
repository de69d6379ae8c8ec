"""The metrics of a worker: right, documented, bounded, and cheap."""

import asyncio
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import click
import pytest
from msgspec.structs import replace
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from holdfast.cli import metrics_server
from holdfast.cli.metrics_server import MetricsServer
from holdfast.cli.worker_metrics import MetricsAddress, WorkerGauges, WorkerMetrics
from holdfast.core.errors import Invalid, Unavailable
from holdfast.core.state import State
from holdfast.ports import Census, JobRequest, Registry
from holdfast.registry.counters import KINDS_MAX, OTHER
from holdfast.registry.local import LocalRegistry
from holdfast.sdk.open import open_registry
from holdfast.stores.memory import MemoryStore
from holdfast.system import SystemClock, SystemIds
from tests.cli.command_line import CommandLine
from tests.cli.worker_reports import arguments, calls_per_job, granted, make_app
from tests.worker.command_workers import SilentObserver

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
REQUIRED = "claims claim_conflicts lease_renewals lease_expiries retries failures dead_letters"  # R1.43
CALLS_MAX = 10


class AbsentRegistry:
    """A registry whose server is away."""

    async def now(self) -> datetime:
        raise Unavailable("The server is away.")


AWAY = cast("Registry", AbsentRegistry())


def source(registry: Registry) -> WorkerGauges:
    return WorkerGauges(
        registry=registry,
        clock=SystemClock(),
        slots=4,
        running=lambda: 1,
        waiting=lambda: 2,
        leaving=lambda: False,
        paused=lambda: False,
        given_back=lambda: 0,
        spool_bytes=lambda: 3,
    )


def collected(metrics: WorkerMetrics, registry: Registry = AWAY) -> dict[str, Metric]:
    """The metrics of the page by name."""
    text = asyncio.run(metrics.page(source(registry)))
    return {metric.name: metric for metric in text_string_to_metric_families(text)}


def value(metric: Metric, **labels: str) -> float:
    """Of the one sample with these labels; of a histogram, its count."""
    [found] = [
        sample.value
        for sample in metric.samples
        if sample.labels == labels and not sample.name.endswith("_sum")
    ]
    return found


def test_every_ending_is_counted_by_kind_and_state() -> None:
    metrics = WorkerMetrics(SilentObserver())
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

    def of(name: str, **labels: str) -> float:
        return value(found[f"holdfast_worker_{name}"], **labels)

    assert of("attempts_started", kind="mail") == 6
    assert of("attempts_ended", kind="mail", state="succeeded") == 1
    assert of("attempts_ended", kind="mail", state="queued") == 3
    assert of("attempts_ended", kind="mail", state="dead_lettered") == 1
    assert of("leases_lost", kind="mail") == 1
    assert of("troubles") == 1
    assert of("jobs_ending") == 0


def test_how_long_jobs_take_is_a_histogram_of_those_that_had_begun() -> None:
    metrics = WorkerMetrics(SilentObserver())
    for number, seconds in enumerate((0.001, 0.2, 0.25, 9000.0)):
        grant = granted(f"job-{number}")
        metrics.started(grant)
        metrics.ended(replace(grant.job, state=State.SUCCEEDED), seconds)
    metrics.ended(replace(granted("unbegun").job, state=State.QUEUED), 0.0)

    histogram = collected(metrics)["holdfast_worker_attempt_seconds"]

    buckets = {s.labels["le"]: s.value for s in histogram.samples if "le" in s.labels}
    assert (buckets["0.001"], buckets["0.1"], buckets["0.25"]) == (1, 1, 3)
    assert (buckets["7200.0"], buckets["+Inf"]) == (3, 4)


def test_the_depth_of_the_queues_is_that_of_the_store() -> None:
    async def main() -> str:
        registry = await open_registry("memory://")
        request = JobRequest(spec=replace(granted("x").job.spec, queue="images"))
        await registry.enqueue_many([request] * 3, actor="user:ada")
        return await WorkerMetrics(SilentObserver()).page(source(registry))

    found = {metric.name: metric for metric in text_string_to_metric_families(asyncio.run(main()))}

    assert value(found["holdfast_queue_jobs"], queue="images", state="queued") == 3
    assert value(found["holdfast_store_up"]) == 1


def test_a_store_that_is_away_is_told_and_the_rest_still_shown() -> None:
    class Broken(MemoryStore):
        async def census(self, limit: int) -> Census:
            raise Unavailable("The store is away.")

    store = Broken(SystemClock(), SystemIds())

    for registry in (AWAY, LocalRegistry(store, SystemIds())):
        found = collected(WorkerMetrics(SilentObserver()), registry)

        assert value(found["holdfast_store_up"]) == 0
        assert "holdfast_queue_jobs" not in found
        assert value(found["holdfast_worker_slots"]) == 4


def test_kinds_of_jobs_are_bounded() -> None:
    metrics = WorkerMetrics(SilentObserver())
    for number in range(KINDS_MAX + 2):
        metrics.started(granted(f"job-{number}", f"kind-{number}"))

    found = collected(metrics)["holdfast_worker_attempts_started"]

    assert len(found.samples) == KINDS_MAX + 1
    assert value(found, kind=OTHER) == 2


def test_a_job_is_counted_in_a_handful_of_calls() -> None:
    assert calls_per_job(WorkerMetrics(SilentObserver()), 1000) < CALLS_MAX


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
    assert MetricsAddress().convert(given, None, None) == meant


@pytest.mark.parametrize("given", [":9464", "0.0.0.0", "x", "", "65536", "-1", "host:"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(click.BadParameter):
        MetricsAddress().convert(given, None, None)


@contextmanager
def serving(metrics: WorkerMetrics, registry: Registry) -> Generator[str, None, None]:
    server = MetricsServer(metrics, source(registry))
    try:
        yield server.open("127.0.0.1", 0)
    finally:
        server.close()


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def test_a_loop_that_is_stuck_shows_as_a_worker_that_is_not_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "PAGE_SECONDS", 0.2)

    async def main() -> tuple[str, str]:
        with serving(WorkerMetrics(SilentObserver()), AWAY) as url:
            stuck = scrape(url)  # in the loop itself, which serves no request meanwhile
            return stuck, await asyncio.to_thread(scrape, url)

    stuck, well = asyncio.run(main())

    assert "holdfast_worker_up 0\n" in stuck
    assert "holdfast_worker_up 1\n" in well
    assert "holdfast_worker_slots 4\n" in well
    assert "process_open_fds" in stuck
    assert "process_open_fds" in well


def test_metrics_are_only_read() -> None:
    async def main() -> int:
        with serving(WorkerMetrics(SilentObserver()), AWAY) as url:
            posted = urllib.request.Request(url, b"{}", method="POST")
            try:
                await asyncio.to_thread(urllib.request.urlopen, posted, timeout=60)
            except urllib.error.HTTPError as refused:
                return refused.code
        return 200

    assert asyncio.run(main()) == 405


def test_idle_connections_do_not_exhaust_the_worker_and_a_scrape_is_answered(
    cli: CommandLine, tmp_path: Path
) -> None:
    make_app(cli, tmp_path, 5)
    words = [w for w in arguments(tmp_path, "shop:app", "--metrics", "0") if w != "--drain"]
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
        "from holdfast.cli.main import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], env=cli.environment, stderr=subprocess.PIPE
    )
    idle: list[socket.socket] = []
    try:
        assert process.stderr is not None
        process.stderr.readline()
        url = process.stderr.readline().decode().split()[-1]
        for _ in range(1011):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", int(re.findall(r":(\d+)/", url)[0])))
            idle.append(client)

        text = _scrape_until(url, 'holdfast_worker_attempts_ended_total{kind="resize",state="succeeded"} 5\n')

        threads = Path(f"/proc/{process.pid}/status").read_text()
        assert int(re.findall(r"Threads:\s+(\d+)", threads)[0]) < 20
        assert float(re.findall(r"^process_open_fds (\S+)", text, re.MULTILINE)[0]) < 100
    finally:
        for client in idle:
            client.close()
        process.terminate()
        process.communicate(timeout=120)

    assert process.returncode == 0


def test_a_client_that_asks_nothing_or_too_much_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "CONNECTION_SECONDS", 0.1)

    def talk(port: int, words: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(words)
            return client.recv(100)

    async def main() -> tuple[bytes, bytes]:
        with serving(WorkerMetrics(SilentObserver()), AWAY) as url:
            port = int(re.findall(r":(\d+)/", url)[0])
            silent = await asyncio.to_thread(talk, port, b"")
            long = await asyncio.to_thread(talk, port, b"GET /" + b"a" * 9000)
            return silent, long

    silent, long = asyncio.run(main())

    assert silent == b""
    assert long.startswith(b"HTTP/1.1 431 ")


def test_beyond_the_limit_a_client_that_has_asked_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "CONNECTIONS_MAX", 2)

    class Client(metrics_server._Connection):
        aborted = False

        def abort(self) -> None:
            self.aborted = True
            self._server.closed(self)

    server = MetricsServer(WorkerMetrics(SilentObserver()), source(AWAY))
    first, second, third = (Client(server) for _ in range(3))
    first.requested = True
    for client in (first, second, third):
        server.opened(client)

    assert [client.aborted for client in (first, second, third)] == [False, True, False]


def test_a_port_that_is_taken_is_refused_in_words() -> None:
    async def main(port: int) -> None:
        MetricsServer(WorkerMetrics(SilentObserver()), source(AWAY)).open("127.0.0.1", port)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        work: Coroutine[Any, Any, None] = main(taken.getsockname()[1])
        with pytest.raises(Invalid, match=r"Cannot listen on 127\.0\.0\.1:\d+ for metrics: Address"):
            asyncio.run(work)


def test_the_library_is_only_loaded_when_metrics_are_wanted(cli: CommandLine) -> None:
    code = "import sys, holdfast.cli.worker\nsys.exit('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=cli.environment, check=False)

    assert done.returncode == 0


def test_a_working_worker_is_scraped_and_everything_is_documented(cli: CommandLine, tmp_path: Path) -> None:
    make_app(cli, tmp_path, 200)
    words = [word for word in arguments(tmp_path, "shop:app", "--metrics", "0") if word != "--drain"]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], env=cli.environment, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        process.stderr.readline()
        url = process.stderr.readline().decode().split()[-1]
        text = _scrape_until(
            url,
            'holdfast_worker_attempts_ended_total{kind="resize",state="succeeded"} 200\n',
            'holdfast_failures_total{kind="mail"} 1\n',
            'holdfast_queue_jobs{queue="default",state="succeeded"} 200\n',
        )
        listening = _listening(int(re.findall(r":(\d+)/", url)[0]))
    finally:
        process.terminate()
        process.communicate(timeout=120)

    assert process.returncode == 0
    assert listening == ["0100007F"]
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", text)
    ours = {
        metric.name: (metric.type, {label for sample in metric.samples for label in sample.labels})
        for metric in text_string_to_metric_families(text)
        if metric.name.startswith("holdfast_")
    }
    assert {f"holdfast_{name}" for name in REQUIRED.split()} <= ours.keys()
    documented = _documented()
    assert documented.keys() == ours.keys()
    for name, (kind, labels) in ours.items():
        assert documented[name][0] == kind
        assert labels - {"le"} in (documented[name][1], set())  # none, of what has not happened


def _scrape_until(url: str, *lines: str) -> str:
    """What the worker says once it says all of this: its jobs end in any order."""
    deadline, text = time.monotonic() + 60, ""
    while time.monotonic() < deadline:
        with suppress(OSError):  # among a thousand others a connection may be cut, or wait for long
            text = scrape(url)
        if all(line in text for line in lines):
            return text
        time.sleep(0.1)
    raise AssertionError(text)


def _listening(port: int) -> list[str]:
    """The addresses, as the kernel writes them, that listen on this port."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    local = [row[1].split(":") for row in rows if row[3] == "0A"]
    return [address for address, number in local if int(number, 16) == port]


def _documented() -> dict[str, tuple[str, set[str]]]:
    """Type and labels by name, as a scraper knows it, in docs/metrics.md: but for those of a server."""
    sections = re.split(r"^## ", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    page = "".join(section for section in sections if not section.startswith("Service"))
    rows = re.findall(r"^\| `(holdfast_\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    return {
        name.removesuffix("_total"): (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in rows
    }
