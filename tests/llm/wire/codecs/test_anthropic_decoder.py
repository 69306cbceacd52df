from __future__ import annotations

from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import (
    BadRequest,
    BadResponse,
    CutOff,
    LLMError,
    ProviderDown,
    RateLimited,
)
from llm.wire.codecs.anthropic.decoder import PAUSED
from llm.wire.deltas import CloseDelta, FinishDelta, StartDelta, TextDelta
from llm.wire.items import CITED_TEXT
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import ServerSentEvent, SSEDecoder
from tests.llm.claude import (
    CALL,
    CODEC,
    FOUND,
    REDACTED,
    SEARCH,
    START,
    STOP,
    TEXT,
    THOUGHT,
    answered,
    begun,
    built,
    decoded_deltas,
    ended,
    frames,
    piece,
    read,
    stopped,
    streamed,
)

PAGE = {
    "type": "web_search_result_location",
    "url": "https://cats.test/",
    "title": "Cats",
    "cited_text": "Cats purr.",
    "encrypted_index": "aWR4",
}
DOCUMENT = {
    "type": "char_location",
    "cited_text": "Cats purr.",
    "document_index": 1,
    "document_title": "cats.txt",
    "start_char_index": 0,
    "end_char_index": 10,
}
PING = {"type": "ping"}
FALLBACK = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}
EVERYTHING = [
    FALLBACK,
    THOUGHT,
    REDACTED,
    {**TEXT, "text": "Grüße 🐈, "},
    {**TEXT, "text": "Katze.", "citations": [PAGE]},
    SEARCH,
    FOUND,
    {"type": "container_upload", "file_id": "file_1"},
    {"type": "compaction", "content": "So far: cats.", "encrypted_content": "ZW5j"},
    {"type": "mcp_tool_listing", "mcp_server_name": "wiki", "tools": []},
    CALL,
    {**CALL, "id": "toolu_2", "input": {}},
]
STREAM = frames(START, *streamed(*EVERYTHING), ended("tool_use"), STOP)


def types(builder) -> list[str]:
    return [item["type"] for item in builder.output]


def content(builder) -> list[dict]:
    """The blocks that go back: all proofs, in the order of their items."""
    proofs = [builder.proofs.get(item["id"]) or {} for item in builder.output]
    return [block for proof in proofs for block in proof.get("content", ())]


def usage(builder) -> tuple:
    call = builder.call_usage
    return (
        call.input_tokens,
        call.output_tokens,
        call.cached_tokens,
        call.cache_write_tokens,
        call.reasoning_tokens,
    )


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_borders_between_reads_do_not_matter(cuts: set[int]):
    sse, decoder, deltas = SSEDecoder(), CODEC.decoder(), []
    for start, end in pairwise([0, *sorted(cuts), len(STREAM)]):
        for event in sse.feed(STREAM[start:end]):
            deltas += decoder.feed(event)
    assert [*deltas, *decoder.close()] == decoded_deltas(STREAM)


@given(st.integers(0, len(STREAM) - 1))
def test_a_stream_cut_anywhere_is_the_provider_down_or_whole(end: int):
    sse, decoder = SSEDecoder(), CODEC.decoder()
    deltas = [d for event in sse.feed(STREAM[:end]) for d in decoder.feed(event)]
    try:
        deltas += decoder.close()
    except ProviderDown:
        assert not any(isinstance(delta, FinishDelta) for delta in deltas)
    else:
        assert b'"stop_reason":"tool_use"' in STREAM[:end]
        assert deltas == decoded_deltas(STREAM)


def test_the_proofs_together_are_the_content_as_it_came():
    assert content(built(decoded_deltas(STREAM))) == EVERYTHING


def test_a_whole_answer_decodes_as_its_stream():
    streaming, whole = (
        built(decoded_deltas(STREAM)),
        answered(*EVERYTHING, reason="tool_use"),
    )
    for builder in (streaming, whole):
        for item in builder.output:
            builder.proofs[item.pop("id")] = None
    assert whole.output == streaming.output
    assert whole.finish == streaming.finish


