"""What a client returns of earlier answers, for a host of another API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from llm.errors import BadRequest
from llm.wire.codec import Codec
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.facades import (
    chat_request,
    generate_content_request,
    messages_request,
    responses_request,
)
from llm.wire.facades.body_checks import check_chat, check_messages, check_responses
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.items import Issuer, Item, new_id
from llm.wire.request import Request

#: LiteLLM adds Gemini's signature to the id of a call.
LONG_ID = "call_abc__thought__" + "Q" * 3000
CODECS = [
    AnthropicCodec(),
    GeminiCodec(),
    OpenAIChatCodec(),
    OpenAIResponsesCodec(),
]


def of_chat(id: str) -> Request:
    call = {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": "found"},
    ]
    return chat_request.request_of({"model": "m", "messages": messages})


def of_messages(id: str) -> Request:
    call = {"type": "tool_use", "id": id, "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": id, "content": "found"}
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    return messages_request.request_of(
        {"model": "m", "max_tokens": 9, "messages": messages}
    )


def of_responses(id: str) -> Request:
    entries = [
        {"role": "user", "content": "?"},
        {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": id, "output": "found"},
    ]
    return responses_request.request_of({"model": "m", "input": entries})


def ids_of(items: Sequence[Item]) -> list[str]:
    return [item["call_id"] for item in items if "call_id" in item]


READERS = pytest.mark.parametrize("read", [of_chat, of_messages, of_responses])


@READERS
def test_a_long_call_id_stays_that_of_its_output(read):
    assert ids_of(read(LONG_ID).items) == [LONG_ID, LONG_ID]


@READERS
def test_every_host_gets_the_output_of_a_call_with_a_long_id(read):
    request = read(LONG_ID)
    call, result = AnthropicCodec().encode(request)["messages"][-2:]
    assert call["content"][0]["id"] == result["content"][0]["tool_use_id"]
    assert "is_error" not in result["content"][0]
    called, output = OpenAIChatCodec().encode(request)["messages"][-2:]
    assert called["tool_calls"][0]["id"] == output["tool_call_id"]
    called, output = OpenAIResponsesCodec().encode(request)["input"][-2:]
    assert called["call_id"] == output["call_id"]
    assert len(output["call_id"]) <= 64
    answered = GeminiCodec().encode(request)["contents"][-1]["parts"]
    assert answered == [
        {"functionResponse": {"name": "f", "response": {"output": "found"}}}
    ]


def output_of(content: Any) -> Any:
    result = {"type": "tool_result", "tool_use_id": "t1", "is_error": True}
    turn = {"role": "user", "content": [{**result, "content": content}]}
    body = {"model": "m", "max_tokens": 9, "messages": [turn]}
    return messages_request.request_of(body).items[0]["output"]


def test_a_failed_result_keeps_the_picture_before_its_text():
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    text = {"type": "text", "text": "boom"}
    assert output_of([{"type": "image", "source": source}, text]) == [
        {"type": "input_text", "text": "Error: "},
        {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        {"type": "input_text", "text": "boom"},
    ]
    assert output_of([text]) == [{"type": "input_text", "text": "Error: boom"}]


def equal_ids(id: str) -> list[Request]:
    """Histories in which two calls of one round have the same id, by their APIs."""
    arguments = ['{"n": 1}', '{"n": 2}']
    calls = [
        {"id": id, "type": "function", "function": {"name": "f", "arguments": each}}
        for each in arguments
    ]
    chat = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": id, "content": "one"},
        {"role": "tool", "tool_call_id": id, "content": "two"},
    ]
    uses = [
        {"type": "tool_use", "id": id, "name": "f", "input": orjson.loads(each)}
        for each in arguments
    ]
    results = [
        {"type": "tool_result", "tool_use_id": id, "content": each}
        for each in ("one", "two")
    ]
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
    ]
    entries = [
        {"role": "user", "content": "?"},
        *(
            {"type": "function_call", "call_id": id, "name": "f", "arguments": each}
            for each in arguments
        ),
        *(
            {"type": "function_call_output", "call_id": id, "output": each}
            for each in ("one", "two")
        ),
    ]
    parts = [
        {"functionCall": {"id": id, "name": "f", "args": orjson.loads(each)}}
        for each in arguments
    ]
    answers = [
        {"functionResponse": {"id": id, "name": "f", "response": {"output": each}}}
        for each in ("one", "two")
    ]
    contents = [
        {"role": "user", "parts": [{"text": "?"}]},
        {"role": "model", "parts": parts},
        {"role": "user", "parts": answers},
    ]
    return [
        chat_request.request_of({"model": "m", "messages": chat}),
        messages_request.request_of({"model": "m", "messages": messages}),
        responses_request.request_of({"model": "m", "input": entries}),
        generate_content_request.request_of({"contents": contents}, "m"),
    ]


@pytest.mark.parametrize("id", ["call_0", ""])
@pytest.mark.parametrize("codec", CODECS)
def test_calls_of_one_id_have_their_own_outputs(codec: Codec, id: str):
    for request in equal_ids(id):
        calls = [i["call_id"] for i in request.items if i["type"] == "function_call"]
        outputs = {
            item["call_id"]: orjson.dumps(item["output"])
            for item in request.items
            if item["type"] == "function_call_output"
        }
        first, second = calls
        assert b"one" in outputs[first]
        assert b"two" in outputs[second]
        sent = orjson.dumps(codec.encode(request))
        assert b"not run" not in sent


VIDEO = "data:video/mp4;base64,AAAA"


@pytest.mark.parametrize(
    ("url", "codec", "sent"),
    [
        (VIDEO, OpenAIChatCodec(), b'"video_url":{"url":"data:video/mp4;base64,AAAA"}'),
        (
            "https://youtu.be/abc",
            OpenAIChatCodec(),
            b'"video_url":{"url":"https://youtu.be/abc"}',
        ),
        (VIDEO, GeminiCodec(), b'"inlineData":{"mimeType":"video/mp4","data":"AAAA"}'),
        (
            "https://x.test/a.webm?b=c",
            GeminiCodec(),
            b'{"mimeType":"video/webm","fileUri":"https://x.test/a.webm?b=c"}',
        ),
        (
            "https://youtu.be/abc",
            GeminiCodec(),
            b'{"mimeType":"video/mp4","fileUri":"https://youtu.be/abc"}',
        ),
    ],
)
def test_a_video_reaches_hosts_that_take_videos(url: str, codec: Codec, sent: bytes):
    assert sent in orjson.dumps(codec.encode(chat_request.request_of(of_video(url))))


@pytest.mark.parametrize("url", [VIDEO, "https://x.test/a.mp4"])
def test_another_host_says_what_to_send_instead_of_a_video(url: str):
    with pytest.raises(BadRequest, match=r"send a PDF|send pictures"):
        AnthropicCodec().encode(chat_request.request_of(of_video(url)))


@pytest.mark.parametrize("codec", [AnthropicCodec(), GeminiCodec(), OpenAIChatCodec()])
@pytest.mark.parametrize("data", [{}, {"file_data": ""}])
def test_a_name_of_a_video_without_the_video_is_refused(codec: Codec, data: Any):
    part = {"type": "file", "file": {"filename": "a.mp4", **data}}
    body = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    with pytest.raises(BadRequest):
        codec.encode(chat_request.request_of(body))


def test_a_video_of_unknown_type_is_sent_as_a_video():
    url = "data:application/octet-stream;base64,AAAA"
    sent = OpenAIChatCodec().encode(chat_request.request_of(of_video(url)))
    assert sent["messages"][-1]["content"] == [
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
    ]


def of_video(url: str) -> dict[str, Any]:
    part = {"type": "video_url", "video_url": {"url": url}}
    body = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    check_chat(body)
    return body


@pytest.mark.parametrize("codec", [AnthropicCodec(), GeminiCodec(), OpenAIChatCodec()])
def test_a_file_by_the_id_of_another_host_is_to_be_sent_itself(codec: Codec):
    part = {"type": "file", "file": {"file_id": "file-abc"}}
    body = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    with pytest.raises(BadRequest, match="by its id; send"):
        codec.encode(chat_request.request_of(body))


def test_many_calls_of_one_id_are_numbered_once():
    calls = [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ] * 999
    body = {"model": "m", "messages": [{"role": "assistant", "tool_calls": calls}]}
    items = chat_request.request_of(body).items
    assert len({item["call_id"] for item in items}) == 999


@pytest.mark.parametrize("wrong", [[1, 2], "Paris", 5])
def test_a_call_whose_input_is_no_object_does_not_end_a_conversation(wrong: Any):
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": wrong}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "found"}
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ],
    }
    check_messages(body)
    request = messages_request.request_of(body)
    expected = {**call, "input": {"_raw": wrong}}
    assert AnthropicCodec().encode(request)["messages"][1]["content"] == [expected]
    fields = {**body, "max_tokens": 9}
    forwarded = ForwardedBody(api="anthropic", fields=fields, convert=lambda _: None)
    sent = AnthropicCodec().forward(Request(model="m", items=(), forwarded=forwarded))
    assert sent["messages"][1]["content"] == [expected]


@READERS
def test_a_long_id_is_written_alike_in_every_request(read):
    """Otherwise the host would find nothing in its cache of prompts."""
    first, second = (OpenAIChatCodec().encode(read(LONG_ID)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("kind", ["input_text", "text", "output_text"])
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_an_answer_reaches_every_host_whatever_its_parts_are_called(
    codec: Codec, kind: str
):
    body = {
        "model": "m",
        "input": [
            {"role": "user", "content": "My name?"},
            {"role": "assistant", "content": [{"type": kind, "text": "It is Bob"}]},
            {"role": "user", "content": "Again?"},
        ],
    }
    check_responses(body)
    sent = orjson.dumps(codec.encode(responses_request.request_of(body)))
    assert b"It is Bob" in sent


def test_the_own_host_gets_parts_that_it_takes_in_an_answer():
    part = {"type": "input_text", "text": "It is Bob"}
    turns = [
        {"role": "user", "content": "My name?"},
        {"role": "assistant", "content": [part]},
        {"role": "user", "content": "Again?"},
    ]
    issuer: Issuer = {"provider": "openai", "model": "m", "route": "1:1"}
    body = {"model": "m", "input": turns}
    request = responses_request.request_of(body, issuer=issuer)
    _, answer, _ = OpenAIResponsesCodec().encode(request)["input"]
    assert answer["content"] in ("It is Bob", [{**part, "type": "output_text"}])


def compacted(**fields: str) -> Request:
    """After a compaction a client of Anthropic may drop everything before it."""
    summary = {"type": "compaction", **fields}
    messages = [
        {"role": "assistant", "content": [summary]},
        {"role": "user", "content": "go"},
    ]
    body = {"model": "m", "max_tokens": 9, "messages": messages}
    check_messages(body)
    return messages_request.request_of(body)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_the_summary_of_a_compaction_reaches_every_host(codec: Codec):
    sent = codec.encode(compacted(content="We chose red.", encrypted_content="ZW5j"))
    text = orjson.dumps(sent)
    assert b"Summary of the conversation so far:\\n\\nWe chose red." in text
    assert b"ZW5j" not in text


def test_a_compaction_that_only_its_host_reads_is_refused():
    """The client may have dropped all that it replaces."""
    with pytest.raises(BadRequest, match="only be read by the provider"):
        compacted(encrypted_content="ZW5j")


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_stored_one_does_not_end_its_conversation(codec: Codec):
    """All that it replaces is still there."""
    fields = {"id": new_id("cmp"), "encrypted_content": "ZW5j"}
    items = [
        {"role": "user", "content": "We chose red."},
        {"type": "compaction", **fields},
        {"role": "user", "content": "go"},
    ]
    sent = orjson.dumps(codec.encode(Request(model="m", items=items)))
    assert b"We chose red." in sent
    assert b"ZW5j" not in sent


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_a_compaction_that_failed_replaces_nothing(codec: Codec):
    assert b"Summary" not in orjson.dumps(codec.encode(compacted()))


def test_the_own_host_gets_the_compaction_as_it_was():
    block = {"type": "compaction", "content": "So.", "encrypted_content": "ZW5j"}
    issuer: Issuer = {"provider": "anthropic", "model": "m", "route": "1:1"}
    turn = {"role": "assistant", "content": [block]}
    turns = [turn, {"role": "user", "content": "go"}]
    body = {"model": "m", "max_tokens": 9, "messages": turns}
    request = messages_request.request_of(body, issuer=issuer)
    assert AnthropicCodec().encode(request)["messages"][1]["content"] == [block]


def test_no_host_of_responses_gets_an_id_that_only_this_server_knows():
    """It would look for the item, and refuse the request."""
    call = {"type": "server_tool_use", "id": "s1", "name": "web_search"}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    listing = {"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": []}
    text = {"type": "text", "text": "So it is."}
    turns = [
        {"role": "user", "content": "?"},
        {
            "role": "assistant",
            "content": [{**call, "input": {"query": "q"}}, found, listing, text],
        },
        {"role": "user", "content": "go"},
    ]
    body = {"model": "m", "max_tokens": 9, "messages": turns}
    sent = OpenAIResponsesCodec().encode(messages_request.request_of(body))["input"]
    assert [item["type"] for item in sent] == ["message"] * 3
    assert not any("id" in item for item in sent)


def test_a_receipt_with_an_id_of_its_host_is_sent():
    search = {"type": "web_search_call", "id": "ws_68ab", "status": "completed"}
    items = [{"role": "user", "content": "?"}, search]
    sent = OpenAIResponsesCodec().encode(Request(model="m", items=items))["input"]
    assert sent[1] == search


def test_an_approval_is_left_out_with_its_request():
    asked = {"type": "mcp_approval_request", "id": new_id("mcpr"), "name": "f"}
    given = {"type": "mcp_approval_response", "approval_request_id": asked["id"]}
    items = [{"role": "user", "content": "?"}, asked, {**given, "approve": True}]
    sent = OpenAIResponsesCodec().encode(Request(model="m", items=items))["input"]
    assert [item["type"] for item in sent] == ["message"]


def test_a_clients_text_does_not_begin_inside_of_reasoning():
    codec = OpenAIChatCodec(think_tags=True, think_begun=True)
    body = {"model": "m", "messages": [{"role": "assistant", "content": "Yes."}]}
    [item] = chat_request.request_of(body, codec).items
    assert item["type"] == "message"
