"""A hosted tool's card while a turn runs (static/js/hosted.js) and after it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.test import Client
from django.utils import translation

from conversations.pages.hosted_tool_cards import card_of, is_hosted_item
from tests.programs import need_program

ROOT = Path(__file__).parents[4]
RECORDINGS = Path(
    os.environ.get("RECORDINGS_DIR", ROOT.parent / "shared" / "recordings" / "open")
)
SCRIPT = """
import { readFileSync } from "node:fs";
const { catalogue, items } = JSON.parse(readFileSync(0));
(0, eval)(catalogue);
const { cardOf } = await import("./static/js/hosted.js");
console.log(JSON.stringify(items.map(cardOf)));
"""
PAGE = {"type": "url", "url": "https://a.test/x", "title": "A  page"}
SEARCH = {"type": "web_search_call", "status": "completed"}
ITEMS: list[dict[str, Any]] = [
    {**SEARCH, "status": "in_progress"},
    {**SEARCH, "action": {"type": "search", "query": " cats  and\ndogs "}},
    {**SEARCH, "action": {"type": "search", "queries": ["a", "b"], "sources": [PAGE]}},
    {**SEARCH, "action": {"type": "search", "sources": [{"url": "javascript:x"}]}},
    {**SEARCH, "action": {"type": "open_page", "url": "https://a.test/b"}},
    {**SEARCH, "action": {"type": "find_in_page", "url": "", "pattern": "cat"}},
    {"type": "x_search_call", "arguments": '{"query": "old"}'},
    {"type": "file_search_call", "queries": ["q"], "results": [{"filename": "a.txt"}]},
    {"type": "code_interpreter_call", "code": "print(1)", "status": "interpreting"},
    {"type": "code_execution_call", "arguments": '{"code": "1 + 1"}'},
    {"type": "image_generation_call", "revised_prompt": "A cat."},
    {"type": "mcp_call", "name": "f", "server_label": "s", "arguments": '{"a": [1]}'},
    {"type": "mcp_call", "error": {"type": "http_error", "message": "502"}},
    {"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "f"}]},
    {"type": "mcp_approval_request", "name": "f", "arguments": "{}"},
    {"type": "mcp_approval_response", "approve": False, "reason": "No."},
    {"type": "computer_call", "action": {"type": "click", "x": 1, "y": 2}},
    {"type": "computer_call", "actions": [{"type": "keypress", "keys": ["a", "b"]}]},
    {"type": "custom_tool_call", "name": "x", "input": "words", "status": "incomplete"},
    {"type": "parley:hosted_tool_call", "name": "web_fetch", "input": {"url": "u"}},
    {"type": "shell_call", "id": "sh_1", "action": {"commands": ["ls"]}},
    {"type": "teleport_call", "id": "x", "to": "Rome"},
]


def recorded() -> list[dict[str, Any]]:
    found = []
    for path in sorted(RECORDINGS.glob("*-responses-json-200-*.json")):
        body = orjson.loads(path.read_bytes())["response"].get("body_text") or "{}"
        found += orjson.loads(body).get("output") or []
    return [item for item in found if is_hosted_item(item)]


def live_cards(
    items: list[dict[str, Any]], catalogue: str = ""
) -> list[dict[str, Any]]:
    node = need_program("node")
    command = [node, "--input-type=module", "--eval", SCRIPT]
    given = orjson.dumps({"catalogue": catalogue, "items": items})
    completed = subprocess.run(
        command, input=given, capture_output=True, check=False, cwd=ROOT
    )
    assert completed.returncode == 0, completed.stderr.decode()
    cards: list[dict[str, Any]] = orjson.loads(completed.stdout)
    return cards


@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "zh-hans"])
def test_a_live_card_equals_the_servers_card(language: str):
    items = [*ITEMS, *recorded()]
    catalogue = "" if language == "en" else Client().get(f"/texts/{language}/x.js").text
    for item, live in zip(items, live_cards(items, catalogue), strict=True):
        with translation.override(language):
            card = card_of(item)
        for name in ("title", "query", "code", "error"):
            assert live[name] == card[name], (name, item)
        stopped = {"incomplete": "cancelled"}
        assert live["state"] == stopped.get(card["state"], card["state"])
        assert named(live["results"]) == named(card["results"]), item


def test_a_card_is_in_the_readers_language():
    with translation.override("de"):
        titles = [card_of(item)["title"] for item in ITEMS]
    assert {"Im Web gesucht", "Seite geöffnet", "f von s aufgerufen"} <= set(titles)


def named(results: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Those that have a name; what they hold is shown at the end."""
    links = [(found.get("title", ""), found.get("url", "")) for found in results]
    return [found for found in links if any(found)]


@pytest.mark.parametrize("junk", [None, [], "x", 7, {"a": []}, [None]])
def test_fields_that_make_no_sense_do_no_harm(junk: Any):
    names = ("action", "actions", "output", "arguments", "error", "results", "tools")
    names = (*names, "queries", "name", "input", "code", "status")
    items = [{"type": i["type"], **dict.fromkeys(names, junk)} for i in ITEMS]
    assert len(live_cards(items)) == len(items)