def test_items_come_in_the_order_of_their_blocks():
    assert types(built(decoded_deltas(STREAM))) == [
        "reasoning",
        "reasoning",
        "message",
        "web_search_call",
        "code_interpreter_call",  # a file of its container
        "compaction",
        "mcp_list_tools",
        "function_call",
        "function_call",
    ]


def test_the_answering_model_and_its_replacement_are_reported():
    start = decoded_deltas(STREAM)[0]
    assert start == StartDelta("msg_1", "claude-sonnet-5-5-20261001")
    assert built(decoded_deltas(STREAM)).start_delta.model == "b"


class TestText:
    def test_neighbouring_blocks_are_one_message(self):
        builder = read(*streamed(TEXT, {**TEXT, "text": " Again."}))
        [message] = builder.output
        [part] = message["content"]
        assert part["text"] == "Hello. Again."

    def test_a_block_of_another_kind_ends_the_message(self):
        assert types(read(*streamed(TEXT, SEARCH, FOUND, TEXT))) == [
            "message",
            "web_search_call",
            "message",
        ]

    def test_citations_stand_on_their_blocks_text(self):
        cited = {**TEXT, "text": "Cats purr.", "citations": [PAGE, DOCUMENT]}
        [message] = read(*streamed(TEXT, cited)).output
        assert message["content"][0]["annotations"] == [
            {
                "type": "url_citation",
                "url": "https://cats.test/",
                "title": "Cats",
                "start_index": 6,
                "end_index": 16,
                CITED_TEXT: "Cats purr.",
            },
            {
                "type": "file_citation",
                "file_id": "",
                "filename": "cats.txt",
                "index": 1,
                "start_index": 6,
                "end_index": 16,
                CITED_TEXT: "Cats purr.",
            },
        ]

    def test_a_citation_of_nothing_we_know_is_only_sent_back(self):
        odd = {**TEXT, "citations": [{"type": "moon_location"}]}
        builder = read(*streamed(odd))
        assert builder.output[0]["content"][0]["annotations"] == []
        assert content(builder) == [odd]

    def test_an_empty_block_is_no_message(self):
        builder = read(*streamed({**TEXT, "text": ""}))
        assert builder.output == []
        assert builder.proofs == {}

    def test_a_message_that_is_cut_has_no_proof(self):
        begin = streamed(TEXT, {**TEXT, "text": "More"})[:-2]
        sse, decoder = SSEDecoder(), CODEC.decoder()
        events = sse.feed(frames(START, *begin))
        builder = built([delta for event in events for delta in decoder.feed(event)])
        assert builder.output[0]["content"][0]["text"] == "Hello.Mor"
        assert builder.proofs == {}

    def test_half_a_surrogate_pair_waits_for_the_other(self):
        halves = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta"'
        data = frames(START, begun(0, {"type": "text", "text": ""}))
        for half in (rb"\ud83d", rb"\ude00"):
            data += b"data: " + halves + b',"text":"' + half + b'"}}\n\n'
        builder = built(decoded_deltas(data + frames(stopped(0), ended(), STOP)))
        assert builder.output[0]["content"][0]["text"] == "😀"
        assert (
            orjson.dumps(content(builder)) == '[{"type":"text","text":"😀"}]'.encode()
        )


