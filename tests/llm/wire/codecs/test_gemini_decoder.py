from __future__ import annotations

from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import BadResponse, LLMError, ProviderDown, RateLimited
from llm.wire.codecs.gemini.decoder import usage_of
from llm.wire.deltas import (
    CloseDelta,
    FinishDelta,
    ProofDelta,
    ReasoningDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.sse import SSEDecoder
from tests.llm.gemini import (
    CODEC,
    SIGNED,
    built,
    call,
    chunk,
    decoded,
    frames,
    output_texts,
    read,
    text,
    thought,
)

PNG = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}}
CODE = {"executableCode": {"language": "PYTHON", "code": "print(1)", "id": "c1"}}
OUTPUT = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n", "id": "c1"}}


def partial(path: str, value: str, **fields: bool):
    piece = {"jsonPath": path, "stringValue": value, **fields}
    return {"functionCall": {"partialArgs": [piece], "willContinue": True}}


def answered(*parts, finish: str = "STOP", **fields):
    return built(
        list(CODEC.decode(orjson.dumps(chunk(*parts, finish=finish, **fields))))
    )


def proof(builder, number: int = 0):
    return builder.proofs[builder.output[number]["id"]]


class TestText:
    def test_parts_are_pieces_and_the_end_is_the_end_of_the_bytes(self):
        deltas = decoded(frames(chunk(text("Hel")), chunk(text("lo"), finish="STOP")))
        assert deltas == [
            StartDelta("r1", "gemini-x"),
            TextDelta(0, "Hel"),
            TextDelta(0, "lo"),
            FinishDelta("stop", "STOP"),
        ]

    def test_thoughts_are_a_summary_and_an_item_of_their_own(self):
        deltas = decoded(frames(chunk(thought("Hm."), text("Hi"), finish="STOP")))
        assert deltas[1:-1] == [
            ReasoningDelta(0, "Hm.", "summary"),
            ProofDelta(0, [thought("Hm.")]),
            CloseDelta(0),
            TextDelta(1, "Hi"),
        ]

    def test_a_first_stop_may_be_followed_by_more(self):
        builder = read(chunk(text("a"), finish="STOP"), chunk(text("b")), finish=None)
        assert output_texts(builder) == [("message", "ab")]
        assert builder.finish == FinishDelta("stop", "STOP")

    def test_the_last_finish_reason_counts(self):
        builder = read(chunk(text("a"), finish="STOP"), finish="RECITATION")
        assert builder.finish == FinishDelta("content_filter", "RECITATION")

    @pytest.mark.parametrize(
        "odd",
        [
            {},
            {"candidates": None},
            {"candidates": []},
            {"candidates": [{"content": None}]},
            {"candidates": [{"content": {}}]},
            {"candidates": [{"content": {"role": "model"}}]},
            {"candidates": [{"content": {"parts": [{}]}}], "turnToken": "x"},
            {"candidates": [{"index": 1, "content": {"parts": [text("b")]}}]},
            "[DONE]",
        ],
    )
    def test_a_chunk_may_be_empty(self, odd):
        assert output_texts(read(odd, chunk(text("a")))) == [("message", "a")]

    def test_of_candidates_without_an_index_the_first_is_read(self):
        pair = chunk(text("a"))
        pair["candidates"] += chunk(text("other"), finish="STOP")["candidates"]
        assert output_texts(read(pair)) == [("message", "a")]

    def test_a_list_of_chunks_is_an_answer_too(self):
        body = orjson.dumps([chunk(text("a")), chunk(text("b"), finish="STOP")])
        assert output_texts(built(list(CODEC.decode(body)))) == [("message", "ab")]

    @given(st.sets(st.integers(1, 700)))
    def test_chunk_borders_do_not_matter(self, cuts: set[int]):
        stream = frames(
            chunk(thought("Höchst "), usageMetadata={"promptTokenCount": 3}),
            chunk(text("naïve …")),
            chunk(call(args={"a": "ü"}, **SIGNED), finish="STOP"),
        )
        borders = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
        sse, decoder, deltas = SSEDecoder(), CODEC.decoder(), []
        for a, b in pairwise(borders):
            for event in sse.feed(stream[a:b]):
                deltas += decoder.feed(event)
        assert [*deltas, *decoder.close()] == decoded(stream)


