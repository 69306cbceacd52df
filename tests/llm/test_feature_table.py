"""The table of providers and features is what the code does, and nothing is silent."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from llm.management.commands import feature_table
from llm.management.commands.feature_table import FEATURES, SILENT, support_level
from llm.providers import all_providers

FIDELITY = Path(__file__).parents[2] / "docs" / "fidelity.md"
WAYS = dict(feature_table.feature_routes())


def test_the_document_matches_the_code():
    """If this fails: `manage.py feature_table`, and put what it prints in there.

    A provider that is new may be missing: to add one is to write one file.
    """
    printed = StringIO()
    call_command("feature_table", stdout=printed)
    lines = printed.getvalue().strip().splitlines()
    section = FIDELITY.read_text("utf-8").partition("## Features by provider")[2]
    document_lines = section.partition("\n## ")[0].splitlines()
    rows = [line for line in document_lines if line.startswith("|")]
    assert [row for row in rows if row not in lines] == []
    assert len(rows) >= 2 * 27
    assert lines[-1] in document_lines


def test_every_provider_is_in_it():
    names = {route.endpoint.provider.name for route in WAYS.values()}
    assert names == set(all_providers()) - {"demo"}


@pytest.mark.parametrize("route_name", WAYS)
def test_no_requested_feature_is_lost_silently(route_name: str):
    assert [
        each for each in FEATURES if support_level(WAYS[route_name], each) == SILENT
    ] == []


@pytest.mark.parametrize(
    ("route_name", "feature", "cell"),
    [
        ("anthropic", "seed", "dropped"),
        ("anthropic", "temperature", "no"),
        ("anthropic", "JSON", "near"),
        ("deepseek", "JSON Schema", "near"),
        ("gemini", "one at a time", "dropped"),
        ("gemini", "image by URL", "yes"),
        ("groq", "PDF", "no"),
        ("meta", "must call", "no"),
        ("ollama", "image by URL", "fetched"),
        ("openai", "stop", "no"),
        ("openai chat", "PDF", "yes"),
        ("vllm", "late instructions", "near"),
        ("gemini", "its detail", "dropped"),
    ],
)
def test_the_table_matches_the_vendors_sheets(route_name: str, feature: str, cell: str):
    assert support_level(WAYS[route_name], feature) == cell