class TestThinking:
    def test_thinking_is_decoded_as_a_summary(self):
        [item] = read(*streamed(THOUGHT)).output
        assert item["summary"] == [{"type": "summary_text", "text": "Hm."}]

    @pytest.mark.parametrize("block", [{**THOUGHT, "thinking": ""}, REDACTED])
    def test_without_words_is_an_empty_item_with_its_proof(self, block):
        builder = read(*streamed(block))
        [item] = builder.output
        assert (item["type"], item["summary"]) == ("reasoning", [])
        assert content(builder) == [block]

    def test_without_a_signature_is_not_to_be_sent_back(self):
        builder = read(*streamed({**THOUGHT, "signature": ""}))
        assert types(builder) == ["reasoning"]
        assert builder.proofs == {}

    def test_the_last_signature_counts(self):
        events = streamed(THOUGHT)
        events[-1:] = [piece(0, "signature_delta", signature="bmV3"), stopped(0)]
        assert content(read(*events)) == [{**THOUGHT, "signature": "bmV3"}]


class TestCalls:
    def test_a_call_without_arguments_has_an_empty_object(self):
        [call] = read(*streamed({**CALL, "input": {}}), reason="tool_use").output
        assert (call["arguments"], call["status"]) == ("{}", "completed")

    def test_input_may_come_with_the_start(self):
        [call] = read(
            begun(0, CALL),
            piece(0, "input_json_delta", partial_json=""),
            stopped(0),
            reason="tool_use",
        ).output
        assert orjson.loads(call["arguments"]) == {"at": "it"}

    def test_a_receipt_keeps_the_providers_id_and_proof(self):
        block = {**CALL, "caller": {"type": "direct"}, "toolset_name": "computer"}
        builder = read(*streamed(block), reason="tool_use")
        assert builder.output[0]["call_id"] == "toolu_1"
        assert content(builder) == [block]

    @pytest.mark.parametrize("reason", ["max_tokens", "refusal", PAUSED])
    def test_a_call_cut_short_is_never_run(self, reason):
        events = streamed(CALL)
        del events[-2]  # the second half of its input
        builder = read(*events, reason=reason)
        assert builder.output[0]["status"] == "incomplete"
        assert builder.proofs == {}

    @pytest.mark.parametrize("reason", ["tool_use", "end_turn"])
    @pytest.mark.parametrize("arguments", ['{"at": "it"', "{'at': 'it'}", "{}{}"])
    def test_an_unparsable_call_counts_once_the_host_ends_the_answer(
        self, arguments, reason
    ):
        good = {**CALL, "id": "toolu_2"}
        builder = read(
            begun(0, CALL),
            piece(0, "input_json_delta", partial_json=arguments),
            stopped(0),
            begun(1, good),
            stopped(1),
            reason=reason,
        )
        bad, whole = builder.output
        assert (bad["status"], bad["arguments"]) == ("completed", arguments)
        assert whole["status"] == "completed"
        assert list(builder.proofs) == [whole["id"]]

    def test_a_call_that_cannot_be_read_is_none_where_the_stream_breaks_off(self):
        builder, decoder = ResponseBuilder(id="resp_1", model="m"), CODEC.decoder()
        bad = piece(0, "input_json_delta", partial_json='{"at"')
        for event in SSEDecoder().feed(frames(START, begun(0, CALL), bad, stopped(0))):
            builder.feed(list(decoder.feed(event)))
        with pytest.raises(CutOff):
            list(decoder.close())
        builder.end_call(whole=False)
        assert builder.output[0]["status"] == "incomplete"

    def test_an_unterminated_block_ends_with_the_answer(self):
        builder = read(*streamed(TEXT)[:-1])
        assert content(builder) == [TEXT]
        cut = read(*streamed(CALL)[:-2], reason="max_tokens")
        assert cut.output[0]["status"] == "incomplete"

    def test_a_call_without_object_arguments_has_no_proof(self):
        events = streamed({**CALL, "input": {}})
        events.insert(2, piece(0, "input_json_delta", partial_json='"it"'))
        builder = read(*events, reason="tool_use")
        assert builder.output[0]["status"] == "completed"
        assert builder.proofs == {}