class TestOddDecorations:
    """They are left out, not the answer."""

    @pytest.mark.parametrize(
        "fields",
        [
            {"groundingMetadata": {"groundingChunks": [{"web": None}, None]}},
            {"groundingMetadata": {"groundingChunks": "x"}},
            {"groundingMetadata": {"groundingSupports": [None, {"segment": "x"}]}},
            {"groundingMetadata": "x"},
            {"urlContextMetadata": {"urlMetadata": [None]}},
            {"urlContextMetadata": []},
            {"citationMetadata": {"citationSources": [None, "x"]}},
            {"citationMetadata": "x"},
            {"promptFeedback": "x"},
        ],
    )
    def test_metadata_costs_no_text(self, fields):
        builder = read(chunk(text("Hi"), **fields))
        assert output_texts(builder) == [("message", "Hi")]

    def test_a_null_part_or_candidate_costs_no_text(self):
        first, second = chunk(None, text("H"), "x"), chunk(text("i"))
        first["candidates"].append(None)
        assert output_texts(read(first, second)) == [("message", "Hi")]


class TestNullFields:
    """Gateways write every field that a part may have."""

    NULLS = dict.fromkeys(
        [
            "text",
            "thought",
            "thoughtSignature",
            "functionCall",
            "inlineData",
            "fileData",
            "executableCode",
            "codeExecutionResult",
            "toolCall",
            "toolResponse",
        ]
    )

    @pytest.mark.parametrize(
        "parts",
        [
            [text("a")],
            [thought("Hm.", **SIGNED), text("a", **SIGNED)],
            [text("a"), call(args={"a": 1}, **SIGNED)],
            [PNG],
            [CODE, OUTPUT, text("1")],
            [partial("$.a", "b"), {"functionCall": {}}],
        ],
    )
    def test_they_change_nothing(self, parts):
        plain = read(chunk(*parts))
        filled = read(chunk(*({**self.NULLS, **part} for part in parts)))
        assert [{**item, "id": "", "call_id": ""} for item in filled.output] == [
            {**item, "id": "", "call_id": ""} for item in plain.output
        ]
        assert [*filled.proofs.values()] == [*plain.proofs.values()]

    def test_a_partial_argument_has_the_value_that_is_not_null(self):
        values = {"stringValue": None, "numberValue": 3, "boolValue": None}
        piece = {"jsonPath": "$.n", **values}
        begin = {"name": "f", "partialArgs": [piece], "willContinue": True}
        parts = [{"functionCall": begin}, {"functionCall": {}}]
        [item] = read(chunk(*parts)).output
        assert orjson.loads(item["arguments"]) == {"n": 3}


class TestNumbers:
    """With `enum-encoding=int` enums are numbers."""

    @pytest.mark.parametrize(
        ("number", "reason"), [(1, "stop"), (2, "length"), (3, "content_filter")]
    )
    def test_a_finish_reason_may_be_one(self, number: int, reason: str):
        builder = read(chunk(text("a"), finish=number), finish=None)
        assert builder.finish == FinishDelta(reason, str(number))

    def test_a_call_that_cannot_be_read_is_still_an_error(self):
        with pytest.raises(BadResponse) as raised:
            read(chunk(text("a"), finish=10), finish=None)
        assert raised.value.upstream_code == "MALFORMED_FUNCTION_CALL"

    def test_an_empty_answer_that_stopped_is_not_filtered(self):
        builder = read(chunk(finish=1), finish=None)
        assert builder.finish == FinishDelta("stop", "1")

    def test_so_may_the_reason_of_a_blocked_prompt(self):
        builder = read({"promptFeedback": {"blockReason": 1}}, finish=None)
        assert builder.finish == FinishDelta("content_filter", "promptFeedback.SAFETY")

    @pytest.mark.parametrize(
        ("number", "status"), [(1, "completed"), (2, "failed"), (3, "failed")]
    )
    def test_so_may_the_outcome_of_code(self, number: int, status: str):
        result = {"codeExecutionResult": {"outcome": number, "output": "1", "id": "c1"}}
        [item, _] = read(chunk(CODE, result, text("1"))).output
        assert item["status"] == status

    def test_a_tool_of_unknown_number_costs_no_answer(self):
        tool = {"toolCall": {"toolType": 99, "id": "t", "args": {}}}
        assert output_texts(read(chunk(tool, text("a"))))[-1] == ("message", "a")


