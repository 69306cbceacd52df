"""Metrics of a live server, and the dashboard and the alert rules that read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.programs import need_program
from tests.project.monitoring.live_metrics import TOKEN, read, scrape, value
from tests.serving import BASE, PATIENCE, ServerProcess

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.smoke]

MONITORING = BASE / "deploy" / "monitoring"
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
ALERTS = MONITORING / "alerts.yml"
NAME = re.compile(r"\b(?:parley|process)_\w+")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
MATCHER = re.compile(r'(\w+)(?:=~?|!=)"')
#: Prometheus adds these to what it scrapes.
ADDED = {"instance", "job"}
SECRET = "the answer is a secret of the prompt"
PRICED = """
from llm.models import LanguageModel, Provider
host = Provider.objects.get(kind="demo")
LanguageModel.objects.filter(provider=host).update(prices={"input": 1, "output": 2})
"""


@pytest.fixture(scope="module")
def live(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> Iterator[ServerProcess]:
    """A server on which turns have ended well and badly, with tools and without."""
    folder = tmp_path_factory.mktemp("live")
    shutil.copytree(migrated_data, folder / "data")
    server = ServerProcess(folder / "data", {"METRICS_TOKEN": TOKEN}).start()
    server.manage("shell", "-v0", "-c", PRICED)
    program = {"Authorization": f"Bearer {server.create_token()}"}
    with httpx.Client(base_url=server.url, headers=program, timeout=PATIENCE) as http:
        for text in (f"/echo {SECRET}", '/tool calculator {"expression": "1"}'):
            say(http, text)
        say(http, "/fail 400")
    yield server
    server.kill()


def say(http: httpx.Client, text: str) -> dict[str, Any]:
    path = "/api/conversations/"
    conversation = http.post(path, json={}).raise_for_status().json()["id"]
    body = {"input": text, "wait": True, "options": {"server_tools": ["calculator"]}}
    answer = http.post(f"{path}{conversation}/turns/", json=body)
    return answer.raise_for_status().json()


def queries() -> list[str]:
    """Those of the dashboard; Grafana fills in the interval."""
    targets = [t for p in DASHBOARD["panels"] for t in p.get("targets", ())]
    return [each["expr"].replace("$__rate_interval", "5m") for each in targets]


def conditions() -> list[str]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def promtool(*arguments: str, cwd: Path = BASE) -> str:
    done = subprocess.run(
        [need_program("promtool"), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_has_happened_is_counted(live: ServerProcess):
    samples = read(scrape(live.url))
    ended = "parley_turns_ended_total"
    assert value(samples, ended, state="completed") == 2
    assert value(samples, ended, state="failed") == 1
    assert value(samples, "parley_turn_wait_seconds_count") == 3
    of_demo = {"provider": "demo", "model": "demo/demo"}
    calls = "parley_model_calls_total"
    assert value(samples, calls, status="failed", **of_demo) == 1
    assert value(samples, calls, status="completed", **of_demo) == 3
    errors = value(samples, "parley_provider_errors_total", **of_demo)
    assert errors == 1
    first = "parley_time_to_first_token_seconds_count"
    assert value(samples, first, **of_demo) == 3
    assert value(samples, "parley_chunks_total", **of_demo) > 3
    inputs = value(samples, "parley_tokens_total", kind="input", **of_demo)
    outputs = value(samples, "parley_tokens_total", kind="output", **of_demo)
    cost = value(samples, "parley_cost_usd_total", **of_demo)
    assert cost == pytest.approx((inputs + 2 * outputs) / 1e6)
    state = {"tool": "calculator", "state": "completed"}
    assert value(samples, "parley_tool_calls_total", **state) == 1
    assert value(samples, "parley_leases", state="held") == 0
    assert value(samples, "parley_processes", runs_turns="yes", state="up") == 1
    assert value(samples, "parley_info", delivery="embedded") == 1


def test_nothing_of_what_was_said_is_shown(live: ServerProcess):
    text = scrape(live.url)
    assert "echo" not in text
    assert "secret" not in text
    assert "admin" not in text


def test_the_rules_are_valid():
    assert "SUCCESS" in promtool("check", "rules", str(ALERTS))


def test_the_rules_fire_when_they_should_and_rest_when_they_should():
    promtool("test", "rules", "alerts_test.yml", cwd=Path(__file__).parent)


def test_every_query_of_the_dashboard_is_valid(tmp_path: Path):
    assert len(queries()) > 30
    rules = [
        {"record": f"query:{number}", "expr": query}
        for number, query in enumerate(queries())
    ]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    promtool("check", "rules", str(file))


def test_each_metric_of_dashboard_and_rules_is_live(live: ServerProcess):
    labels: dict[str, set[str]] = {}
    for sample in read(scrape(live.url)):
        labels.setdefault(sample.name, set()).update(sample.labels)
    for query in [*queries(), *conditions()]:
        names = set(NAME.findall(query))
        assert names, query
        assert names <= labels.keys(), query
        known = ADDED.union(*(labels[name] for name in names))
        grouped = {
            each.strip() for part in GROUPED.findall(query) for each in part.split(",")
        }
        assert grouped | set(MATCHER.findall(query)) <= known, query


def test_the_dashboard_shows_every_metric(live: ServerProcess):
    shown = {name for query in queries() for name in NAME.findall(query)}
    ours = {each.name for each in read(scrape(live.url)) if "parley" in each.name}
    # A histogram is shown by its buckets.
    assert {n for n in ours if not re.search(r"_(count|sum)$", n)} <= shown
