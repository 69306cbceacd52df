from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from conversations.pages.hosted_tool_cards import (
    LONGEST_TEXT,
    MAX_RESULTS,
    card_of,
    is_hosted_item,
)

ROOT = Path(__file__).parents[4]
FOLDER = Path(
    os.environ.get("RECORDINGS_DIR", ROOT.parent / "shared" / "recordings" / "open")
)
PNG = "iVBORw0KGgoAAAANSUhEUg=="
SHOWN = {"type": "computer_screenshot"}


def search(**fields: Any) -> dict[str, Any]:
    action = {"type": "search", "query": "cats", **fields}
    return {"type": "web_search_call", "status": "completed", "action": action}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            search(sources=[{"type": "url", "url": "https://a.test", "title": "A"}]),
            {
                "title": "Searched the web",
                "query": "cats",
                "results": [{"title": "A", "url": "https://a.test"}],
            },
        ),
        (search(queries=["cats", "dogs"]), {"query": "cats; dogs"}),
        (
            {
                "type": "web_search_call",
                "action": {"type": "open_page", "url": "https://a.test/b"},
            },
            {
                "title": "Opened a page",
                "results": [{"title": "https://a.test/b", "url": "https://a.test/b"}],
            },
        ),
        (
            {
                "type": "web_search_call",
                "action": {"type": "find_in_page", "url": "", "pattern": "cat"},
            },
            {"title": "Looked through a page", "query": "cat", "results": []},
        ),
        (
            {"type": "web_search_call", "name": "x", "arguments": '{"query": "old"}'},
            {"query": "old"},
        ),
        (
            {"type": "x_search_call", "action": {"type": "search", "query": "now"}},
            {"title": "Searched X", "query": "now"},
        ),
        (
            {
                "type": "file_search_call",
                "queries": ["q"],
                "results": [{"filename": "a.txt", "text": "Yes."}],
            },
            {
                "title": "Searched files",
                "query": "q",
                "results": [{"title": "a.txt", "text": "Yes."}],
            },
        ),
        (
            {
                "type": "code_interpreter_call",
                "code": "print(1)",
                "outputs": [
                    {"type": "logs", "logs": "1"},
                    {"type": "image", "url": f"data:image/png;base64,{PNG}"},
                    {"type": "image", "url": "https://files.test/1"},
                ],
            },
            {
                "title": "Ran code",
                "code": "print(1)",
                "results": [
                    {"text": "1"},
                    {"image": f"data:image/png;base64,{PNG}"},
                    {"title": "An image", "url": "https://files.test/1"},
                ],
            },
        ),
        (
            {"type": "code_interpreter_call", "arguments": '{"code": "2+2"}'},
            {"code": "2+2"},
        ),
        (
            {"type": "image_generation_call", "result": PNG, "revised_prompt": "A cat"},
            {
                "title": "Drew an image",
                "query": "A cat",
                "results": [{"image": f"data:image/png;base64,{PNG}"}],
            },
        ),
        (
            {
                "type": "mcp_call",
                "server_label": "wiki",
                "name": "read",
                "arguments": '{"page":1}',
                "output": "Yes.",
            },
            {
                "title": "Called read of wiki",
                "code": '{\n  "page": 1\n}',
                "results": [{"text": "Yes."}],
            },
        ),
        (
            {
                "type": "mcp_list_tools",
                "server_label": "wiki",
                "tools": [{"name": "read", "description": "Reads."}],
            },
            {
                "title": "Listed the tools of wiki",
                "results": [{"title": "read", "text": "Reads."}],
            },
        ),
        (
            {"type": "mcp_approval_request", "server_label": "wiki", "name": "read"},
            {"title": "Asks to call read of wiki"},
        ),
        (
            {"type": "mcp_approval_response", "approve": False, "reason": "No."},
            {"title": "The call was refused", "query": "No."},
        ),
        (
            {
                "type": "computer_call",
                "action": {"type": "click", "button": "left", "x": 1, "y": 2},
                "pending_safety_checks": [{"id": "s", "message": "A bank."}],
            },
            {
                "title": "Acted on the screen",
                "query": "click at 1, 2",
                "results": [{"title": "Needs care", "text": "A bank."}],
            },
        ),
        (
            {
                "type": "computer_call",
                "actions": [
                    {"type": "keypress", "keys": ["ctrl", "s"]},
                    {"type": "parley:triple_click"},
                ],
            },
            {"query": "keypress ctrl+s, then triple click"},
        ),
        (
            {
                "type": "computer_call_output",
                "output": {**SHOWN, "image_url": f"data:image/png;base64,{PNG}"},
            },
            {"results": [{"image": f"data:image/png;base64,{PNG}"}]},
        ),
        (
            {"type": "parley:hosted_tool_call", "name": "google_maps", "arguments": {}},
            {"title": "Used google maps"},
        ),
        (
            {"type": "custom_tool_call", "name": "x_user_search", "input": '{"q":1}'},
            {"title": "Used x_user_search", "code": '{\n  "q": 1\n}'},
        ),
        (
            {"type": "shell_call", "id": "sh_1", "action": {"commands": ["ls"]}},
            {"title": "Shell", "kind": "shell_call"},
        ),
    ],
)
def test_each_kind_has_its_card(item: dict[str, Any], expected: dict[str, Any]):
    assert is_hosted_item(item)
    card = card_of(item)
    assert {name: card[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("fields", "state", "error"),
    [
        ({"status": "completed"}, "completed", ""),
        ({}, "completed", ""),
        ({"status": "in_progress"}, "executing", ""),
        ({"status": "searching"}, "executing", ""),
        ({"status": "incomplete"}, "incomplete", ""),
        ({"status": "failed"}, "failed", ""),
        ({"status": "completed", "error": "No."}, "failed", "No."),
        ({"error": {"type": "http_error", "message": "502"}}, "failed", "502"),
    ],
)
def test_a_card_shows_its_state(fields: dict[str, Any], state: str, error: str):
    card = card_of({"type": "mcp_call", **fields})
    assert (card["state"], card["error"]) == (state, error)


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "//a.test", "https://[", None, 1]
)
def test_only_addresses_of_the_web_are_links(url: Any):
    [*results] = card_of(search(sources=[{"url": url, "title": "A"}]))["results"]
    assert results == [{"title": "A", "url": ""}]


