"""What is deployed beside a server: dashboard and alerts ask for metrics that it really has."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import promql_parser
import pytest
import yaml

from holdfast.cli.main import cli
from holdfast.core.catalogue import EventType
from holdfast.stores.memory import MemoryStore
from holdfast.testing.fakes import CountingIds, ManualClock
from tests.server.metrics_page import Scrape, every_ending, scrape
from tests.server.raw_http_client import threaded_server

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "holdfast.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = {
    f"{panel['title']}: {target['expr']}": target["expr"] for panel in PANELS for target in panel["targets"]
}
EVERYWHERE = {"instance", "job", "le"}
"""Labels that every metric has, once it was scraped; and that of buckets."""

VARIABLES = {"$__rate_interval": "5m", "$kind": ".*", "$queue": ".*"}


@pytest.fixture(scope="module")
def found() -> Scrape:
    clock = ManualClock()
    with threaded_server(store=MemoryStore(clock, CountingIds())) as server:
        server.do(every_ending(server.registry, clock))
        server.enqueue()
        return scrape(server)


def parsed(expression: str) -> promql_parser.Expr:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return promql_parser.parse(expression)


def asked(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics of an expression, each with the labels that are asked of it."""
    nodes: list[Any] = []
    promql_parser.walk(parsed(expression), pre_visit=nodes.append)
    grouped = {
        label
        for node in nodes
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None
        for label in node.modifier.labels
    }
    for node in nodes:
        if isinstance(node, promql_parser.VectorSelector):
            yield str(node.name), grouped | {one.name for one in node.matchers.matchers}


@pytest.mark.parametrize("expression", [*TARGETS.values(), *(a["expr"] for a in ALERTS.values())])
def test_an_expression_asks_for_what_a_server_has(expression: str, found: Scrape) -> None:
    selectors = list(asked(expression))

    assert selectors, expression
    for name, labels in selectors:
        if name == "up":
            continue
        assert name in found.samples, f"{name} is in no scrape"
        own = {label for labels_, _ in found.samples[name] for label in labels_}
        assert labels <= own | EVERYWHERE, f"{name} has no label {labels - own}"


def test_an_expression_that_no_server_answers_would_be_found(found: Scrape) -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        parsed("sum by (kind (rate(holdfast_claims_total[5m]))")
    [(name, labels)] = asked("sum by (owner) (rate(holdfast_claims_total{queue='x'}[5m]))")

    assert (name, labels) == ("holdfast_claims_total", {"owner", "queue"})
    assert name in found.samples


@pytest.mark.parametrize("expression", [*TARGETS.values(), *(a["expr"] for a in ALERTS.values())])
def test_what_workers_count_is_not_left_out(expression: str) -> None:
    """Nothing is counted twice: a sum is over servers and workers alike."""
    for name, labels in asked(expression):
        if name.startswith("holdfast_"):
            assert "job" not in labels, expression


def test_states_and_types_that_are_named_exist(found: Scrape) -> None:
    text = json.dumps(DASHBOARD)
    states = found.values("holdfast_queue_jobs", "state")

    for named in re.findall(r'state=~?\\"([a-z_|]+)\\"', text):
        assert set(named.split("|")) <= states, named
    for named in re.findall(r'type=~\\"job_\(([a-z_|]+)\)\\"', text):
        assert {f"job_{one}" for one in named.split("|")} <= set(EventType), named


def test_what_must_wake_somebody_has_an_alert_that_says_what_to_do() -> None:
    wanted = {
        "HoldfastServerNotReady": "/readyz",
        "HoldfastJobsStuck": "holdfast why",
        "HoldfastDeadlinesHit": "holdfast why",
        "HoldfastJobsFail": "holdfast logs",
        "HoldfastDeadLettersGrow": "holdfast dead-letters",
        "HoldfastLeasesExpire": "holdfast why",
        "HoldfastFeedLags": "holdfast doctor",
    }

    for name, words in wanted.items():
        assert words in ALERTS[name]["annotations"]["do"], name
    for name, alert in ALERTS.items():
        assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}, name
        assert set(alert["annotations"]) == {"summary", "do"}, name
        assert alert["labels"]["severity"] in ("page", "ticket"), name


def test_every_command_in_an_alert_exists() -> None:
    called = [
        words
        for alert in ALERTS.values()
        for words in re.findall(r"holdfast ((?:[a-z-]+ ?)+)", alert["annotations"]["do"])
    ]

    assert called
    for words in called:
        command: click.Command = cli
        for word in shlex.split(words):
            if not isinstance(command, click.Group):
                break
            known = command.get_command(click.Context(command), word)
            assert known is not None, f"holdfast {words}"
            command = known


def test_the_dashboard_can_be_read_by_grafana() -> None:
    titles = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    places = [
        (panel["gridPos"]["y"], panel["gridPos"]["x"], panel["gridPos"]["w"]) for panel in DASHBOARD["panels"]
    ]

    assert titles == ["Jobs", "Queues", "Leases", "Dead letters", "Store", "Service"]
    assert len(set(ids)) == len(ids)
    assert all(x + width <= 24 for _, x, width in places)
    assert len({(y, x) for y, x, _ in places}) == len(places)
    for panel in PANELS:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["description"], panel["title"]


def test_prometheus_is_told_of_the_alerts_and_of_servers_and_workers() -> None:
    settings = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))

    assert settings["rule_files"] == ["alerts.yml"]
    jobs = {one["job_name"] for one in settings["scrape_configs"]}
    assert jobs == {"holdfast", "holdfast-workers"}


def test_the_page_describes_every_metric_of_a_server_and_no_other(found: Scrape) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    page = re.sub(r"^## Workers$.*?^## ", "## ", page, flags=re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `(holdfast_\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    described = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    served = {
        name: (kind, _labels(found, name))
        for name, kind in found.families.items()
        if name.startswith("holdfast_")
    }

    assert described == served


def _labels(found: Scrape, name: str) -> set[str]:
    samples = found.samples.get(name) or found.samples[f"{name}_count"]
    return {label for labels, _ in samples for label in labels}
