from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from llm.telemetry.registry import MAX_LENGTH, OTHER, BoundedNames

HOSTILE = [
    'quotes " and \\ backslashes',
    "lines\nHELP parley_fake 1\r\nparley_fake 1",
    "controls \x00\x1b[31m\u2028\x85",
    "a lone surrogate \ud800",
    "{}=,",
    "",
    "x" * 5000,
    "模型 🙂",
]


def written(values: list[tuple[str, ...]]) -> list[str]:
    """The label values that a scraper reads of a counter with these."""
    registry = CollectorRegistry()
    counter = Counter("calls", "Calls.", ("model",), registry=registry)
    for value in values:
        counter.labels(*value).inc()
    (family,) = text_string_to_metric_families(generate_latest(registry).decode())
    return [each.labels["model"] for each in family.samples if "_total" in each.name]


def test_hostile_names_stay_one_value_on_one_line_each():
    names = BoundedNames(100)
    found = written([names.find(name) for name in HOSTILE])
    assert len(found) == len(HOSTILE)
    assert found[0] == HOSTILE[0]
    assert found[1] == "lines HELP parley_fake 1  parley_fake 1"
    assert found[3] == "a lone surrogate  "
    assert found[7] == HOSTILE[7]
    assert max(map(len, found)) == MAX_LENGTH


def test_ten_thousand_names_have_as_many_series_as_allowed():
    names = BoundedNames(200)
    values = [names.find(f"host{i % 3}", f"model{i}") for i in range(10_000)]
    assert len(set(values)) == 201
    assert values[-1] == (OTHER, OTHER)
    assert names.find("host0", "model0") == ("host0", "model0")
