"""`HOLDFAST_TRACES`: commands and workers send spans; without it or a collector, work goes on."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from holdfast import tracing
from holdfast.cli.traces import traced
from holdfast.core.errors import Invalid

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


class Collector(ThreadingHTTPServer):
    """Takes what is sent to it, and keeps it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.taken: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def holdfast(folder: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        env={**env, "HOLDFAST_STORE": f"sqlite:///{folder / 'jobs.db'}", **more},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_job_is_one_trace_from_the_command_line_to_its_end(tmp_path: Path, collector: Collector) -> None:
    env = {"HOLDFAST_TRACES": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}

    holdfast(tmp_path, "submit", "--job-id", "a", "--", "true", **env, TRACEPARENT=PARENT)
    holdfast(tmp_path, "worker", "--drain", "--spool", str(tmp_path / "spool"), **env)

    assert {path for path, _ in collector.taken} == {"/v1/traces"}
    submit, run = (body for _, body in collector.taken)
    for body, service, name in (
        (submit, b"holdfast", b"submit command"),
        (run, b"holdfast-worker", b"run command"),
    ):
        assert service in body
        assert name in body
        assert bytes.fromhex(TRACE) in body
    told = holdfast(tmp_path, "events", "a", "--json").stdout.splitlines()
    assert {msgspec.json.decode(line)["trace_id"] for line in told} == {TRACE}


def test_a_trace_that_is_not_sampled_is_handed_on_and_costs_no_span(
    tmp_path: Path, collector: Collector
) -> None:
    env = {"HOLDFAST_TRACES": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    quiet = PARENT.replace("-01", "-00")

    made = holdfast(tmp_path, "run", "--", "sh", "-c", "echo $TRACEPARENT", **env, TRACEPARENT=quiet)

    assert made.stdout == f"{quiet}\n"
    assert collector.taken == []


def test_without_a_collector_work_goes_on(tmp_path: Path) -> None:
    with Collector() as gone:
        nowhere = gone.url
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": nowhere, "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2"}

    made = holdfast(tmp_path, "submit", "--", "true", HOLDFAST_TRACES="otlp", **env, TRACEPARENT=PARENT)

    assert len(made.stdout.split()) == 1


def test_a_place_that_is_none_is_said_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_TRACES", "jaeger")

    with pytest.raises(Invalid, match="env HOLDFAST_TRACES: traces are off or otlp, not 'jaeger'"):
        traced("test").__enter__()


def test_without_the_packages_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(Invalid, match=r"pip install 'holdfast\[tracing\]'"):
        tracing.configure("otlp", "test", 0.5)


@pytest.mark.parametrize("given", ["all", "-0.1", "1.5", "nan"])
def test_a_share_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", given)

    with pytest.raises(Invalid, match=f"is a share from 0 to 1, not '{given}'"):
        tracing._sample_rate()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("every", [1, 2, 100])
def test_the_share_of_traces_that_begin_here_is_kept_for_every_kind_of_job(share: float, every: int) -> None:
    roots = tracing.RootSampler(share, 0.25)
    kept = [not roots.skips(None) for _ in range(10_000 * every)][::every]

    assert abs(sum(kept) - share * 10_000) <= 12


def test_a_trace_that_began_elsewhere_is_as_it_was_there() -> None:
    roots = tracing.RootSampler(0.0, 0.25)

    assert not roots.skips(PARENT)
    assert roots.skips(PARENT.replace("-01", "-00"))
