"""Laws of the OpenAPI documents, for those who generate clients from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from conversations.http import openapi_view

METHODS = ("get", "post", "put", "patch", "delete")
#: A list from before lists had an envelope; `/api/questions/open/` replaces it.
BARE = {"/api/questions/"}


@pytest.fixture(scope="module")
def rest() -> dict[str, Any]:
    return read("/api/schema/")


@pytest.fixture(scope="module")
def gateway() -> dict[str, Any]:
    return read("/api/schema/gateway/")


def read(address: str) -> dict[str, Any]:
    answer = Client().get(address, {"format": "json"})
    document: dict[str, Any] = answer.json()
    return document


def operations(document: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def nodes(value: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield place, value
        for name, each in value.items():
            yield from nodes(each, f"{place}/{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from nodes(each, f"{place}/{number}")


def test_each_document_has_its_own_paths(rest: Any, gateway: Any):
    assert rest["paths"]
    assert all(path.startswith("/api/") for path in rest["paths"])
    assert gateway["paths"]
    assert all(path.startswith("/v1/") for path in gateway["paths"])


def test_every_operation_has_a_short_summary_and_an_id(rest: Any, gateway: Any):
    found = [*operations(rest), *operations(gateway)]
    assert len(found) > 90
    wrong = [
        (path, method)
        for path, method, each in found
        if not (each.get("operationId") and 3 < len(each.get("summary", "")) <= 120)
    ]
    assert wrong == []
    ids = [each["operationId"] for _, _, each in found]
    assert len(ids) == len(set(ids))


def test_no_schema_is_what_generators_refuse(rest: Any, gateway: Any):
    wrong = [
        place
        for document in (rest, gateway)
        for place, node in nodes(document["components"]["schemas"])
        if node.get("enum") == []
        or (node.get("type") == "null" and "logprobs" in place)
        or (document is gateway and isinstance(node.get("nullable"), bool))
    ]
    assert wrong == []


def test_no_request_has_a_field_that_only_answers_have(rest: Any):
    schemas = rest["components"]["schemas"]
    requests = {
        name: node for name, node in schemas.items() if name.endswith("Request")
    }
    assert len(requests) > 15
    wrong = [
        f"{name}.{field}"
        for name, node in requests.items()
        for field, each in node.get("properties", {}).items()
        if each.get("readOnly")
    ]
    assert wrong == []
    assert "required" not in schemas["ConversationRequest"]
    bodies = [
        schema
        for _, _, each in operations(rest)
        for place, schema in nodes(each.get("requestBody", {}))
        if "$ref" in schema
    ]
    assert all(schema["$ref"].endswith("Request") for schema in bodies)


def test_all_lists_have_one_envelope_and_one_pagination(rest: Any):
    schemas = rest["components"]["schemas"]
    lists = 0
    for path, method, each in operations(rest):
        content = each["responses"].get("200", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema", {})
        if method != "get" or path in BARE:
            continue
        assert schema.get("type") != "array", path
        shown = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
        fields = shown.get("properties", {})
        if not {"results", "data"} & fields.keys():
            continue
        lists += 1
        assert {"results", "next", "previous"} <= fields.keys(), path
        parameters = {found["name"] for found in each["parameters"]}
        assert {"limit", "cursor"} <= parameters, path
    assert lists >= 17


def test_the_document_is_the_same_in_all_languages(rest: Any):
    openapi_view.render_document.cache_clear()
    answer = Client().get(
        "/api/schema/", {"format": "json"}, headers={"Accept-Language": "de"}
    )
    assert answer.json() == rest