class TestHostedTools:
    @pytest.mark.parametrize(
        ("name", "given", "result", "expected"),
        [
            (
                "web_search",
                {"query": "cats"},
                FOUND["content"],
                {
                    "type": "web_search_call",
                    "action": {
                        "type": "search",
                        "query": "cats",
                        "sources": [
                            {
                                "type": "url",
                                "url": "https://cats.test/",
                                "title": "Cats",
                            }
                        ],
                    },
                },
            ),
            (
                "web_search",
                {"query": "cats"},
                {"type": "web_search_tool_result_error", "error_code": "unavailable"},
                {
                    "type": "web_search_call",
                    "action": {"type": "search", "query": "cats"},
                    "status": "failed",
                },
            ),
            (
                "web_fetch",
                {"url": "https://cats.test"},
                {"type": "web_fetch_result", "url": "https://cats.test/home"},
                {
                    "type": "web_search_call",
                    "action": {"type": "open_page", "url": "https://cats.test/home"},
                },
            ),
            (
                "code_execution",
                {"code": "print(1)"},
                {"type": "code_execution_result", "stdout": "1\n", "stderr": ""},
                {
                    "type": "code_interpreter_call",
                    "code": "print(1)",
                    "outputs": [{"type": "logs", "logs": "1\n"}],
                },
            ),
            (
                "code_execution",
                {"code": "plot()"},
                {
                    "type": "code_execution_result",
                    "stdout": "1\n",
                    "stderr": "",
                    "return_code": 1,
                    "content": [{"type": "code_execution_output", "file_id": "file_1"}],
                },
                {
                    "type": "code_interpreter_call",
                    "outputs": [{"type": "logs", "logs": "1\n[file file_1]\n"}],
                    "status": "failed",
                },
            ),
            (
                "bash_code_execution",
                {"command": "ls"},
                {"type": "bash_code_execution_tool_result_error", "error_code": "late"},
                {
                    "type": "code_interpreter_call",
                    "code": "ls",
                    "outputs": [{"type": "logs", "logs": "late"}],
                    "status": "failed",
                },
            ),
            (
                "text_editor_code_execution",
                {"command": "view", "path": "/a"},
                {"type": "text_editor_code_execution_view_result", "content": "text"},
                {
                    "type": "code_interpreter_call",
                    "code": '{"command":"view","path":"/a"}',
                    "outputs": [{"type": "logs", "logs": "text"}],
                },
            ),
            (
                "advisor",
                {},
                {"type": "advisor_result", "text": "Ship it."},
                {
                    "type": "mcp_call",
                    "server_label": "anthropic",
                    "name": "advisor",
                    "arguments": "{}",
                    "output": "Ship it.",
                    "error": None,
                },
            ),
        ],
    )
    def test_call_and_result_are_one_receipt(self, name, given, result, expected):
        called = {**SEARCH, "name": name, "input": given}
        block = {**FOUND, "type": f"{name}_tool_result", "content": result}
        builder = read(*streamed(called, block))
        [item] = builder.output
        assert {key: item[key] for key in expected} == expected
        assert expected.get("status", "completed") == item["status"]
        assert content(builder) == [called, block]

    def test_a_file_of_the_container_is_a_receipt(self):
        block = {"type": "container_upload", "file_id": "file_9"}
        builder = read(*streamed(block))
        [item] = builder.output
        assert item["outputs"] == [{"type": "logs", "logs": "[file file_9]\n"}]
        assert content(builder) == [block]

    @pytest.mark.parametrize("failed", [False, True])
    def test_an_mcp_server_is_named(self, failed):
        called = {**SEARCH, "type": "mcp_tool_use", "server_name": "wiki"}
        result = {
            "type": "mcp_tool_result",
            "tool_use_id": SEARCH["id"],
            "is_error": failed,
            "content": [{"type": "text", "text": "Cats purr."}],
        }
        [item] = read(*streamed(called, result)).output
        assert (item["type"], item["server_label"]) == ("mcp_call", "wiki")
        assert item["error" if failed else "output"] == "Cats purr."
        assert item["output" if failed else "error"] is None
        assert item["status"] == ("failed" if failed else "completed")

    def test_results_may_come_in_any_order(self):
        first, second = SEARCH, {**SEARCH, "id": "srvtoolu_2"}
        late = {**FOUND, "tool_use_id": "srvtoolu_2", "content": []}
        blocks = [first, second, late, TEXT, FOUND]
        builder = read(*streamed(*blocks))
        assert types(builder) == ["web_search_call", "web_search_call", "message"]
        assert [len(i["action"]["sources"]) for i in builder.output[:2]] == [1, 0]
        assert content(builder) == blocks

    def test_they_are_never_calls_of_ours(self):
        builder = read(*streamed(SEARCH), reason="tool_use")
        assert types(builder) == ["web_search_call"]

    def test_a_pause_leaves_the_call_open_and_reports_it(self):
        builder = read(*streamed(TEXT, SEARCH), reason=PAUSED)
        assert builder.output[1]["status"] == "incomplete"
        assert builder.finish == FinishDelta("pause", PAUSED)
        assert content(builder) == [TEXT, SEARCH]

    def test_after_a_pause_the_result_comes_alone(self):
        builder = read(*streamed(FOUND, TEXT))
        assert types(builder) == ["web_search_call", "message"]
        assert builder.output[0]["action"]["sources"]
        assert content(builder) == [FOUND, TEXT]

    def test_the_container_goes_back_with_the_last_item(self):
        container = {"id": "container_1", "expires_at": "2026-12-01T00:00:00Z"}
        builder = read(*streamed(SEARCH, FOUND, TEXT), container=container)
        last = builder.proofs[builder.output[-1]["id"]]
        assert last == {"content": [TEXT], "container": "container_1"}


