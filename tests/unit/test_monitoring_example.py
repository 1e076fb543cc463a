"""The dashboard and the alert rules in examples/monitoring name series and labels that exist, and the rules fire."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.tools import tool

from dynamic_kafka.observe.series import SERIES

_FOLDER = Path(__file__).parents[2] / "examples" / "monitoring"
_PROMTOOL = tool("promtool")
_LABELS = {series.name: set(series.all_labels) for series in SERIES}
_OF_PROMETHEUS = {"job", "instance"}


def expressions() -> Iterator[tuple[str, str]]:
    """The expressions of the rules and of the panels, with the name of what they are for."""
    for group in yaml.safe_load((_FOLDER / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    yield "KEDA", keda_query()


def keda_query() -> str:
    """The query by which workers are counted."""
    (trigger,) = yaml.safe_load((_FOLDER / "keda.yml").read_text())["spec"]["triggers"]
    return str(trigger["metadata"]["query"])


def dashboard() -> Any:
    """Grafana's dashboard."""
    return json.loads((_FOLDER / "dashboard.json").read_text())


@pytest.mark.parametrize(("of", "expression"), list(expressions()))
def test_an_expression_names_series_and_labels_that_exist(of: str, expression: str) -> None:
    """Labels in braces are those of their series, and one groups by labels that all of its series have."""
    names = re.findall(r"dynamic_kafka_\w+", expression)
    assert names or expression.startswith("up{"), of
    assert set(names) <= _LABELS.keys()
    for name, braces in re.findall(r"(dynamic_kafka_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", braces)) <= _LABELS[name]
    for grouped in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        assert all(set(re.findall(r"\w+", grouped)) <= _LABELS[name] for name in names)


def test_texts_use_labels_that_their_expressions_have() -> None:
    """In the summaries of alerts and the legends of panels."""
    texts = []
    for group in yaml.safe_load((_FOLDER / "alerts.yml").read_text())["groups"]:
        texts += [(rule["expr"], str(rule["annotations"])) for rule in group["rules"]]
    for panel in dashboard()["panels"]:
        texts += [(target["expr"], target["legendFormat"]) for target in panel["targets"]]
    for expression, text in texts:
        grouped = re.findall(r"\bby \(([^)]*)\)", expression)
        names = re.findall(r"dynamic_kafka_\w+", expression)
        known = set(re.findall(r"\w+", grouped[0])) if grouped else set().union(*(_LABELS[name] for name in names))
        used = re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text)
        assert set(used) <= known | _OF_PROMETHEUS, text


def test_an_alert_says_what_to_do_in_the_document() -> None:
    """docs/guides/operations.md names each of them, and has KEDA's query."""
    document = (_FOLDER.parents[1] / "docs" / "guides" / "operations.md").read_text()
    alerts = [
        rule["alert"] for g in yaml.safe_load((_FOLDER / "alerts.yml").read_text())["groups"] for rule in g["rules"]
    ]
    assert [alert for alert in alerts if f"`{alert}`" not in document] == []
    assert keda_query() in " ".join(document.split())


@pytest.mark.skipif(_PROMTOOL is None, reason="promtool is not installed: scripts/get-observers")
@pytest.mark.parametrize(
    "check", ["check config prometheus.yml", "check rules alerts.yml", "test rules alerts.test.yml"]
)
def test_prometheus_accepts_the_files_and_fires_as_said(check: str) -> None:
    """By Prometheus' own tool, with series that are made up."""
    assert _PROMTOOL is not None
    done = subprocess.run([_PROMTOOL, *check.split()], cwd=_FOLDER, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(_PROMTOOL is None, reason="promtool is not installed: scripts/get-observers")
def test_workers_are_counted_by_what_is_known(tmp_path: Path) -> None:
    """KEDA's query is the records to read of one query, and has no answer while they are not known of a cluster."""
    pending, unknown = "dynamic_kafka_source_pending_records", "dynamic_kafka_source_lag_unknown"
    series = {
        f'{pending}{{query="orders", cluster="eu", partition="0"}}': "3000 3000 _ _",
        f'{pending}{{query="orders", cluster="us", partition="0"}}': "2000 stale _ _",
        f'{pending}{{query="others", cluster="eu", partition="0"}}': "7 7 7 7",
        f'{unknown}{{query="orders", cluster="eu"}}': "0 0 _ _",
        f'{unknown}{{query="orders", cluster="us"}}': "0 1 _ _",
        f'{unknown}{{query="others", cluster="eu"}}': "1 1 1 1",
    }
    expected = {"0m": [{"value": 5000}], "1m": [], "20m": []}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": keda_query(), "eval_time": at, "exp_samples": found} for at, found in expected.items()
        ],
    }
    (tmp_path / "keda.test.yml").write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    assert _PROMTOOL is not None
    command = [_PROMTOOL, "test", "rules", str(tmp_path / "keda.test.yml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