class TestSignedMedia:
    def test_the_signature_of_sound_is_stored_without_the_sound(self):
        sound = {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}, **SIGNED}
        builder = read(chunk(text("Hi"), sound))
        assert proof(builder) == [text("Hi"), text("", **SIGNED)]


class TestProofs:
    """Put one after another they are the parts that go back."""

    def test_plain_text_is_its_own_proof(self):
        assert read(chunk(text("a"), text("b"))).proofs == {}

    def test_a_signature_on_an_empty_last_text_is_stored(self):
        builder = read(chunk(text("a")), chunk(text("b")), chunk(text("", **SIGNED)))
        assert output_texts(builder) == [("message", "ab")]
        assert proof(builder) == [text("ab"), text("", **SIGNED)]

    def test_a_signature_ends_its_part_but_not_the_message(self):
        builder = read(chunk(text("a"), text("b", **SIGNED), text("c"), text("d")))
        assert output_texts(builder) == [("message", "abcd")]
        assert proof(builder) == [text("a"), text("b", **SIGNED), text("cd")]

    def test_an_empty_text_without_a_signature_is_nothing(self):
        builder = read(chunk(call(**SIGNED)), chunk(text("")))
        assert proof(builder) == [call(**SIGNED)]

    def test_a_signature_after_a_call_goes_with_the_call(self):
        builder = read(chunk(call()), chunk(text("", **SIGNED)))
        assert output_texts(builder) == [("function_call", "look({})")]
        assert proof(builder) == [call(), text("", **SIGNED)]

    def test_a_signature_before_anything_is_an_empty_thought(self):
        builder = read(chunk(text("", **SIGNED)), chunk(call()))
        assert output_texts(builder) == [
            ("reasoning", ""),
            ("function_call", "look({})"),
        ]
        assert proof(builder) == [text("", **SIGNED)]

    def test_unknown_parts_are_stored_at_their_position(self):
        strange = {"audioTranscription": {"text": "?"}}
        builder = read(chunk(text("a"), strange, text("b")))
        assert output_texts(builder) == [("message", "ab")]
        assert proof(builder) == [text("a"), strange, text("b")]

    def test_sound_and_video_are_named_and_never_sent_back(self):
        sound = {"inlineData": {"mimeType": "audio/L16", "data": "A" * 20_000}}
        video = {"fileData": {"mimeType": "video/mp4", "fileUri": "https://a.test"}}
        note = "[audio/L16, 30 kB: cannot be shown here]"
        builder = read(chunk(sound), chunk(sound))
        assert output_texts(builder) == [("message", note)]
        assert builder.proofs == {}
        builder = read(chunk(text("Listen:"), video))
        note = "[video/mp4: cannot be shown here]"
        assert output_texts(builder) == [("message", f"Listen:\n\n{note}")]

    def test_signatures_are_never_put_together(self):
        builder = read(chunk(text("a", **SIGNED), text("b", **SIGNED)))
        assert proof(builder) == [text("a", **SIGNED), text("b", **SIGNED)]