class TestOtherBlocks:
    def test_a_block_we_do_not_know_goes_back_where_it_stood(self):
        odd = {"type": "poem", "lines": ["Roses"]}
        blocks = [odd, TEXT, odd, CALL, odd]
        builder = read(*streamed(*blocks), reason="tool_use")
        assert types(builder) == ["message", "function_call"]
        assert content(builder) == blocks

    def test_one_that_came_in_pieces_we_do_not_know_stays_out(self):
        odd = [begun(0, {"type": "poem"}), piece(0, "line_delta", line="Roses")]
        assert content(read(*odd, stopped(0), *_shifted(streamed(TEXT)))) == [TEXT]

    def test_a_compaction_comes_in_pieces(self):
        block = {"type": "compaction", "content": None}
        delta_event = piece(
            0, "compaction_delta", content="So far.", encrypted_content="eA"
        )
        builder = read(begun(0, block), delta_event, stopped(0))
        [item] = builder.output
        assert (item["type"], item["encrypted_content"]) == ("compaction", "eA")
        whole = {"type": "compaction", "content": "So far.", "encrypted_content": "eA"}
        assert content(builder) == [whole]

    def test_unknown_events_and_deltas_are_ignored(self):
        events = [PING, {"type": "weather"}, *streamed(TEXT)]
        events.insert(4, piece(0, "mood_delta", mood="fine"))
        assert types(read(*events)) == ["message"]


class TestUsage:
    def test_input_includes_what_the_cache_read_and_wrote(self):
        builder = read(
            usage={
                "input_tokens": 1,
                "cache_read_input_tokens": 20,
                "cache_creation_input_tokens": 300,
                "output_tokens": 5,
                "output_tokens_details": {"thinking_tokens": 4},
            }
        )
        assert usage(builder) == (321, 5, 20, 300, 4)

    def test_the_last_count_that_is_not_null_counts(self):
        builder = read(
            ended(None, usage={"output_tokens": 3}),
            usage={"input_tokens": None, "output_tokens": 7},
        )
        assert usage(builder) == (10, 7, None, None, None)
        assert builder.call_usage.raw == {"input_tokens": 10, "output_tokens": 7}

    def test_a_lost_stream_keeps_its_first_count(self):
        [event] = SSEDecoder().feed(frames(START))
        assert usage(built(list(CODEC.decoder().feed(event))))[:2] == (10, 1)

    def test_openrouters_cost_is_recorded(self):
        assert read(usage={"cost": 0.25}).call_usage.cost == 0.25


