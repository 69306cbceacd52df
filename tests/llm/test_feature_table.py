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
WAYS = dict(feature_table._routes())


def test_what_the_document_says_is_what_the_code_does():
    """If this fails: `manage.py feature_table`, and put what it prints in there.

    A provider that is new may be missing: to add one is to write one file.
    """
    printed = StringIO()
    call_command("feature_table", stdout=printed)
    lines = printed.getvalue().strip().splitlines()
    section = FIDELITY.read_text("utf-8").partition("## Which provider takes what")[2]
    told = section.partition("\n## ")[0].splitlines()
    rows = [line for line in told if line.startswith("|")]
    assert [row for row in rows if row not in lines] == []
    assert len(rows) >= 2 * 27
    assert lines[-1] in told


def test_every_provider_is_in_it():
    asked = {route.endpoint.provider.name for route in WAYS.values()}
    assert asked == set(all_providers()) - {"demo"}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_that_was_asked_for_is_lost_in_silence(way: str):
    assert [each for each in FEATURES if support_level(WAYS[way], each) == SILENT] == []


@pytest.mark.parametrize(
    ("way", "feature", "told"),
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
def test_it_says_what_the_sheets_say(way: str, feature: str, told: str):
    assert support_level(WAYS[way], feature) == told
