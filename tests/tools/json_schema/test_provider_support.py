from __future__ import annotations

import pytest
from django.utils.translation import override

from tools.json_schema.provider_support import (
    MAX_REASONS,
    SENT_REWRITTEN,
    SENT_UNCHANGED,
    find_refusals,
)

CLOSED = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def refusals_of(schema: dict) -> dict[str, str]:
    return {each.family: "; ".join(each.reasons) for each in find_refusals(schema)}


def open_with(**properties) -> dict:
    return {"type": "object", "properties": properties, "required": list(properties)}


def test_a_plain_schema_is_refused_by_strict_modes_alone():
    assert set(refusals_of(open_with(a={"type": "string"}))) == {
        "OpenAI, strict",
        "Anthropic, strict",
    }
    assert set(refusals_of(CLOSED)) == {"xAI"}


@pytest.mark.parametrize(
    ("schema", "family", "reason"),
    [
        ({**CLOSED, "anyOf": [{}]}, "OpenAI, Azure", "'anyOf' is not allowed"),
        ({**CLOSED, "oneOf": [{}]}, "Anthropic", "'oneOf' is not allowed"),
        (CLOSED, "xAI", "'additionalProperties' may not be false"),
        ({**CLOSED, "required": []}, "OpenAI, strict", "must be required: city"),
        (open_with(a={"default": 1}), "OpenAI, strict", "properties.a: 'default'"),
        (open_with(a={"minimum": 1}), "Anthropic, strict", "properties.a: 'minimum'"),
        (open_with(a={"minItems": 3}), "Anthropic, strict", "may be 0 or 1"),
        (open_with(a={"const": 1}), "Gemini, Vertex", "properties.a: 'const'"),
        (open_with(a={"enum": [1, 2]}), "Gemini, Vertex", "may contain only strings"),
        (open_with(a={"items": {"not": {}}}), "Gemini, Vertex", "properties.a.items"),
        (open_with(a={"$ref": "#"}), "Gemini, Vertex", "refers to itself"),
        (open_with(a={"$ref": "#"}), "Anthropic, strict", "refers to itself"),
        (open_with(a={"$ref": "#/x"}), "Llama, Ollama, Groq", "'$ref' is not followed"),
    ],
)
def test_each_provider_family_explains_its_refusal(
    schema: dict, family: str, reason: str
):
    assert reason in refusals_of(schema)[family]


def test_one_definition_may_stand_inside_another():
    schema = open_with(a={"$ref": "#/$defs/a"})
    schema["$defs"] = {"a": open_with(b={"$ref": "#/$defs/b"}), "b": {"type": "null"}}
    assert "refers to itself" not in str(refusals_of(schema))
    schema["$defs"]["b"] = open_with(c={"$ref": "#/$defs/a"})
    assert "refers to itself" in refusals_of(schema)["Gemini, Vertex"]


def test_too_many_optional_properties_are_counted():
    many = {f"p{n}": {"type": ["string", "null"]} for n in range(25)}
    reasons = refusals_of({"type": "object", "properties": many})["Anthropic, strict"]
    assert "25 optional properties, of 24 allowed" in reasons
    assert "25 unions, of 16 allowed" in reasons


def test_long_lists_are_truncated_and_remedies_named():
    many = {f"p{n}": {"const": n} for n in range(9)}
    found = {each.family: each for each in find_refusals(open_with(**many))}
    assert len(found["Gemini, Vertex"].reasons) == MAX_REASONS + 1
    assert found["Gemini, Vertex"].reasons[-1] == "and 5 more"
    assert found["Gemini, Vertex"].remedy == SENT_REWRITTEN
    recurring = find_refusals(open_with(a={"$ref": "#"}))
    assert {each.family: each.remedy for each in recurring}[
        "Llama, Ollama, Groq"
    ] == SENT_UNCHANGED


def test_what_providers_refuse_is_said_in_the_language_of_staff():
    schema = {"type": "object", "additionalProperties": False, "maxProperties": 3}
    with override("de"):
        refusals = {each.family: each for each in find_refusals(schema)}
    xai, strict = refusals["xAI"], refusals["OpenAI, strict"]
    assert xai.reasons == ("'additionalProperties' darf nicht false sein",)
    assert xai.remedy.startswith("Parley schreibt das Schema um")
    assert "'maxProperties' ist nicht erlaubt" in strict.reasons
