from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm import options
from llm.adaptation import hosted_tools
from llm.adaptation.hosted_tools import LABELS, NAMES, kind_of, why_unsupported
from llm.capabilities import Capabilities, capabilities_of
from llm.errors import BadRequest
from llm.providers import all_providers
from llm.wire.codec import Codec
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.items import user_message
from llm.wire.request import Request

#: The least that each can be declared by.
LEAST: dict[str, dict[str, Any]] = {
    "web_search": {"type": "web_search"},
    "x_search": {"type": "x_search"},
    "file_search": {"type": "file_search", "vector_store_ids": ["vs_1"]},
    "code_interpreter": {"type": "code_interpreter", "container": {"type": "auto"}},
    "image_generation": {"type": "image_generation"},
    "computer_use": {
        "type": "computer_use_preview",
        "display_width": 1024,
        "display_height": 768,
        "environment": "browser",
    },
    "mcp": {
        "type": "mcp",
        "server_label": "wiki",
        "server_url": "https://wiki.test/mcp",
        "require_approval": "never",
    },
}
SEARCH, FILES = LEAST["web_search"], LEAST["file_search"]
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}}
DOCS = Path(__file__).parents[3] / "docs" / "hosted-tools.md"


def wires() -> Iterator[tuple[str, Codec, str, Capabilities]]:
    """Every wire of every provider whose tools are known."""
    for provider in all_providers().values():
        model = provider.default_model or "m"
        for name, codec in provider.codecs.items():
            can = capabilities_of(provider.name, model, wire=name)
            if can.hosted_tools is not None:
                yield f"{provider.name} {name}", codec, model, can


WIRES = {name: rest for name, *rest in wires()}


# The vocabulary


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        ("web_search", "web_search"),
        ("web_search_2025_08_26", "web_search"),
        ("web_search_preview", "web_search"),
        ("web_search_preview_2025_03_11", "web_search"),
        ("web_search_20250305", None),  # Anthropic's own word
        ("google_search", None),
        ("computer", "computer_use"),
        ("computer_use_preview", "computer_use"),
        ("computer_20251124", None),
        ("function", None),
        ("mcp", "mcp"),
        (None, None),
    ],
)
def test_a_tool_is_known_by_its_spellings(type: Any, kind: str | None):
    assert kind_of({"type": type}) == kind


def test_each_has_a_label_and_a_declaration():
    assert set(LABELS) == set(NAMES) == set(LEAST)
    assert {name: kind_of(tool) for name, tool in LEAST.items()} == {
        name: name for name in NAMES
    }


# The data, against the codecs


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", NAMES)
def test_every_documented_hosted_tool_can_be_encoded(wire: str, kind: str):
    codec, model, can = WIRES[wire]
    why_not = why_unsupported(codec, can, LEAST[kind], model=model)
    assert (why_not is None) == (kind in can.hosted_tools)


@pytest.mark.parametrize(
    "codec",
    [AnthropicCodec(), GeminiCodec(), GeminiCodec(vertex=True), OpenAIChatCodec()],
    ids=lambda codec: codec.name,
)
def test_the_codec_decides_where_support_is_unknown(codec: Codec):
    unknown = Capabilities()
    assert why_unsupported(codec, unknown, {"type": "teleport"}) == (
        "This provider has no tool of the type 'teleport'."
    )
    assert why_unsupported(None, unknown, {"type": "teleport"}) is None


def test_staff_can_set_which_hosted_tools_a_model_supports():
    can = capabilities_of(
        "openai", "gpt-4o", {"hosted_tools": ["mcp"]}, wire="openai_responses"
    )
    assert can.to_dict()["hosted_tools"] == ["mcp"]
    assert (
        why_unsupported(None, can, SEARCH)
        == "The tools that its provider runs are 'mcp'."
    )
    anything = capabilities_of("demo", "demo", {"hosted_tools": None})
    assert why_unsupported(None, anything, SEARCH) is None


# Refusal by name, or leaving out


def fitted(request: Request, codec: Codec, can: Capabilities, **wanted: Any) -> Any:
    return options.fit(request, can, model_name="ours", codec=codec, **wanted)


def asking(*tools: dict[str, Any], **options: Any) -> Request:
    return Request(model="m", items=[user_message("Hi")], tools=tools, **options)


SOME = Capabilities(hosted_tools=("web_search", "mcp"))