class TestCalls:
    def test_a_call_comes_whole(self):
        part = call(args={"at": "ü"}, id="8oy1", **SIGNED)
        assert decoded(frames(chunk(part, finish="STOP"))) == [
            StartDelta("r1", "gemini-x"),
            ToolCallDelta(0, "8oy1", "look", '{"at":"ü"}'),
            ProofDelta(0, [part]),
            CloseDelta(0),
            FinishDelta("tool_calls", "STOP"),
        ]

    def test_a_call_has_its_id_or_one_of_ours(self):
        first, second = read(chunk(call(id="8oy1"), call())).output
        assert first["call_id"] == "8oy1"
        assert second["call_id"].startswith("call_")

    @pytest.mark.parametrize("part", [call(), call(args={}), call(args=None)])
    def test_arguments_may_be_missing(self, part):
        assert output_texts(read(chunk(part))) == [("function_call", "look({})")]

    def test_calls_come_in_one_chunk_or_one_a_chunk(self):
        parts = [call(args={"n": n}) for n in range(3)]
        together, apart = read(chunk(*parts)), read(*map(chunk, parts))
        assert output_texts(together) == output_texts(apart)
        assert [words for _, words in output_texts(apart)] == [
            'look({"n":0})',
            'look({"n":1})',
            'look({"n":2})',
        ]

    def test_a_stop_with_calls_waits_for_their_outputs(self):
        assert read(chunk(call())).finish == FinishDelta("tool_calls", "STOP")

    def test_a_call_in_python_is_the_call_of_ours(self):
        builder = read(chunk(call("default_api.look")))
        assert output_texts(builder) == [("function_call", "look({})")]
        assert proof(builder) == [call("default_api.look")]

    def test_arguments_may_come_in_pieces(self):
        begin = {"functionCall": {"name": "cook", "willContinue": True}, **SIGNED}
        builder = read(
            chunk(begin),
            chunk(partial("$.dish.steps[0].text", "Bo", willContinue=True)),
            chunk(partial("$.dish.steps[0].text", "il")),
            chunk({"functionCall": {"willContinue": True}}),
            chunk(partial("$.dish.steps[1].text", "Eat")),
            chunk(partial("$['a name']", "x")),
            chunk({"functionCall": {}}),
            chunk(call(args={"n": 1})),
        )
        args = {
            "dish": {"steps": [{"text": "Boil"}, {"text": "Eat"}]},
            "a name": "x",
        }
        first, second = builder.output
        assert orjson.loads(first["arguments"]) == args
        assert first["status"] == second["status"] == "completed"
        assert proof(builder) == [call("cook", args, **SIGNED)]

    def test_numbers_truths_and_nothing_come_in_pieces_too(self):
        pieces = [
            {"jsonPath": "$.n", "numberValue": 2},
            {"jsonPath": "$.b", "boolValue": False},
            {"jsonPath": "$.z", "nullValue": "NULL_VALUE"},
        ]
        part = {"functionCall": {"name": "look", "partialArgs": pieces}}
        [item] = read(chunk(part)).output
        assert orjson.loads(item["arguments"]) == {"n": 2, "b": False, "z": None}

    @pytest.mark.parametrize("path", ["", "$", "$[0]", "$.a[7]", "$.a.b"])
    def test_a_piece_that_belongs_nowhere_is_an_error(self, path):
        begin = {"functionCall": {"name": "look", "willContinue": True}}
        first = partial("$.a[0]", "x") if path != "$.a.b" else partial("$.a", "x")
        with pytest.raises(BadResponse):
            read(chunk(begin), chunk(first), chunk(partial(path, "y")))

    @pytest.mark.parametrize("rest", [(), (chunk(text("Oh")),), (chunk(call("b")),)])
    def test_a_call_cut_off_in_its_pieces_is_never_run(self, rest):
        begin = {"functionCall": {"name": "a", "willContinue": True}}
        builder = read(chunk(begin), chunk(partial("$.x", "1")), *rest)
        assert builder.output[0]["status"] == "incomplete"
        assert len(builder.output) == 1 + len(rest)


