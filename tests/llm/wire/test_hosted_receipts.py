"""Receipts of hosted tools, from real traffic and from events of only a few hosts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from llm.management.commands.replay_recordings import endpoint_of
from llm.wire.codecs.gemini.hosted_results import Receipts
from llm.wire.codecs.openai_chat.hosted_results import receipt_of
from llm.wire.items import Issuer, Item, message, user_message
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import SSEDecoder
from tests.llm.hosts import route_at

ROOT = Path(__file__).parents[3]
FOLDER = Path(
    os.environ.get("RECORDINGS_DIR", ROOT.parent / "shared" / "recordings" / "open")
)
ISSUER: Issuer = {"provider": "p", "model": "m", "route": "1:1"}


def read(id: str) -> tuple[ResponseBuilder, Any]:
    path = FOLDER / f"{id}.json"
    if not path.exists():
        pytest.skip("no such recording here; set RECORDINGS_DIR")
    recording = orjson.loads(path.read_bytes())
    endpoint = endpoint_of(recording)
    assert endpoint
    body = recording["response"]["body_text"].encode()
    builder = ResponseBuilder(id="r", model="m")
    builder.begin_call()
    if recording["stream"]:
        sse, decoder = SSEDecoder(), endpoint.codec.decoder()
        for event in [*sse.feed(body), *sse.close()]:
            builder.feed(list(decoder.feed(event)))
        builder.feed(list(decoder.close()))
    else:
        builder.feed(list(endpoint.codec.decode(body)))
    builder.end_call()
    return builder, endpoint.codec


def first(id: str, type: str) -> Item:
    return next(item for item in read(id)[0].output if item["type"] == type)


def cited(builder: ResponseBuilder) -> list[dict[str, Any]]:
    return [
        annotation
        for item in builder.output
        if item["type"] == "message"
        for part in item["content"]
        for annotation in part["annotations"]
    ]


@pytest.mark.parametrize(
    "id",
    [
        "anthropic-messages-json-200-c0382a380a0f",
        "anthropic-messages-stream-200-8ad94df7b414",
        "gemini-generatecontent-stream-200-81cf0e68b9ca",
        "groq-chat-json-200-185aed180006",
    ],
)
def test_a_search_has_its_query_and_titled_sources(id: str):
    action = first(id, "web_search_call")["action"]
    assert action["query"]
    assert all(source["url"].startswith("http") for source in action["sources"])
    assert any(source.get("title") for source in action["sources"])


@pytest.mark.parametrize(
    "id",
    [
        "anthropic-messages-json-200-c0382a380a0f",
        "azure-responses-json-200-39fd3efad74a",
        "openai-responses-stream-200-e1d022373ca1",
        "openrouter-chat-json-200-b56c6b07a171",
        "perplexity-chat-json-200-e83af4ae489f",
        "gemini-generatecontent-stream-200-81cf0e68b9ca",
    ],
)
def test_sources_of_a_search_are_cited_in_the_text(id: str):
    found = cited(read(id)[0])
    assert found
    assert {annotation["type"] for annotation in found} == {"url_citation"}
    assert all(annotation["url"].startswith("http") for annotation in found)


@pytest.mark.parametrize(
    "id",
    [
        "gemini-generatecontent-json-200-aad65bff1dd7",
        "gemini-generatecontent-stream-200-8f58b87ebf5c",
    ],
)
def test_googles_file_search_has_its_results(id: str):
    item = first(id, "file_search_call")
    assert item["status"] == "completed"
    assert "Paris is the capital" in item["results"][0]["text"]
    assert item["results"][0]["attributes"]["source_url"].startswith("https://")


def test_a_file_search_without_a_part_of_its_own_is_decoded():
    chunks = [{"retrievedContext": {"title": "a.txt", "text": "Yes."}}]
    [(_, item)] = Receipts().of_file_searches({"groundingChunks": chunks})
    assert item["results"][0]["filename"] == "a.txt"
    assert list(Receipts().of_file_searches({"groundingChunks": [{"web": {}}]})) == []


def test_groqs_search_is_one_item_though_reported_twice():
    builder, _ = read("groq-chat-stream-200-dea1a9649734")
    kinds = [item["type"] for item in builder.output]
    assert kinds.count("web_search_call") == 1
    assert first("groq-chat-stream-200-dea1a9649734", "web_search_call")["action"][
        "query"
    ].startswith("What is the weather")


@pytest.mark.parametrize(
    ("entry", "expected", "whole"),
    [
        (
            {"type": "python", "arguments": '{"code": "1+1"}', "output": "2\n"},
            {"type": "code_interpreter_call", "code": "1+1"},
            True,
        ),
        (
            {"type": "visit", "arguments": '{"url": "https://a.test"}'},
            {"action": {"type": "open_page", "url": "https://a.test"}},
            False,
        ),
        (
            {"type": "browser.search", "arguments": '{"query": "a"}', "output": ""},
            {"action": {"type": "search", "query": "a"}},
            True,
        ),
        (
            {"type": "wolfram", "arguments": "broken", "output": "42"},
            {"type": "mcp_call", "server_label": "groq", "output": "42"},
            True,
        ),
    ],
)
def test_groqs_tools(entry: dict[str, Any], expected: dict[str, Any], whole: bool):
    item, is_whole = receipt_of(entry)
    assert {name: item[name] for name in expected} == expected
    assert is_whole is whole


def test_an_approval_returns_to_its_issuer_with_its_id():
    builder, codec = read("openai-responses-stream-200-d0405b8f0750")
    items = [
        {**i, "provider_data": {"issuer": ISSUER, "raw": builder.proofs[i["id"]]}}
        for i in builder.output
    ]
    approval_request = next(i for i in items if i["type"] == "mcp_approval_request")
    answer = {
        "type": "mcp_approval_response",
        "id": "ours",
        "approval_request_id": approval_request["id"],
        "approve": True,
    }
    question = {"type": "message", "role": "user", "content": "Shorten it."}

    def sent_to(issuer: Issuer | None) -> list[Item]:
        request = Request(
            model="gpt-5", items=[question, *items, answer], issuer=issuer
        )
        return codec.encode(request)["input"]

    assert sent_to(ISSUER)[-1] == {
        "type": "mcp_approval_response",
        "approval_request_id": approval_request["provider_data"]["raw"]["id"],
        "approve": True,
    }
    assert approval_request["id"] != approval_request["provider_data"]["raw"]["id"]
    assert "mcp_approval_response" not in {item["type"] for item in sent_to(None)}


#: Items of providers' tools that only one wire format has.
UNCOMMON = [
    "apply_patch_call",
    "code_execution_call",
    "program",
    "program_output",
    "shell_call",
    "tool_search_call",
    "tool_search_output",
    "x_search_call",
]


@pytest.mark.parametrize("host", ["anthropic", "gemini", "groq", "openai"])
@pytest.mark.parametrize("kind", UNCOMMON)
def test_another_provider_gets_the_conversation_without_any_receipt(host, kind):
    codec = route_at(host).endpoint.codec
    proof = {"issuer": {**ISSUER, "provider": "xai"}, "raw": {"type": kind}}
    receipt = {"type": kind, "id": "x_1", "status": "completed", "provider_data": proof}
    rest = [user_message("Hi"), message("assistant", "So."), user_message("And?")]
    bodies = [
        codec.encode(Request(model="m", items=items, issuer=ISSUER))
        for items in (rest, [rest[0], receipt, *rest[1:]])
    ]
    assert bodies[0] == bodies[1]
