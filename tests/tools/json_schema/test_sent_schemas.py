"""What the wire formats make of a schema."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tools.json_schema.sent_schemas import HOSTS, SentSchema, find_sent_schemas
from tools.models import HttpTool, Tool

EVIL = "<script>alert(1)</script>"


def sent(parameters: dict[str, Any]) -> dict[str, SentSchema]:
    found = find_sent_schemas(parameters)
    assert len(found) == len(HOSTS)
    return {each.host: each for each in found}


def changes(found: SentSchema) -> str:
    return "\n".join(f"{each.sign}{each.text}" for each in found.lines)


def test_a_plain_schema_is_sent_as_it_is_by_all():
    plain = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert not any(each.lines or each.why_refused for each in sent(plain).values())


def test_each_change_of_an_encoding_is_shown():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^x"}},
        "additionalProperties": False,
    }
    found = sent(schema)
    by_wire = {each.wire: changes(each) for each in found.values()}
    assert set(by_wire) == {"openai_responses", "openai_chat", "anthropic", "gemini"}
    assert by_wire["openai_chat"] == by_wire["anthropic"] == ""
    assert '"pattern": "^x"' in by_wire["gemini"]
    assert "(pattern: ^x)" in by_wire["gemini"]
    assert changes(found["OpenAI"]) == ""
    assert "additionalProperties" in changes(found["xAI"])


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"$ref": "#"},
        {"properties": {EVIL: {"enum": [1, None]}}},
    ],
)
def test_any_schema_is_compared(schema: dict[str, Any]):
    sent(schema)


@pytest.mark.django_db
def test_the_page_of_a_tool_shows_them(admin_client: Client):
    row = Tool.objects.create(name="ask", kind=Tool.Kind.HTTP, description="Ask.")
    parameters = {
        "type": "object",
        "properties": {"q": {"type": "string", "pattern": EVIL}},
    }
    HttpTool.objects.create(tool=row, url="https://host/", parameters=parameters)
    page = admin_client.get(reverse("admin:tools_tool_change", args=[row.pk])).text
    assert "gemini (" in page
    assert EVIL not in page