class TestHostedTools:
    def test_code_and_its_output_are_one_receipt(self):
        builder = read(chunk({**CODE, **SIGNED}, text("")), chunk(OUTPUT), chunk(PNG))
        code, picture = builder.output
        assert code["type"] == "code_interpreter_call"
        assert code["code"] == "print(1)"
        assert code["outputs"] == [{"type": "logs", "logs": "1\n"}]
        assert code["status"] == "completed"
        assert proof(builder) == [{**CODE, **SIGNED}, OUTPUT]
        assert picture["type"] == "image_generation_call"
        assert picture["result"] == "iVBORw0K"
        assert proof(builder, 1) == [PNG]

    def test_an_image_among_the_thoughts_is_no_part_of_the_answer(self):
        draft = {**PNG, "thought": True}
        builder = read(chunk(thought("Hm."), draft), chunk(text("Here:"), PNG))
        kinds = [item["type"] for item in builder.output]
        assert kinds == ["reasoning", "message", "image_generation_call"]
        assert proof(builder) == [thought("Hm."), draft]
        [draft_alone, _] = read(chunk(draft), chunk(text("Yes."))).output
        assert draft_alone["type"] == "reasoning"

    def test_a_failed_program_is_reported(self):
        failed = {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "!"}}
        assert read(chunk(CODE, failed)).output[0]["status"] == "failed"

    def test_a_result_after_a_text_keeps_its_position_among_the_parts(self):
        builder = read(chunk(CODE, text("Running."), OUTPUT))
        assert [item["type"] for item in builder.output] == [
            "code_interpreter_call",
            "message",
        ]
        assert builder.output[0]["outputs"]
        assert proof(builder) == [CODE]
        assert proof(builder, 1) == [text("Running."), OUTPUT]

    @pytest.mark.parametrize(
        ("kind", "args", "expected"),
        [
            (
                "GOOGLE_SEARCH_WEB",
                {"queries": ["q"]},
                {
                    "type": "web_search_call",
                    "action": {
                        "type": "search",
                        "query": "q",
                        "queries": ["q"],
                        "sources": [],
                    },
                },
            ),
            (
                "URL_CONTEXT",
                {"urls": ["https://a.example"]},
                {
                    "type": "web_search_call",
                    "action": {"type": "open_page", "url": "https://a.example"},
                },
            ),
            ("FILE_SEARCH", None, {"type": "file_search_call", "queries": []}),
            ("GOOGLE_MAPS", {}, {"type": "parley:hosted_tool_call"}),
        ],
    )
    def test_a_tool_that_google_ran_leaves_a_receipt(self, kind, args, expected):
        call_part = {"toolCall": {"id": "t1", "toolType": kind}, **SIGNED}
        if args is not None:
            call_part["toolCall"]["args"] = args
        result_part = {"toolResponse": {"id": "t1", "toolType": kind}, **SIGNED}
        builder = read(chunk(call_part), chunk(result_part), chunk(text("So.")))
        receipt, message = builder.output
        assert {**receipt, **expected} == receipt
        assert receipt["status"] == message["status"] == "completed"
        assert proof(builder) == [call_part, result_part]


class TestSources:
    GROUNDED = {
        "webSearchQueries": ["weather", "wetter"],
        "groundingChunks": [
            {"web": {"uri": "https://a.example", "title": "A"}},
            {"retrievedContext": {"text": "no address"}},
        ],
        "groundingSupports": [
            {
                "segment": {"startIndex": 6, "endIndex": 14, "text": "21°C ü."},
                "groundingChunkIndices": [0, 1, 7],
            }
        ],
    }

    def test_bytes_become_characters(self):
        data = "Ja. ü 21°C ü.".encode()
        segment = {"startIndex": data.index(b"21"), "endIndex": len(data)}
        segment["text"] = "21°C ü."
        grounding = {
            **self.GROUNDED,
            "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}],
        }
        builder = read(
            chunk(text("Ja. ü ")), chunk(text("21°C ü."), groundingMetadata=grounding)
        )
        message, files, search = builder.output
        assert files["results"][0]["text"] == "no address"
        [part] = message["content"]
        [source] = part["annotations"]
        assert source == {
            "type": "url_citation",
            "url": "https://a.example",
            "title": "A",
            "start_index": 6,
            "end_index": 13,
        }
        assert part["text"][6:13] == "21°C ü."
        assert search["action"] == {
            "type": "search",
            "query": "weather",
            "queries": ["weather", "wetter"],
            "sources": [{"type": "url", "url": "https://a.example", "title": "A"}],
        }

    def test_words_are_found_where_the_count_began_elsewhere(self):
        builder = read(chunk(text("x 21°C ü. y"), groundingMetadata=self.GROUNDED))
        [source] = builder.output[0]["content"][0]["annotations"]
        assert (source["start_index"], source["end_index"]) == (2, 9)

    def test_words_that_are_nowhere_are_no_source(self):
        builder = read(chunk(text("Hello."), groundingMetadata=self.GROUNDED))
        assert builder.output[0]["content"][0]["annotations"] == []

    def test_sources_of_an_answer_that_ends_with_a_call_are_in_a_receipt(self):
        page = {"web": {"uri": "https://a.test/", "title": "A"}}
        call = {"functionCall": {"name": "f", "args": {}}}
        builder = read(
            chunk(text("a")), chunk(call, groundingMetadata={"groundingChunks": [page]})
        )
        assert builder.output[-1]["action"]["sources"] == [
            {"type": "url", "url": "https://a.test/", "title": "A"}
        ]

    def test_pages_that_were_read_leave_receipts(self):
        read_pages = {
            "urlMetadata": [
                {
                    "retrievedUrl": "https://a.example",
                    "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS",
                },
                {
                    "retrievedUrl": "https://b.example",
                    "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_ERROR",
                },
            ]
        }
        _, first, second = read(chunk(text("a"), urlContextMetadata=read_pages)).output
        assert first["action"] == {"type": "open_page", "url": "https://a.example"}
        assert (first["status"], second["status"]) == ("completed", "failed")

    @pytest.mark.parametrize("name", ["citationSources", "citations"])
    def test_quotations_name_their_source(self, name):
        quoted = {name: [{"startIndex": 1, "endIndex": 99, "uri": "https://a.example"}]}
        [message] = read(chunk(text("übel"), citationMetadata=quoted)).output
        [source] = message["content"][0]["annotations"]
        assert (source["start_index"], source["end_index"]) == (0, 4)