class TestEnding:
    @pytest.mark.parametrize(
        ("reason", "expected"),
        [
            ("end_turn", "stop"),
            ("stop_sequence", "stop"),
            ("compaction", "stop"),
            ("something_new", "stop"),
            ("pause_turn", "pause"),
            ("tool_use", "tool_calls"),
            ("max_tokens", "length"),
            ("model_context_window_exceeded", "length"),
            ("refusal", "content_filter"),
        ],
    )
    def test_each_reason_is_one_of_ours(self, reason, expected):
        builder = read(*streamed(TEXT), reason=reason)
        assert builder.finish == FinishDelta(expected, reason)

    def test_a_refusal_without_a_word_is_explained(self):
        details = {"type": "refusal", "category": "cyber", "explanation": "No."}
        [item] = read(reason="refusal", stop_details=details).output
        assert item["content"] == [{"type": "refusal", "refusal": "No."}]

    def test_or_in_a_plain_message_without_details(self):
        [item] = answered(reason="refusal").output
        [part] = item["content"]
        assert part["refusal"] == "The model declined to answer this request."

    def test_a_refusal_amid_the_words_is_explained_behind_them(self):
        details = {"type": "refusal", "category": "cyber", "explanation": "No."}
        builder = read(*streamed(TEXT), reason="refusal", stop_details=details)
        *_, item = builder.output
        assert types(builder) == ["message", "message"]
        assert item["content"] == [{"type": "refusal", "refusal": "No."}]

    def test_a_refusal_after_words_adds_none(self):
        [item] = read(*streamed(TEXT), reason="refusal").output
        assert [part["type"] for part in item["content"]] == ["output_text"]

    def test_the_bytes_may_end_after_the_reason(self):
        deltas = decoded_deltas(frames(START, *streamed(TEXT), ended()))
        assert deltas[-1] == FinishDelta("stop", "end_turn")

    def test_they_may_not_end_before_it(self):
        with pytest.raises(ProviderDown):
            decoded_deltas(frames(START, *streamed(TEXT), ended(None)))

    def test_nothing_is_decoded_after_the_end(self):
        whole = frames(START, *streamed(TEXT), ended(), STOP)
        junk = b"event: data\ndata: [DONE]\n\n" + frames(*streamed(TEXT))
        assert decoded_deltas(whole + junk) == decoded_deltas(whole)

    def test_an_empty_answer_is_an_answer(self):
        assert read().output == []
        assert answered().output == []


class TestErrors:
    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("overloaded_error", ProviderDown),
            ("api_error", ProviderDown),
            ("rate_limit_error", RateLimited),
            ("invalid_request_error", BadRequest),
        ],
    )
    def test_an_error_inside_the_stream_is_ours(self, kind, expected):
        error = {
            "type": "error",
            "error": {"type": kind, "message": "Sorry"},
            "request_id": "req_1",
        }
        with pytest.raises(expected) as raised:
            decoded_deltas(frames(START, *streamed(TEXT), error))
        assert (raised.value.upstream_type, raised.value.request_id) == (kind, "req_1")
        assert raised.value.detail == "Sorry"

    def test_in_an_answer_of_200_too(self):
        error = {"type": "error", "error": {"type": "overloaded_error"}}
        with pytest.raises(ProviderDown):
            list(CODEC.decode(orjson.dumps(error)))

    def test_an_error_that_is_no_json_is_still_one(self):
        with pytest.raises(LLMError) as raised:
            decoded_deltas(b"event: error\ndata: upstream is overloaded\n\n")
        assert raised.value.detail == "upstream is overloaded"

    @pytest.mark.parametrize("data", [b"not json", b"[1]"])
    def test_an_event_that_is_no_object_is_a_bad_response(self, data):
        with pytest.raises(BadResponse):
            CODEC.decoder().feed(ServerSentEvent(data))


