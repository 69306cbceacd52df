from __future__ import annotations

from typing import Any

import pytest

from llm.adaptation.forwarding import default_options
from llm.generation.request_builder import OPTIONS, RequestBuilder
from llm.models.language_model import REQUEST_OPTIONS
from llm.wire.items import user_message
from llm.wire.request import Request

from .hosts import route, route_at

ITEMS = [user_message("Hi")]


def built(options: dict[str, Any], **fields: Any) -> Request:
    return RequestBuilder(route(**fields)).build(
        Request(model="", items=ITEMS), options
    )


def test_a_request_is_addressed_to_the_model_of_the_route():
    request = built({})
    assert (request.model, request.items) == ("a-model", ITEMS)
    assert request.issuer == route().endpoint.issuer("a-model")


@pytest.mark.parametrize(
    ("options", "temperature"),
    [
        ({}, 0.2),
        ({"temperature": 0.0}, 0.0),
        ({"temperature": None}, None),
    ],
    ids=["default", "caller's", "removed"],
)
def test_options_of_the_caller_replace_those_of_the_staff(
    options: dict[str, Any], temperature: float | None
):
    defaults = {"temperature": 0.2, "seed": None}
    request = built(options, defaults=defaults)
    assert (request.temperature, request.seed) == (temperature, None)


@pytest.mark.parametrize(
    ("sampling", "options", "temperature"),
    [
        ("never", {}, None),
        ("never", {"temperature": 1.0}, 1.0),  # refused later, by its name
        ("without_reasoning", {}, 0.2),
        ("without_reasoning", {"reasoning": {"effort": "high"}}, None),
        ("without_reasoning", {"reasoning": {"effort": "none"}}, 0.2),
        (None, {"reasoning": {"effort": "high"}}, 0.2),
    ],
)
def test_a_default_temperature_is_left_out_where_the_model_refuses_it(
    sampling: Any, options: dict[str, Any], temperature: float | None
):
    capabilities = {"sampling": sampling} if sampling else {}
    staffs = {"temperature": 0.2, "seed": 1}
    request = built(options, defaults=staffs, capabilities=capabilities)
    assert (request.temperature, request.seed) == (temperature, 1)
    plain = Request(model="", items=ITEMS, **options)
    fallback = route("b", defaults=staffs, capabilities=capabilities)
    retargeted = RequestBuilder(fallback).retarget(plain, route())
    assert (retargeted.temperature, retargeted.seed) == (temperature, 1)


@pytest.mark.parametrize(
    ("kind", "body", "sent"),
    [
        ("anthropic", {"top_p": 0.9}, {"top_p": 0.9}),
        ("anthropic", {"temperature": 0.7}, {"temperature": 0.7}),
        ("anthropic", {}, {"temperature": 0.2}),
        ("openai_compatible", {"top_p": 0.9}, {"top_p": 0.9, "temperature": 0.2}),
    ],
)
def test_the_callers_choice_is_not_joined_by_what_the_host_refuses_beside_it(
    kind: str, body: dict[str, Any], sent: dict[str, Any]
):
    staffs = {"temperature": 0.2} if body else {"temperature": 0.2, "seed": None}
    if "temperature" in body:
        staffs = {"top_p": 0.5}
    model = route_at(kind, defaults=staffs)
    added = default_options(model, body)
    assert {**added, **body} == sent
    request = RequestBuilder(model).build(Request(model="", items=ITEMS), body)
    plain = Request(model="", items=ITEMS, **body)
    retargeted = RequestBuilder(model).retarget(plain, route())
    for each in (request, retargeted):
        found = {"temperature": each.temperature, "top_p": each.top_p}
        assert {n: v for n, v in found.items() if v is not None} == sent


@pytest.mark.parametrize(
    ("options", "limit"),
    [({}, 100), ({"max_output_tokens": 7}, 7), ({"max_output_tokens": None}, 100)],
    ids=["unset", "caller's", "removed"],
)
def test_the_limit_of_a_model_is_in_each_request(options: dict[str, Any], limit: int):
    assert built(options, max_output_tokens=100).max_output_tokens == limit


def test_names_that_are_no_options_are_ignored():
    options = {"items": [], "model": "b", "retry": {"attempts": 1}, "tools": [{}]}
    assert built(options, defaults=options) == built({})


def test_staff_can_set_each_option():
    assert OPTIONS <= REQUEST_OPTIONS