def test_the_type_of_a_picture_comes_from_its_bytes():
    svg = {
        "type": "image_generation_call",
        "result": "PHN2Zz4=",
        "output_format": "svg",
    }
    [result] = card_of(svg)["results"]
    assert "image" not in result
    assert "svg" in result["text"]
    lying = {"type": "image", "url": "data:image/svg+xml;base64,PHN2Zz4="}
    [shown] = card_of({"type": "code_interpreter_call", "outputs": [lying]})["results"]
    assert "image" not in shown


def test_long_content_is_truncated_and_counted():
    many = [{"filename": str(n), "text": "x" * 5000} for n in range(MAX_RESULTS + 7)]
    card = card_of({"type": "file_search_call", "queries": [], "results": many})
    assert (len(card["results"]), card["more"]) == (MAX_RESULTS, 7)
    assert len(card["results"][0]["text"]) == LONGEST_TEXT


def test_our_own_items_have_other_cards():
    assert not is_hosted_item({"type": "message"})
    assert not is_hosted_item({"type": "function_call"})
    card = card_of({"type": "teleport_call", "id": "x", "to": "Rome"})
    assert (card["title"], card["code"]) == ("Teleport", '{\n  "to": "Rome"\n}')


def _recorded_items() -> list[dict[str, Any]]:
    """Hosted items of recorded answers of the Responses API, as they came."""
    found = []
    for path in sorted(FOLDER.glob("*-responses-json-200-*.json")):
        body = orjson.loads(path.read_bytes())["response"].get("body_text") or "{}"
        output = orjson.loads(body).get("output") or []
        found += [item for item in output if is_hosted_item(item)]
    return found


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no recordings here")
def test_every_recorded_item_has_a_card_with_content():
    items = _recorded_items()
    assert items
    for item in items:
        card = card_of(item)
        assert card["title"]
        assert card["state"] in ("completed", "failed", "incomplete", "executing")
        orjson.dumps(card)


@pytest.mark.parametrize("kind", ["web_search_call", "mcp_call", "computer_call"])
@pytest.mark.parametrize("junk", [None, [], "x", 7, {"a": []}])
def test_fields_that_make_no_sense_do_no_harm(kind: str, junk: Any):
    names = ("action", "actions", "output", "arguments", "error", "results", "tools")
    card_of({"type": kind, **dict.fromkeys(names, junk)})
