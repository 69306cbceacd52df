"""What the tests read of a server's `/metrics`."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

TOKEN = "metrics-token-of-the-tests"


def scrape(url: str) -> str:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = httpx.get(f"{url}/metrics", headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


def read(text: str) -> list[Sample]:
    families = text_string_to_metric_families(text)
    return [sample for family in families for sample in family.samples]


def value(samples: list[Sample], name: str, **labels: str) -> float:
    """The sum of the samples with these labels, among others."""
    found = [
        each.value
        for each in samples
        if each.name == name and labels.items() <= each.labels.items()
    ]
    assert found, f"no {name} with {labels}"
    return sum(found)