def test_a_tool_that_the_model_has_not_is_refused_by_name():
    with pytest.raises(BadRequest) as caught:
        fitted(asking(SEARCH, FILES), AnthropicCodec(), SOME)
    assert caught.value.param == "tools"
    assert str(caught.value) == (
        "The model 'ours' does not support the tool 'file_search'; the tools that"
        " its provider runs are 'web_search' and 'mcp'."
    )
    with pytest.raises(
        BadRequest, match="the model has no tools that its provider runs"
    ):
        fitted(asking(FILES), AnthropicCodec(), Capabilities(hosted_tools=()))


def test_an_unsupported_field_of_a_tool_is_a_reason_too():
    supported = {**SEARCH, "filters": {"allowed_domains": ["a.test"]}}
    with pytest.raises(BadRequest, match="'allowed_domains'; leave it out"):
        fitted(asking(supported), GeminiCodec(), Capabilities())
    assert fitted(asking(supported), AnthropicCodec(), Capabilities()).dropped == ()


def test_it_is_left_out_and_reported_where_that_is_wished_for():
    request_fitted = fitted(
        asking(SEARCH, FILES, FUNCTION), AnthropicCodec(), SOME, ignore_invalid=True
    )
    assert request_fitted.request.tools == [SEARCH, FUNCTION]
    assert request_fitted.dropped == ("tools (without file_search)",)
    alone = asking(FILES, tool_choice="required", parallel_tool_calls=True)
    left = fitted(alone, AnthropicCodec(), SOME, ignore_invalid=True).request
    assert (left.tools, left.tool_choice, left.parallel_tool_calls) == ((), None, None)


@pytest.mark.parametrize(
    ("choice", "left"),
    [
        ("required", "required"),
        ({"type": "file_search"}, "auto"),
        ({"type": "function", "name": "look"}, {"type": "function", "name": "look"}),
        (
            {"type": "allowed_tools", "tools": [FILES, SEARCH]},
            {"type": "allowed_tools", "tools": [SEARCH]},
        ),
        ({"type": "allowed_tools", "tools": [FILES]}, "none"),
    ],
)
def test_a_dropped_tool_cannot_be_chosen(choice: Any, left: Any):
    request = asking(SEARCH, FILES, FUNCTION, tool_choice=choice)
    request_fitted = fitted(request, AnthropicCodec(), SOME, ignore_invalid=True)
    assert request_fitted.request.tool_choice == left


def test_a_tool_that_does_not_go_with_functions_gives_way_to_them():
    request = Request(
        model="gemini-2.5-flash", items=[user_message("Hi")], tools=[SEARCH, FUNCTION]
    )
    with pytest.raises(BadRequest, match="not both"):
        fitted(request, GeminiCodec(), Capabilities())
    request_fitted = fitted(request, GeminiCodec(), Capabilities(), ignore_invalid=True)
    assert request_fitted.request.tools == [FUNCTION]


def test_a_bad_function_is_not_the_hosted_tools_fault():
    class Picky(AnthropicCodec):
        def encode(self, request: Request) -> dict[str, Any]:
            if any(not hosted_tools.is_hosted(tool) for tool in request.tools):
                raise BadRequest("No functions here.", param="tools")
            return {}

    request_fitted = fitted(asking(SEARCH, FUNCTION), Picky(), Capabilities())
    assert request_fitted.request.tools == (SEARCH, FUNCTION)


# Screens


def test_computer_use_is_for_a_client_that_acts():
    assert hosted_tools.needs_client(LEAST["computer_use"])
    assert "click_at" in hosted_tools.client_functions([SEARCH, LEAST["computer_use"]])
    assert hosted_tools.client_functions([SEARCH, FUNCTION]) == frozenset()


def test_a_model_without_vision_is_told_that_there_was_a_screenshot():
    shot = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", "image_url": "data:image/png,"},
    }
    request = Request(model="m", items=[user_message("Hi"), shot])
    request_fitted = fitted(request, OpenAIChatCodec(), Capabilities(vision=False))
    assert request_fitted.dropped == ("input (without input_image)",)
    assert "you cannot see" in request_fitted.request.items[1]["content"][0]["text"]


# The documentation


def test_the_table_of_the_documentation_is_the_data():
    rows = re.findall(r"^\| ([\w. -]+?) \| `(\w+)` \|(.+)\|$", DOCS.read_text(), re.M)
    kinds = [name for name in NAMES if name != "x_search"]
    documented = {
        (kind, wire): {
            name
            for name, cell in zip(kinds, cells.split("|"), strict=True)
            if cell.strip() not in ("", "—")
        }
        for kind, wire, cells in rows
    }
    known = {
        (all_providers()[name].label, wire): set(can.hosted_tools) - {"x_search"}
        for name, wire, can in (
            (*key.split(), can) for key, (_, _, can) in WIRES.items()
        )
    }
    some = {key: kinds for key, kinds in known.items() if kinds}
    assert documented == some
