"""Presets and sources of context in the configuration file."""

from __future__ import annotations

import tomllib

import pytest
import tomli_w

from conversations.models.preset import ContextSource, Preset
from llm.models import Provider
from project.config_file import ConfigError, dump, load
from tests.conversations.scene import a_user
from tools.models import Tool
from tools.models.mcp_server import McpServer

pytestmark = pytest.mark.django_db

FILE = """
[[providers]]
name = "Groq"
kind = "groq"

  [[providers.models]]
  name = "m"

[[tools]]
name = "calculator"

[[sources]]
name = "rules"
title = "House rules"
text = "Prices are in euros."

[[sources]]
name = "customer"
title = "The customer"
kind = "http"
url = "https://crm.example/customers/{username}"
secret_headers = {Authorization = "env:CRM_TOKEN"}
cache_seconds = 60

[[sources]]
name = "notes"
title = "Notes"
kind = "mcp"
mcp_server = "notes"
uri = "notes://all"

[[presets]]
name = "support"
label = "Customer support"
language_model = "Groq/m"
options = {temperature = 0.2}
tools = ["calculator"]
sources = ["rules", "customer"]
groups = ["support"]
is_default = true
"""
ENVIRONMENT = {"CRM_TOKEN": "Bearer planted-0123"}


@pytest.fixture(autouse=True)
def _rows(db) -> None:
    Tool.objects.all().delete()
    McpServer.objects.create(name="notes", url="https://notes.example/mcp")


def made(text: str = FILE, environment=ENVIRONMENT):
    return load(tomllib.loads(text), environment)


def own_changes(report) -> list[str]:
    return [
        change for change in report.changes if change.startswith(("sources", "presets"))
    ]


def test_a_file_makes_presets_and_sources():
    assert own_changes(made()) == [
        "sources[rules]: created",
        "sources[customer]: created",
        "sources[notes]: created",
        "presets[support]: created",
        "presets[support].tools: now calculator",
        "presets[support].sources: now rules, customer",
        "presets[support].groups: now support",
        "presets[support].language_model: now Groq/m",
    ]
    preset = Preset.objects.get()
    sources = preset.context_sources(a_user("reader"))
    assert [each.name for each in sources] == ["rules", "customer"]
    assert preset.tool_names() == {"calculator"}
    assert preset.language_model.full_name == "Groq/m"
    customer = ContextSource.objects.get(name="customer")
    assert customer.get_secret_headers() == {"Authorization": ENVIRONMENT["CRM_TOKEN"]}
    assert ContextSource.objects.get(name="notes").mcp_server.name == "notes"


def test_a_preset_may_allow_no_tool_at_all():
    bare = '[[presets]]\nname = "bare"\nonly_named_tools = true\n'
    made(bare)
    assert Preset.objects.get().tool_names() == set()
    assert dump()["presets"] == [{"name": "bare", "only_named_tools": True}]
    assert made(bare).changes == []


def test_a_tool_that_is_named_and_deleted_leaves_none():
    made()
    Tool.objects.all().delete()
    assert Preset.objects.get().tool_names() == set()


def test_loading_it_or_what_was_dumped_again_does_nothing():
    made()
    assert made().changes == []
    text = tomli_w.dumps(dump())
    assert "planted" not in text
    report = made(text, {})
    assert report.changes == []
    assert [note for note in report.notes if "secret_headers" in note] == [
        "sources[customer].secret_headers.Authorization: CUSTOMER_AUTHORIZATION is not"
        " set; the stored header stays."
    ]


def test_a_dumped_configuration_creates_the_same_rows_elsewhere():
    made()
    dumped = dump()
    for model in (Preset, ContextSource, Provider, Tool):
        model.objects.all().delete()
    load(dumped, {"CUSTOMER_AUTHORIZATION": "Bearer planted-0123"})
    assert dump() == dumped


def test_each_change_is_reported():
    made()
    changed = (
        FILE.replace(
            'sources = ["rules", "customer"]', 'sources = ["customer", "rules"]'
        )
        .replace('language_model = "Groq/m"\n', "")
        .replace('mcp_server = "notes"', 'mcp_server = "more"')
        .replace("cache_seconds = 60", "cache_seconds = 61")
        .replace("temperature = 0.2", "temperature = 0.3")
    )
    McpServer.objects.create(name="more", url="https://more.example/mcp")
    assert made(changed, {"CRM_TOKEN": "Bearer other"}).changes == [
        "sources[customer].cache_seconds: 60 → 61",
        "sources[customer].secret_headers.Authorization: replaced",
        "sources[notes].mcp_server: now more",
        'presets[support].options: {"temperature": 0.2} → {"temperature": 0.3}',
        "presets[support].sources: now customer, rules",
        "presets[support].language_model: now none",
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            '"rules", "cus',
            '"rulez", "cus',
            "presets[support].sources: there is no source",
        ),
        (
            'tools = ["calculator"]',
            'tools = ["x"]',
            "presets[support].tools: there is no",
        ),
        ('"Groq/m"', '"Groq/n"', "presets[support].language_model: there is no model"),
        ('= "Groq/m"', "= 7", "presets[support].language_model: write a string."),
        (
            'mcp_server = "notes"',
            'mcp_server = "x"',
            "sources[notes].mcp_server: there is",
        ),
        (
            'mcp_server = "notes"',
            "mcp_server = []",
            "sources[notes].mcp_server: write a",
        ),
        (
            '"env:CRM_TOKEN"',
            '"Bearer x"',
            "sources[customer].secret_headers.Authorization: a",
        ),
        (
            '"env:CRM_TOKEN"',
            '"env:NONE"',
            "sources[customer].secret_headers.Authorization: N",
        ),
        (
            '{Authorization = "env:CRM_TOKEN"}',
            "7",
            "sources[customer].secret_headers: write",
        ),
        ("{username}", "{me}", "sources[customer].url: {me} is unknown"),
        ('text = "Prices', 'texd = "Prices', "sources[rules]: unknown field 'texd'"),
        ("temperature", "temprature", "presets[support].options: "),
        (
            "[[presets]]",
            '[[presets]]\nname = "x"\nis_default = true\n[[presets]]',
            "presets[x].is_default and presets[support].is_default: only one preset",
        ),
    ],
)
def test_a_mistake_names_its_place_and_changes_nothing(old, new, problem):
    assert old in FILE
    with pytest.raises(ConfigError) as caught:
        made(FILE.replace(old, new, 1))
    assert any(message.startswith(problem) for message in caught.value.problems)
    assert not Preset.objects.exists()
    assert not ContextSource.objects.exists()