class TestUsage:
    FULL = {
        "promptTokenCount": 10,
        "toolUsePromptTokenCount": 5,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 3,
        "totalTokenCount": 25,
    }

    def test_counts_have_our_meaning_and_the_vendors_stay_beside(self):
        assert usage_of(self.FULL) == UsageDelta(
            input_tokens=15,
            output_tokens=10,
            cached_tokens=4,
            reasoning_tokens=3,
            raw=self.FULL,
        )

    def test_a_count_that_cannot_be_read_is_unknown_not_zero(self):
        counted = usage_of({**self.FULL, "promptTokenCount": "ten"})
        assert (counted.input_tokens, counted.output_tokens) == (None, 10)

    def test_a_total_alone_is_not_divided(self):
        total = {"totalTokenCount": 25}
        assert usage_of(total) == UsageDelta(raw=total)

    def test_the_last_object_counts_as_a_whole(self):
        last = {"promptTokenCount": 10, "totalTokenCount": 12}
        builder = read(
            chunk(text("a"), usageMetadata=self.FULL),
            chunk(text("b"), usageMetadata=last),
            chunk(usageMetadata={"trafficType": "ON_DEMAND"}),
        )
        assert builder.call_usage == usage_of(last)
        assert builder.call_usage.cached_tokens == 0

    def test_an_interrupted_decoder_knows_the_prompts_tokens(self):
        sse = SSEDecoder().feed(frames(chunk(text("a"), usageMetadata=self.FULL)))
        deltas = list(CODEC.decoder().feed(sse[0]))
        assert deltas[-1] == usage_of(self.FULL)