@pytest.mark.parametrize("name", ["ping", "keepalive"])
def test_events_that_nobody_reads_need_be_no_json(name):
    idle = f"event: {name}\ndata: keep\n\n".encode()
    events = [START, *streamed(TEXT), ended()]
    stream = frames(*events[:2]) + idle + frames(*events[2:])
    assert decoded_deltas(stream) == decoded_deltas(frames(*events))


class TestCopiesOfTheApi:
    """Other hosts' Messages, which the SDK reads."""

    def test_text_may_follow_the_end_of_its_block(self):
        late = [piece(0, "text_delta", text=text) for text in (" and", " more")]
        builder = read(*streamed({"type": "text", "text": "Hi"}), *late)
        [item] = builder.output
        assert item["content"][0]["text"] == "Hi and more"
        assert "".join(block["text"] for block in content(builder)) == "Hi and more"

    def test_text_after_a_call_is_an_item_of_its_own(self):
        stream = [*streamed({"type": "text", "text": "A"}, CALL)]
        late = [piece(0, "text_delta", text="B"), stopped(0)]
        deltas = decoded_deltas(frames(START, *stream, *late, ended(), STOP))
        closed = [delta.key for delta in deltas if isinstance(delta, CloseDelta)]
        assert len(closed) == len(set(closed)) == 3
        texts = [d.text for d in deltas if isinstance(d, TextDelta) and d.key == 0]
        assert texts == ["A"]

    def test_text_needs_no_block(self):
        [item] = read(piece(0, "text_delta", text="Hi")).output
        assert item["content"][0]["text"] == "Hi"

    def test_an_input_without_its_call_is_a_bad_response(self):
        late = piece(0, "input_json_delta", partial_json="{}")
        with pytest.raises(BadResponse):
            read(*streamed(CALL), late)

    @pytest.mark.parametrize("id", [None, ""])
    def test_a_call_without_an_id_gets_one(self, id):
        builder = read(*streamed({**CALL, "id": id}), reason="tool_use")
        [item] = builder.output
        assert item["call_id"]
        assert item["status"] == "completed"
        assert builder.proofs == {}

    @pytest.mark.parametrize(
        "odd",
        [
            [{"type": "content_block_start", "index": 5, "content_block": None}],
            [begun(5, {"text": "x"}), stopped(5)],
            [begun(5, {**SEARCH, "name": None}), stopped(5)],
            [begun(5, {"type": "server_tool_use", "input": {}}), stopped(5)],
            [piece(0, "")],
            [{**piece(0, ""), "delta": {}}],
            [{**ended(None), "delta": {"container": "c", "stop_details": "x"}}],
        ],
    )
    def test_odd_decorations_cost_no_text(self, odd):
        builder = read(*streamed(TEXT), *odd)
        assert builder.output[0]["content"][0]["text"] == TEXT["text"]

    def test_a_null_citation_or_block_costs_no_text(self):
        builder = answered(None, {**TEXT, "citations": [None, PAGE]})
        [part] = builder.output[0]["content"]
        assert part["text"] == TEXT["text"]
        assert len(part["annotations"]) == 1


def test_a_delta_is_decoded_directly():
    sse, decoder = SSEDecoder(), CODEC.decoder()
    events = sse.feed(frames(START, *streamed(TEXT, CALL)))
    deltas = [list(decoder.feed(event)) for event in events]
    assert [TextDelta(0, "H")] in deltas
    assert any(CloseDelta(0) in each for each in deltas)


def _shifted(events):
    return [{**event, "index": event["index"] + 1} for event in events]