class TestEndings:
    @pytest.mark.parametrize(
        ("raw", "reason"),
        [
            ("STOP", "stop"),
            ("MAX_TOKENS", "length"),
            ("CONTINUATION", "length"),
            ("SAFETY", "content_filter"),
            ("RECITATION", "content_filter"),
            ("MODEL_ARMOR", "content_filter"),
            ("OTHER", "content_filter"),
            ("A_NEW_ONE", "stop"),
        ],
    )
    def test_why_it_ended(self, raw, reason):
        builder = read(chunk(text("a")), finish=raw)
        assert builder.finish == FinishDelta(reason, raw)

    def test_an_unknown_finish_reason_without_content_is_no_answer(self):
        assert read(finish="A_NEW_ONE").finish.reason == "content_filter"

    def test_a_refused_prompt_is_an_answer(self):
        blocked = {"promptFeedback": {"blockReason": "SAFETY", "safetyRatings": []}}
        builder = read(blocked, finish=None)
        assert builder.output == []
        assert builder.finish == FinishDelta("content_filter", "promptFeedback.SAFETY")

    def test_ratings_of_the_prompt_are_no_refusal(self):
        rated = {"promptFeedback": {"safetyRatings": []}}
        with pytest.raises(ProviderDown):
            read(rated, finish=None)

    @pytest.mark.parametrize(
        "reason",
        [
            "MALFORMED_FUNCTION_CALL",
            "MALFORMED_RESPONSE",
            "MISSING_THOUGHT_SIGNATURE",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
        ],
    )
    def test_a_call_that_is_none_is_an_error_and_names_its_reason(self, reason):
        with pytest.raises(BadResponse) as caught:
            read(chunk(text("Let me see.")), finish=reason)
        assert caught.value.upstream_code == reason

    def test_unexpected_calls_that_are_whole_can_be_answered(self):
        builder = read(chunk(call()), finish="UNEXPECTED_TOOL_CALL")
        assert builder.finish == FinishDelta("tool_calls", "UNEXPECTED_TOOL_CALL")

    @pytest.mark.parametrize("stream", [b"", frames(chunk(text("a")))])
    def test_a_stream_without_its_end_was_cut_off(self, stream):
        with pytest.raises(ProviderDown):
            decoded(stream)


class TestErrors:
    OVERLOADED = {"code": 503, "message": "Overloaded.", "status": "UNAVAILABLE"}

    @pytest.mark.parametrize(
        "tail",
        [
            b'data: {"error": %b}\r\n\r\n',
            b'data: [{"error": %b}]\r\n\r\n',
            b'{"error": %b}\n',
            b'{\n  "error":\n    %b\n}\n',
        ],
    )
    def test_an_error_may_stand_in_the_stream_in_any_dress(self, tail):
        body = frames(chunk(text("a"), finish="STOP"))
        body += tail % orjson.dumps(self.OVERLOADED)
        with pytest.raises(ProviderDown) as caught:
            decoded(body)
        assert caught.value.upstream_status == 503
        assert caught.value.upstream_type == "UNAVAILABLE"

    @pytest.mark.parametrize("cut", [1, 7, 1000])
    def test_an_error_may_follow_without_a_blank_line(self, cut: int):
        error = orjson.dumps({"error": self.OVERLOADED}, option=orjson.OPT_INDENT_2)
        body = frames(chunk(text("a"))).removesuffix(b"\r\n") + error + b"\n"
        sse, decoder = SSEDecoder(), CODEC.decoder()
        pieces = [body[at : at + cut] for at in range(0, len(body), cut)]
        first, last = [*(e for each in pieces for e in sse.feed(each)), *sse.close()]
        assert TextDelta(0, "a") in decoder.feed(first)
        with pytest.raises(ProviderDown) as caught:
            list(decoder.feed(last))
        assert caught.value.upstream_type == "UNAVAILABLE"

    def test_content_before_an_error_counts(self):
        usage = {"promptTokenCount": 3, "totalTokenCount": 3}
        body = frames(
            chunk(text("a"), finish="STOP", usageMetadata=usage),
            {"error": {"code": 499, "status": "CANCELLED"}},
        )
        decoder, deltas = CODEC.decoder(), []
        events = SSEDecoder().feed(body)
        with pytest.raises(LLMError):
            deltas.extend(d for event in events for d in decoder.feed(event))
        assert deltas[-2:] == [usage_of(usage), FinishDelta("stop", "STOP")]

    def test_an_error_may_be_the_answer(self):
        body = [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}]
        with pytest.raises(RateLimited):
            list(CODEC.decode(orjson.dumps(body)))

    @pytest.mark.parametrize("data", ["<html>", "1", '"text"', "[1]"])
    def test_an_invalid_chunk_is_an_error(self, data):
        with pytest.raises(BadResponse):
            read(data)

    def test_a_whole_answer_is_read_the_same_way(self):
        builder = answered(thought("Hm."), text("Hi"), call(args={"a": 1}))
        assert output_texts(builder) == [
            ("reasoning", "Hm."),
            ("message", "Hi"),
            ("function_call", 'look({"a":1})'),
        ]
