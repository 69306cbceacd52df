from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import (
    BadResponse,
    ContentPolicy,
    LLMError,
    ProviderDown,
    QuotaExhausted,
    RateLimited,
)
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_chat.usage import usage_of
from llm.wire.delta_reader import DeltaReader, decode_body
from llm.wire.deltas import FinishDelta, StartDelta, TextDelta, ToolCallDelta
from llm.wire.items import CITED_TEXT, LONGEST_QUOTATION
from llm.wire.sse import SSEDecoder
from tests.llm.chat import (
    CODEC,
    DONE,
    answered,
    built,
    call,
    chunk,
    decoded,
    frames,
    output_texts,
    read,
    words,
)


def calls_of(deltas: list[Any], *, at_once: bool = False) -> list[str]:
    """`at_once`: all entries are in one chunk."""
    if at_once:
        entries = [entry for delta in deltas for entry in delta["tool_calls"]]
        deltas = [{"tool_calls": entries}]
    return [words(item) for item in read(*map(chunk, deltas)).output]


class TestText:
    def test_text_comes_piece_by_piece(self):
        first = chunk({"role": "assistant", "content": "", "refusal": None})
        deltas = decoded(
            frames(first, chunk({"content": "Hel"}), chunk({"content": "lo"}, "stop"))
        )
        assert deltas == [
            StartDelta("chatcmpl-1", "m-1"),
            TextDelta("text", "Hel"),
            TextDelta("text", "lo"),
            FinishDelta("stop", "stop"),
            FinishDelta("stop", "stop"),
        ]

    @pytest.mark.parametrize(
        "content",
        [
            [{"type": "text", "text": "Hi"}],
            [{"type": "text", "text": "H"}, "i"],
            [
                {"type": "reference", "reference_ids": [1]},
                {"type": "text", "text": "Hi"},
            ],
        ],
    )
    def test_content_may_be_a_list(self, content):
        assert output_texts(read(chunk({"content": content}))) == [("message", "Hi")]

    def test_parts_without_a_type_have_their_text(self):
        content = [{"text": "H"}, {"type": "text", "text": "i"}]
        assert output_texts(read(chunk({"content": content}))) == [("message", "Hi")]

    def test_a_picture_may_be_a_part(self):
        picture = {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}
        builder = read(chunk({"content": [{"type": "text", "text": "See "}, picture]}))
        assert output_texts(builder) == [
            ("message", "See ![image](<https://a.test/b.png>)")
        ]

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            ([{"name": "a"}, {"name": "b"}], '[{"name":"a"},{"name":"b"}]'),
            ([1, 2], "[1,2]"),
            (5, "5"),
            (0, "0"),
            (True, "true"),
        ],
    )
    def test_content_may_be_any_json(self, content, text):
        assert output_texts(answered({"content": content})) == [("message", text)]

    @pytest.mark.parametrize(
        "odd",
        [
            {"executed_tools": [{"type": "search", "search_results": [None, "x"]}]},
            {"executed_tools": "x"},
            {"extra_content": {"google": "x"}},
            {"images": ["x", None, {"image_url": None}]},
            {"images": "x"},
            {"refusal": True},
            {"refusal": {"a": 1}},
            {"annotations": True},
            {"annotations": {"a": 1}},
        ],
    )
    def test_odd_decorations_cost_no_text(self, odd):
        streamed = read(chunk({"content": "H"}), chunk({"content": "i", **odd}))
        for builder in (streamed, answered({"content": "Hi", **odd})):
            assert ("message", "Hi") in output_texts(builder)

    def test_a_null_choice_costs_no_text(self):
        stream = [chunk({"content": "H"}), {"choices": [None]}, chunk({"content": "i"})]
        assert output_texts(read(*stream)) == [("message", "Hi")]

    def test_a_picture_may_be_a_mere_address(self):
        builder = read(chunk({"content": "", "images": ["https://a.test/b.png"]}))
        assert output_texts(builder) == [
            ("message", "![image](<https://a.test/b.png>)")
        ]

    def test_a_number_may_be_a_piece(self):
        pieces = [chunk({"content": piece}) for piece in ("a", 5, 0, "b")]
        assert output_texts(read(*pieces)) == [("message", "a50b")]

    def test_a_stream_may_be_one_whole_message(self):
        whole = chunk(None, "stop")
        whole["choices"][0]["message"] = {
            "content": "Hi",
            "reasoning": "Hm.",
            "tool_calls": call(None, "c", "f", "{}")["tool_calls"],
        }
        del whole["choices"][0]["delta"]
        assert output_texts(read(whole, end=False)) == [
            ("reasoning", "Hm."),
            ("message", "Hi"),
            ("function_call", "f({})"),
        ]

    def test_a_message_after_a_thought_repeats_it(self):
        done = chunk({"role": "assistant", "content": ""}, "stop")
        done["choices"][0]["message"] = {"content": "", "reasoning": "Hm."}
        builder = read(chunk({"reasoning": "Hm."}), done, end=False)
        assert output_texts(builder) == [("reasoning", "Hm.")]

    def test_a_completion_of_text_is_an_answer(self):
        pieces = [{"choices": [{"index": 0, "text": text}]} for text in ("H", "i", "")]
        assert output_texts(read(*pieces)) == [("message", "Hi")]
        choice = {"text": "Hi", "index": 0, "finish_reason": "stop"}
        body = orjson.dumps({"object": "text_completion", "choices": [choice]})
        assert output_texts(built(list(CODEC.decode(body)))) == [("message", "Hi")]

    @pytest.mark.parametrize("more", ["[DONE]", chunk({"content": "bye"}), "text"])
    def test_nothing_counts_after_the_end_marker(self, more):
        error = {"error": {"message": "No.", "code": 500}}
        stream = frames(chunk({"content": "Hi"}, "stop"), DONE, more, error, DONE)
        assert output_texts(built(decoded(stream))) == [("message", "Hi")]

    def test_the_index_may_be_a_text_and_without_one_the_position_counts(self):
        named = chunk({"content": "a"})
        named["choices"][0]["index"] = "0"
        pair = {"choices": [{"delta": {"content": c}} for c in ("b", "other")]}
        assert output_texts(read(named, pair)) == [("message", "ab")]

    def test_content_may_be_an_object(self):
        answer = answered({"role": "assistant", "content": {"a": 1}})
        assert output_texts(answer) == [("message", '{"a":1}')]

    def test_refusals_are_their_own_part(self):
        builder = read(chunk({"refusal": "I"}), chunk({"refusal": " won't."}))
        [item] = builder.output
        assert item["content"] == [{"type": "refusal", "refusal": "I won't."}]

    def test_text_after_the_finish_still_counts(self):
        builder = read(chunk({"content": "a"}, "stop"), chunk({"content": "b"}))
        assert output_texts(builder) == [("message", "ab")]

    def test_only_the_first_of_several_answers_is_read(self):
        other = chunk({"content": "b"})
        other["choices"][0]["index"] = 1
        assert output_texts(read(chunk({"content": "a"}), other)) == [("message", "a")]

    def test_a_repeated_message_is_decoded_once(self):
        done = chunk({"role": "assistant", "content": ""}, "stop")
        done["choices"][0]["message"] = {"role": "assistant", "content": "pong"}
        assert output_texts(read(chunk({"content": "pong"}), done)) == [
            ("message", "pong")
        ]

    def test_half_an_emoji_waits_for_the_other_half(self):
        stream = (
            '{"choices":[{"delta":{"content":"\\ud83d"}}]}',
            '{"choices":[{"delta":{"content":"\\ude00"}}]}',
        )
        assert output_texts(read(*stream)) == [("message", "😀")]

    def test_a_chunk_may_have_no_delta_no_choices_or_null_for_both(self):
        odd = [
            {"id": "", "model": "", "choices": [], "prompt_filter_results": []},
            {"choices": [{"index": 0, "content_filter_results": {}}]},
            {"choices": None},
            {"choices": [{"delta": None}]},
            {},
        ]
        builder = read(*odd, chunk({"content": "x"}))
        assert output_texts(builder) == [("message", "x")]
        assert builder.start_delta == StartDelta("chatcmpl-1", "m-1")

    @given(st.sets(st.integers(1, 600)))
    def test_chunk_borders_do_not_matter(self, cuts: set[int]):
        stream = frames(
            chunk({"reasoning": "Höchst "}),
            chunk({"content": "naïve …"}),
            chunk(call(0, "call_1", "f", '{"a":')),
            chunk(call(0, None, None, "1}"), "tool_calls"),
            DONE,
        )
        borders = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
        sse, decoder, deltas = SSEDecoder(), CODEC.decoder(), []
        for a, b in pairwise(borders):
            for event in sse.feed(stream[a:b]):
                deltas += decoder.feed(event)
        assert [*deltas, *decoder.close()] == decoded(stream)


class TestReasoning:
    @pytest.mark.parametrize(
        "delta",
        [
            {"reasoning_content": "Hm."},
            {"reasoning": "Hm."},
            {"reasoning": {"content": "Hm."}},
            {"reasoning_text": "Hm."},
            {"reasoning_content": "Hm.", "reasoning": "Hm."},
            {"reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]},
            {"content": [{"type": "thinking", "thinking": "Hm."}]},
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
                ]
            },
            {"content": "Hm.", "extra_content": {"google": {"thought": True}}},
            {"thinking_blocks": [{"type": "thinking", "thinking": "Hm."}]},
        ],
    )
    def test_thinking_is_found_wherever_hosts_put_it(self, delta):
        expected = [("reasoning", "Hm."), ("message", "Yes.")]
        assert output_texts(read(chunk(delta), chunk({"content": "Yes."}))) == expected
        assert output_texts(answered({**delta, "tool_calls": None}))[0] == expected[0]

    def test_summaries_are_decoded_as_summaries(self):
        details = [{"type": "reasoning.summary", "summary": "In short."}]
        [item] = read(
            chunk({"reasoning": "In short.", "reasoning_details": details})
        ).output
        assert item["summary"] == [{"type": "summary_text", "text": "In short."}]

    def test_reasoning_blocks_are_put_together_as_they_go_back(self):
        def piece(**fields):
            block = {"type": "reasoning.text", "index": 0, "format": "f", **fields}
            return chunk({"reasoning_details": [block]})

        encrypted = {"type": "reasoning.encrypted", "data": "xyz", "index": 1}
        builder = read(
            piece(text="Let me", signature=""),
            piece(text=" see."),
            piece(text="", signature="sig"),
            chunk({"reasoning_details": [encrypted]}),
            chunk({"content": "Yes."}),
        )
        [proof] = builder.proofs.values()
        assert proof == {
            "reasoning_details": [
                {
                    "type": "reasoning.text",
                    "index": 0,
                    "format": "f",
                    "text": "Let me see.",
                    "signature": "sig",
                },
                encrypted,
            ]
        }
        assert builder.output[0]["id"] in builder.proofs

    def test_pieces_without_an_index_are_put_together_too(self):
        pieces = [[{"type": "reasoning.text", "text": t}] for t in ("a", "b")]
        builder = read(*(chunk({"reasoning_details": piece}) for piece in pieces))
        assert list(builder.proofs.values()) == [
            {"reasoning_details": [{"type": "reasoning.text", "text": "ab"}]}
        ]

    def test_a_proof_amid_the_text_does_not_break_the_message(self):
        encrypted = {"type": "reasoning.encrypted", "data": "xyz"}
        builder = read(
            chunk({"content": "a"}),
            chunk({"content": "", "reasoning_details": [encrypted]}),
            chunk({"content": "b"}),
        )
        assert output_texts(builder) == [("message", "ab"), ("reasoning", "")]
        assert [*builder.proofs.values()] == [{"reasoning_details": [encrypted]}]

    @pytest.mark.parametrize(
        ("late", "expected"),
        [
            ([{"index": 0, "signature": "sig"}], [{"signature": "sig"}]),
            (
                [{"type": "reasoning.encrypted", "data": "xyz", "index": 1}],
                [{}, {"type": "reasoning.encrypted", "data": "xyz", "index": 1}],
            ),
        ],
    )
    def test_a_proof_after_the_text_completes_the_one_before(self, late, expected):
        first = {"type": "reasoning.text", "text": "abc", "index": 0}
        late = [{"type": "reasoning.text", **block} for block in late]
        builder = read(
            chunk({"reasoning": "abc", "reasoning_details": [first]}),
            chunk({"content": "hi"}),
            chunk({"content": "", "reasoning_details": late}),
            chunk({"content": "!"}),
        )
        assert output_texts(builder) == [("reasoning", "abc"), ("message", "hi!")]
        whole = [{**first, **expected[0]}, *expected[1:]]
        assert [*builder.proofs.values()] == [{"reasoning_details": whole}]

    def test_each_of_two_thoughts_has_its_own_proof(self):
        def thought(text):
            block = {"type": "reasoning.text", "text": text, "index": 0}
            return chunk({"reasoning_details": [block]})

        text = chunk({"content": "hi"})
        builder = read(thought("a"), text, thought("b"), text)
        assert [p["reasoning_details"][0]["text"] for p in builder.proofs.values()] == [
            "a",
            "b",
        ]

    def test_opaque_reasoning_goes_back_with_its_words(self):
        builder = read(
            chunk({"reasoning_text": "Hm."}),
            chunk({"reasoning_opaque": "xyz"}),
            chunk({"content": "Yes."}),
        )
        assert [*builder.proofs.values()] == [
            {"reasoning_opaque": "xyz", "reasoning_text": "Hm."}
        ]

    def test_plain_reasoning_is_kept_only_for_hosts_that_want_it_back(self):
        chunks = chunk({"reasoning_content": "H"}), chunk({"reasoning_content": "m."})
        echo = OpenAIChatCodec(reasoning_echo="reasoning_content")
        assert read(*chunks).proofs == {}
        assert [*read(*chunks, codec=echo).proofs.values()] == [
            {"reasoning_content": "Hm."}
        ]

    def test_a_signature_beside_text_stays_with_the_message(self):
        extra = {"google": {"thought_signature": "sig"}}
        builder = read(chunk({"content": "a"}), chunk({"extra_content": extra}))
        assert output_texts(builder) == [("message", "a")]
        assert [*builder.proofs.values()] == [{"extra_content": extra}]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("<think>Hm.</think>\n\nYes.", [("reasoning", "Hm."), ("message", "Yes.")]),
            ("\n<think>a<b</think>", [("reasoning", "a<b")]),
            ("<think>for ever", [("reasoning", "for ever")]),
            ("<thi", [("message", "<thi")]),
            ("I <think>", [("message", "I <think>")]),
            ("Yes.", [("message", "Yes.")]),
        ],
    )
    @pytest.mark.parametrize("size", [1, 3, 100])
    def test_think_tags_are_decoded_as_reasoning_where_configured(
        self, text, expected, size
    ):
        pieces = [text[n : n + size] for n in range(0, len(text), size)]
        chunks = [chunk({"content": piece}) for piece in pieces]
        assert (
            output_texts(read(*chunks, codec=OpenAIChatCodec(think_tags=True)))
            == expected
        )
        assert output_texts(read(*chunks)) == [("message", text)]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("Hm.\n</think>\n\nYes.", [("reasoning", "Hm.\n"), ("message", "Yes.")]),
            ("<think>Hm.</think>Yes.", [("reasoning", "Hm."), ("message", "Yes.")]),
            ("for ever", [("reasoning", "for ever")]),
            ("<thi", [("reasoning", "<thi")]),
        ],
    )
    @pytest.mark.parametrize("size", [1, 3, 100])
    def test_the_first_think_tag_may_be_in_the_prompt(self, text, expected, size):
        codec = OpenAIChatCodec(think_tags=True, think_begun=True)
        pieces = [text[n : n + size] for n in range(0, len(text), size)]
        chunks = [chunk({"content": piece}) for piece in pieces]
        assert output_texts(read(*chunks, codec=codec)) == expected


class TestToolCalls:
    @pytest.mark.parametrize(
        ("deltas", "expected"),
        [
            pytest.param(
                [
                    call(0, "a", "f", ""),
                    call(0, None, None, '{"x"'),
                    call(0, None, None, ":1}"),
                    call(1, "b", "g", "{}"),
                ],
                ['f({"x":1})', "g({})"],
                id="as OpenAI does",
            ),
            pytest.param(
                [call(0, "a", "f", "{}"), call(0, "b", "f", "{}")],
                ["f({})", "f({})"],
                id="one index, two ids",
            ),
            pytest.param(
                [call(None, "a", "f", '{"x"'), call(None, "a", None, ":1}")],
                ['f({"x":1})'],
                id="no index, one id",
            ),
            pytest.param(
                [call(None, "a", "f", "{}"), call(None, "b", "g", "{}")],
                ["f({})", "g({})"],
                id="no index, two ids",
            ),
            pytest.param(
                [call(None, "", "f", '{"x":1}'), call(None, "", "f", '{"x":2}')],
                ['f({"x":1})', 'f({"x":2})'],
                id="neither index nor id",
            ),
            pytest.param(
                [call(0, "", "f", '{"x":1}'), call(0, "", "f", '{"x":2}')],
                ['f({"x":1})', 'f({"x":2})'],
                id="one index and no id, two whole calls",
            ),
            pytest.param(
                [call(None, "", "f", '{"x"'), call(None, "", None, ":1}")],
                ['f({"x":1})'],
                id="neither, in pieces",
            ),
            pytest.param(
                [
                    call(0, "a", "f", ""),
                    call(0, "a", "f", '{"x":'),
                    call(0, "a", "f", "1}"),
                ],
                ['f({"x":1})'],
                id="id and name in every piece",
            ),
            pytest.param(
                [call(None, "a", "f", ""), call(0, None, None, '{"x":1}')],
                ['f({"x":1})'],
                id="the index comes late",
            ),
            pytest.param(
                [
                    call(None, "a", "f", "{}"),
                    call(0, "b", None, ""),
                    call(0, None, "g", "{}"),
                ],
                ["f({})", "g({})"],
                id="the index comes with the second call",
            ),
            pytest.param(
                [
                    call(0, "a", "f", '{"x"'),
                    call(0, None, None, ":1}"),
                    call(0, "a", "f", '{"x":1}'),
                ],
                ['f({"x":1})'],
                id="the whole call again",
            ),
            pytest.param(
                [call(0, "a", "f", '{"x":'), call(0, "", "", "1}")],
                ['f({"x":1})'],
                id="empty id and name later",
            ),
            pytest.param(
                [call(0, "a", "", '{"x":'), call(0, "", "f", "1}")],
                ['f({"x":1})'],
                id="the name comes late",
            ),
            pytest.param(
                [call(1, "a", "f", "{}"), call(2, "b", "g", "{}")],
                ["f({})", "g({})"],
                id="the index begins at 1",
            ),
            pytest.param(
                [
                    call(0, "a", "f", '{"x":'),
                    call(1, "b", "g", '{"y":'),
                    call(0, None, None, "1}"),
                    call(1, None, None, "2}"),
                ],
                ['f({"x":1})', 'g({"y":2})'],
                id="in turns",
            ),
            pytest.param([call(0, "a", "f", {"x": 1})], ['f({"x":1})'], id="an object"),
            pytest.param([call(0, "a", "f", None)], ["f({})"], id="null"),
            pytest.param([call(0, "a", "f", "")], ["f({})"], id="empty"),
            pytest.param([call(0, "a", "f", "null")], ["f({})"], id="the word null"),
            pytest.param([call(0, 7, "f", "{}")], ["f({})"], id="a number for an id"),
            pytest.param(
                [
                    {"function_call": {"name": "f", "arguments": "{"}},
                    {"function_call": {"arguments": "}"}},
                ],
                ["f({})"],
                id="before there were tools",
            ),
            pytest.param(
                [
                    {"tool_calls": [{"index": 0, "id": "a", "function": None}]},
                    call(0, None, "f", "{}"),
                ],
                ["f({})"],
                id="no function at first",
            ),
        ],
    )
    def test_parallel_calls_are_distinguished(self, deltas, expected):
        builder = read(*(chunk(delta) for delta in deltas))
        assert [words(item) for item in builder.output] == expected
        ids = [item["call_id"] for item in builder.output]
        assert len(set(ids)) == len(ids)
        assert all(ids)
        assert all(item["status"] == "completed" for item in builder.output)

    @pytest.mark.parametrize("finish", ["stop", "tool_calls", "", "function_call"])
    def test_a_call_determines_the_finish_reason_whatever_the_host_sends(self, finish):
        delta = call(0, "a", "f", "{}")
        builder = read(chunk(delta, finish), DONE, end=False)
        assert builder.finish
        assert builder.finish.reason == "tool_calls"

    @pytest.mark.parametrize(
        ("finish", "native", "reason"),
        [
            ("tool_calls", "max_output_tokens", "length"),
            ("length", None, "length"),
            ("content_filter", None, "content_filter"),
        ],
    )
    def test_a_call_cut_short_is_never_run(self, finish, native, reason):
        last = chunk({}, finish)
        last["choices"][0]["native_finish_reason"] = native
        cut = chunk(call(0, "a", "f", '{"x": [1, 2'))
        builder = read(cut, last, DONE, end=False)
        [item] = builder.output
        assert item["status"] == "incomplete"
        assert builder.finish == FinishDelta(reason, finish)

    @pytest.mark.parametrize("finish", ["tool_calls", "stop"])
    @pytest.mark.parametrize("arguments", ['{"x": 1', "{'x': 1}", '{"x":1}{"x":1}'])
    @pytest.mark.parametrize("streams", [True, False])
    def test_an_unparsable_call_counts_once_the_host_ends_the_answer(
        self, streams, arguments, finish
    ):
        calls = [
            call(0, "a", "f", arguments)["tool_calls"][0],
            call(1, "b", "f", '{"x": 1}')["tool_calls"][0],
        ]
        if streams:
            builder = read(
                chunk({"tool_calls": calls}), chunk({}, finish), DONE, end=False
            )
        else:
            builder = answered({"content": None, "tool_calls": calls}, finish)
        assert [item["status"] for item in builder.output] == ["completed"] * 2
        assert builder.output[0]["arguments"] == arguments
        assert builder.finish == FinishDelta("tool_calls", finish)

    @pytest.mark.parametrize("id", ["call_0", "", None])
    @pytest.mark.parametrize(
        ("first", "second"), [('{"a":1}', '{"a":2}'), ('{"a":1}', '{"a":1}'), ("", "")]
    )
    def test_calls_of_one_id_in_an_answer_are_calls_of_their_own(
        self, id: str | None, first: str, second: str
    ):
        calls = [call(None, id, "f", each)["tool_calls"][0] for each in (first, second)]
        found = answered({"content": None, "tool_calls": calls}, "tool_calls").output
        texts = [(item["name"], item["arguments"]) for item in found]
        assert texts == [("f", first or "{}"), ("f", second or "{}")]
        assert len({item["call_id"] for item in found}) == 2

    @pytest.mark.parametrize("index", [None, 0])
    def test_calls_of_one_id_in_a_stream_are_calls_of_their_own(
        self, index: int | None
    ):
        calls = [call(index, "call_0", "f", text) for text in ('{"a":1}', '{"a":2}')]
        found = read(*map(chunk, calls)).output
        assert [item["arguments"] for item in found] == ['{"a":1}', '{"a":2}']
        assert len({item["call_id"] for item in found}) == 2

    def test_equal_calls_of_one_chunk_are_two(self):
        entry = call(None, "call_0", "f", '{"a":1}')["tool_calls"][0]
        found = read(chunk({"tool_calls": [entry, entry]})).output
        assert [item["arguments"] for item in found] == ['{"a":1}'] * 2

    def test_a_call_may_lack_the_inner_object(self):
        entry = {"id": "c", "name": "f", "arguments": '{"a":1}'}
        streamed = read(chunk({"tool_calls": [{"index": 0, **entry}]}))
        for builder in (streamed, answered({"tool_calls": [entry]}, "tool_calls")):
            assert output_texts(builder) == [("function_call", 'f({"a":1})')]

    @pytest.mark.parametrize(
        "pieces",
        [
            [(0, "c", "get_", ""), (0, None, "weather", ""), (0, None, None, "{}")],
            [(0, "c", "get_", ""), (0, "c", "weather", ""), (0, "c", "", "{}")],
            [(0, "c", "get_", ""), (0, "c", "weather", "{}")],
            [(0, "c", "get_", ""), (0, None, "weather", "{}")],
            [(0, "c", "get_", ""), (0, "c", "get_weather", ""), (0, "c", "", "{}")],
            [(None, "c", "get_", ""), (None, "c", "weather", "{}")],
            [(0, "c", "get_weather", "{"), (0, "c", "get_weather", "}")],
            [(0, "c", "get_", ""), (0, None, "weather", "")],
        ],
    )
    def test_a_name_in_pieces_is_joined(self, pieces: list[Any]):
        builder = read(*(chunk(call(*piece)) for piece in pieces))
        assert output_texts(builder) == [("function_call", "get_weather({})")]

    @pytest.mark.parametrize("at_once", [True, False])
    @pytest.mark.parametrize("second", ["", "{}"])
    def test_calls_without_ids_on_one_index_are_told_by_their_names(
        self, second: str, at_once: bool
    ):
        calls = [call(0, "", "f", ""), call(0, "", "g", second)]
        assert calls_of(calls, at_once=at_once) == ["f({})", "g({})"]

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ((0, "x", "f", ""), (0, "x", "g", '{"a":1}')),
            ((None, "x", "f", ""), (None, "x", "g", "")),
            ((None, "x", "f", ""), (None, "x", "f", "")),
            ((0, "x", "f", "{}"), (0, "x", "g", "{}")),
            ((0, "x", "f", "{}"), (0, "x", "f", "{}")),
        ],
    )
    def test_entries_of_one_chunk_and_id_are_calls(self, first: Any, second: Any):
        found = calls_of([call(*first), call(*second)], at_once=True)
        texts = [f"{each[2]}({each[3] or '{}'})" for each in (first, second)]
        assert found == texts

    @pytest.mark.parametrize("id", ["a", ""])
    def test_a_call_without_a_name_is_reported(self, id: str):
        pieces = [call(0, id, "", '{"x":'), call(0, None, None, "1}")]
        builder = read(*map(chunk, pieces))
        assert [words(item) for item in builder.output] == ['({"x":1})']
        assert builder.output[0]["status"] == "incomplete"  # it cannot be run

    def test_a_call_named_after_the_next_has_begun_is_not_lost(self):
        pieces = [call(0, "a", "", ""), call(1, "b", "g", "{}"), call(0, None, "f", "")]
        assert sorted(calls_of(pieces)) == ["f({})", "g({})"]

    @pytest.mark.parametrize("id", ["a", None])
    @pytest.mark.parametrize("rest", ["\n", " ", '{"x": 1}', '{ "x":1 }\n'])
    def test_what_follows_whole_arguments_with_an_id_and_a_name(
        self, rest: str, id: str | None
    ):
        """White space, or the same value again: no call."""
        last = call(0, id, "f" if id else None, rest)
        [item] = read(*map(chunk, (call(0, "a", "f", '{"x":1}'), last))).output
        assert orjson.loads(item["arguments"]) == {"x": 1}

    @given(
        st.dictionaries(st.text(), st.text() | st.dictionaries(st.text(), st.none())),
        st.lists(st.integers(1, 5), min_size=1),
    )
    def test_an_id_and_a_name_in_every_piece_make_one_call(self, value, sizes):
        text, pieces = orjson.dumps(value).decode(), []
        for number in range(len(text)):
            size = sizes[number % len(sizes)]
            pieces, text = [*pieces, text[:size]], text[size:]
        entries = [call(0, "a", "f", piece) for piece in pieces if piece]
        [item] = read(*map(chunk, entries)).output
        assert orjson.loads(item["arguments"]) == value

    @given(
        st.dictionaries(st.text(), st.text() | st.dictionaries(st.text(), st.none())),
        st.integers(1, 5),
    )
    def test_a_second_call_of_one_id_begins_when_the_first_is_whole(self, value, size):
        text = orjson.dumps(value).decode()
        pieces = [text[n : n + size] for n in range(0, len(text), size)]
        entries = [call(0, "a", "f", piece) for piece in pieces]
        entries.append(call(0, "a", "g", '{"other":1}'))
        first, second = read(*map(chunk, entries)).output
        assert orjson.loads(first["arguments"]) == value
        assert words(second) == 'g({"other":1})'

    def test_a_name_is_announced_when_it_is_whole(self):
        pieces = [call(0, "c", "get_", ""), call(0, None, "weather", "")]
        pieces += [call(0, None, None, '{"a":'), call(0, None, None, "1}")]
        deltas = decoded(frames(*map(chunk, pieces), chunk(finish="tool_calls"), DONE))
        named = [each.name for each in deltas if isinstance(each, ToolCallDelta)]
        assert named == ["get_weather", ""]

    def test_a_call_cut_within_its_name_is_never_run(self):
        builder = read(
            chunk(call(0, "c", "get_", "")), chunk(finish="length"), end=False
        )
        assert [item["status"] for item in builder.output] == ["incomplete"]

    def test_a_call_that_cannot_be_read_is_none_where_no_reason_was_given(self):
        cut = chunk(call(0, "a", "f", '{"x": [1, 2'))
        [item] = read(cut, DONE, end=False).output
        assert item["status"] == "incomplete"

    def test_a_signature_stays_with_its_call(self):
        extra = {"google": {"thought_signature": "sig"}}
        builder = read(chunk(call(0, "a", "f", "{}", extra_content=extra)))
        [item] = builder.output
        assert builder.proofs == {item["id"]: {"extra_content": extra}}

    def test_a_custom_call_is_an_item_of_its_own(self):
        def piece(**custom):
            entry = {"index": 0, "id": "a", "type": "custom", "custom": custom}
            return chunk({"tool_calls": [entry]})

        [item] = read(piece(name="sql", input="SELECT"), piece(input=" 1")).output
        assert (item["type"], item["call_id"]) == ("custom_tool_call", "a")
        assert (item["name"], item["input"]) == ("sql", "SELECT 1")
        assert item["status"] == "completed"

    @pytest.mark.parametrize("finish", ["length", "content_filter"])
    def test_the_last_custom_call_of_a_cut_answer_is_incomplete(self, finish):
        def piece(index, text):
            custom = {"name": "sql", "input": text}
            entry = {"index": index, "id": f"c{index}", "type": "custom"}
            return chunk({"tool_calls": [{**entry, "custom": custom}]})

        pieces = [piece(0, "SELECT 1"), piece(1, "DELETE FROM a"), chunk({}, finish)]
        output = read(*pieces, DONE, end=False).output
        assert [item["status"] for item in output] == ["completed", "incomplete"]

    def test_an_image_at_an_address_is_a_part_of_the_text(self):
        def images(*urls):
            return [{"type": "image_url", "image_url": {"url": url}} for url in urls]

        pictures = images("https://a.test/1.png", "javascript:x", "https://a.test/ >")
        builder = answered({"content": "Look: ", "images": pictures})
        assert output_texts(builder) == [
            ("message", "Look: ![image](<https://a.test/1.png>)")
        ]

    def test_a_refusal_may_be_a_part_of_the_content(self):
        builder = answered({"content": [{"type": "refusal", "refusal": "No."}]})
        assert output_texts(builder) == [("message", "No.")]
        assert builder.output[0]["content"][0]["type"] == "refusal"

    def test_databricks_reasoning_is_a_part_of_the_content(self):
        summary = {"type": "summary_text", "text": "Hm.", "signature": "sig"}
        content = [
            {"type": "reasoning", "summary": [summary]},
            {"type": "text", "text": "Yes."},
        ]
        for builder in (
            answered({"content": content}),
            read(chunk({"content": content})),
        ):
            assert output_texts(builder) == [("reasoning", "Hm."), ("message", "Yes.")]

    def test_an_image_in_the_answer_is_an_item(self):
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA"}}
        [item] = answered({"content": "", "images": [image]}).output
        assert (item["type"], item["result"]) == ("image_generation_call", "AAA")
        assert item["output_format"] == "png"

    def test_what_is_said_is_text_and_sound_without_words_is_named(self):
        def sound(**fields):
            return chunk({"audio": {"id": "a", **fields}})

        data = "A" * 40_000
        spoken = read(sound(transcript="Hel"), sound(data=data), sound(transcript="lo"))
        assert output_texts(spoken) == [("message", "Hello")]
        assert output_texts(answered({"audio": {"data": data}})) == [
            ("message", "[audio, 30 kB: cannot be shown here]")
        ]

    def test_what_is_said_and_written_is_one_text(self):
        def both(text):
            return {"content": text, "audio": {"data": "A" * 9, "transcript": text}}

        said = [("message", "Hello")]
        assert output_texts(answered(both("Hello"))) == said
        assert output_texts(read(chunk(both("Hel")), chunk(both("lo")))) == said

    def test_an_image_that_a_host_repeats_is_one_item(self):
        def image(data):
            url = {"url": f"data:image/png;base64,{data}"}
            return chunk({"images": [{"type": "image_url", "image_url": url}]})

        builder = read(image("AAA"), image("BBB"), image("AAA"))
        assert [item["result"] for item in builder.output] == ["AAA", "BBB"]


class TestAnnotations:
    CITATION = {
        "url": "https://a.example",
        "title": "A",
        "start_index": 0,
        "end_index": 1,
    }

    def test_citations_are_flat_here_and_nested_there(self):
        nested = {"type": "url_citation", "url_citation": self.CITATION}
        for delta in (nested, {"type": "url_citation", **self.CITATION}):
            [item] = read(chunk({"content": "a", "annotations": [delta]})).output
            assert item["content"][0]["annotations"] == [
                {"type": "url_citation", **self.CITATION}
            ]

    def test_what_a_host_quotes_of_a_page_stays_with_its_citation(self):
        openrouter = {**self.CITATION, "content": "Bread keeps three days."}
        nested = {"type": "url_citation", "url_citation": openrouter}
        builder = read(chunk({"content": "a", "annotations": [nested]}))
        [note] = builder.output[0]["content"][0]["annotations"]
        assert note == {
            "type": "url_citation",
            **self.CITATION,
            CITED_TEXT: "Bread keeps three days.",
        }
        found = {"url": "https://a.example", "title": "A", "snippet": "Long " * 1000}
        builder = read(chunk({"content": "a"}, search_results=[found]))
        [note] = builder.output[0]["content"][0]["annotations"]
        assert note[CITED_TEXT] == found["snippet"][:LONGEST_QUOTATION]

    def test_citations_before_the_text_wait_for_it(self):
        nested = {"type": "url_citation", "url_citation": self.CITATION}
        builder = read(chunk({"annotations": [nested]}), chunk({"content": "a"}))
        assert len(builder.output[0]["content"][0]["annotations"]) == 1

    def test_citations_beside_a_call_are_those_of_the_text(self):
        nested = {"type": "url_citation", "url_citation": self.CITATION}
        message = {"content": "a", "annotations": [nested], **call(0, "a", "f", "{}")}
        said, _ = answered(message, "tool_calls").output
        assert len(said["content"][0]["annotations"]) == 1

    @pytest.mark.parametrize("where", ["annotations", "citations"])
    def test_sources_after_a_call_are_a_receipt(self, where):
        nested = {"type": "url_citation", "url_citation": self.CITATION}
        last = (
            chunk({"annotations": [nested]})
            if where == "annotations"
            else chunk({}, citations=["https://a.example"])
        )
        builder = read(chunk({"content": "a"}), chunk(call(0, "a", "f", "{}")), last)
        *_, receipt = builder.output
        assert [item["type"] for item in builder.output] == [
            "message",
            "function_call",
            "web_search_call",
        ]
        [source] = receipt["action"]["sources"]
        assert source["url"] == "https://a.example"

    def test_sources_of_the_whole_answer_are_decoded_once(self):
        sources = {"citations": ["https://a.example", "https://b.example"]}
        builder = read(
            chunk({"content": "a"}, **sources), chunk({"content": "b"}, **sources)
        )
        [item] = builder.output
        urls = [a["url"] for a in item["content"][0]["annotations"]]
        assert urls == sources["citations"]


class TestUsage:
    USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}

    @pytest.mark.parametrize(
        "chunks",
        [
            [{"choices": [], "usage": USAGE}],
            [chunk({"content": "a"}, usage=USAGE)],
            [chunk({"content": "a"}, x_groq={"usage": USAGE})],
            [chunk({"content": "a"}, usage=USAGE), {"choices": [], "usage": USAGE}],
            [
                chunk({"content": "a"}, usage={"prompt_tokens": 9}),
                chunk({"content": "b"}, usage=USAGE),
                chunk({"content": "c"}, usage=None),
            ],
        ],
    )
    def test_usage_is_found_wherever_hosts_put_it(self, chunks):
        usage = read(*chunks).usage
        assert usage["input_tokens"] == 9
        assert usage["output_tokens"] == 3

    @pytest.mark.parametrize(
        ("usage", "expected"),
        [
            (
                {
                    **USAGE,
                    "prompt_tokens_details": {"cached_tokens": 4},
                    "completion_tokens_details": {"reasoning_tokens": 2},
                },
                (9, 3, 4, 2),
            ),
            ({**USAGE, "prompt_cache_hit_tokens": 4}, (9, 3, 4, None)),
            ({**USAGE, "cached_tokens": 4}, (9, 3, 4, None)),
            # xAI: reasoning comes on top
            (
                {
                    "prompt_tokens": 9,
                    "completion_tokens": 3,
                    "total_tokens": 17,
                    "completion_tokens_details": {"reasoning_tokens": 5},
                },
                (9, 8, None, 5),
            ),
            (
                {"prompt_tokens": 9, "completion_tokens": 3, "reasoning_tokens": 5},
                (9, 8, None, 5),
            ),
            # Grok on Azure: the cache comes on top
            (
                {
                    "prompt_tokens": 10,
                    "completion_tokens": 3,
                    "prompt_tokens_details": {"cached_tokens": 161},
                },
                (171, 3, 161, None),
            ),
            # Gemini's copy omits the reasoning, but counts it
            (
                {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 40},
                (9, 31, None, None),
            ),
            (
                {
                    "prompt_tokens": 9,
                    "completion_tokens": 3,
                    "total_tokens": 20,
                    "completion_tokens_details": {"reasoning_tokens": 2},
                },
                (9, 11, None, 2),
            ),
            (
                {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 5},
                (9, 3, None, None),
            ),
            ({"prompt_tokens": None}, (None, None, None, None)),
        ],
    )
    def test_usage_has_the_same_meaning_for_every_host(self, usage, expected):
        delta = usage_of(usage)
        counts = (delta.input_tokens, delta.output_tokens)
        assert (*counts, delta.cached_tokens, delta.reasoning_tokens) == expected
        assert delta.raw == usage

    @pytest.mark.parametrize(
        ("usage", "cost"),
        [
            ({"cost": 0.25}, 0.25),
            ({"cost": {"total_cost": 0.5}}, 0.5),
            ({"cost_in_usd_ticks": 25_000_000}, 0.0025),
            ({"cost": "free"}, None),
        ],
    )
    def test_the_billed_cost_is_recorded(self, usage, cost):
        assert usage_of(usage).cost == cost


class TestEndings:
    @pytest.mark.parametrize(
        ("finish", "reason"),
        [
            ("stop", "stop"),
            ("eos", "stop"),
            ("end_turn", "stop"),
            ("tool_calls", "stop"),  # and no call
            ("length", "length"),
            ("model_length", "length"),
            ("MAX_TOKENS", "length"),
            ("content_filter", "content_filter"),
            ("sensitive", "content_filter"),
            ("refusal", "content_filter"),
            ("content_filter: PROHIBITED_CONTENT", "content_filter"),
            ("SAFETY", "content_filter"),
            ("RECITATION", "content_filter"),
            ("PROHIBITED_CONTENT", "content_filter"),
            ("BLOCKLIST", "content_filter"),
            ("SPII", "content_filter"),
            ("yet unknown", "stop"),
        ],
    )
    def test_every_reason_has_a_meaning(self, finish, reason):
        builder = read(chunk({"content": "a"}, finish), DONE, end=False)
        assert builder.finish == FinishDelta(reason, finish)

    def test_geminis_filter_needs_no_message(self):
        reason = "content_filter: PROHIBITED_CONTENT"
        choice = {"index": 0, "finish_reason": reason}
        body = {"id": "c", "model": "m", "choices": [choice]}
        for builder in (
            read(body, DONE, end=False),
            built(list(CODEC.decode(orjson.dumps(body)))),
        ):
            assert builder.output == []
            assert builder.finish == FinishDelta("content_filter", reason)

    @pytest.mark.parametrize(
        "reason", ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"]
    )
    def test_geminis_unreadable_call_is_an_error(self, reason):
        with pytest.raises(BadResponse) as raised:
            read(chunk({}, f"function_call_filter: {reason}"), DONE, end=False)
        assert raised.value.upstream_code == reason

    def test_geminis_unwanted_call_can_be_answered(self):
        finish = "function_call_filter: UNEXPECTED_TOOL_CALL"
        builder = read(chunk(call(0, "a", "f", "{}"), finish), DONE, end=False)
        assert builder.finish == FinishDelta("tool_calls", finish)
        with pytest.raises(BadResponse):
            read(chunk({}, finish), DONE, end=False)

    @pytest.mark.parametrize("finish", ["error", "abort"])
    def test_some_reasons_are_failures(self, finish):
        with pytest.raises(ProviderDown):
            read(chunk({"content": "a"}, finish), DONE, end=False)

    def test_the_last_reason_wins(self):
        chunks = chunk({"content": "a"}, "stop"), chunk({}, "length"), DONE
        assert read(*chunks, end=False).finish == FinishDelta("length", "length")

    @pytest.mark.parametrize(
        "chunks",
        [
            [chunk({"content": "a"}, "stop")],
            [chunk({"content": "a"}), DONE],
            [chunk({"content": "a"}), "[DONE] "],
            [chunk({"content": "a"}, "stop"), '{"id":"cut'],
            [chunk({"content": "a"}), "", DONE],
        ],
    )
    def test_either_sign_of_the_end_is_enough(self, chunks):
        assert output_texts(read(*chunks, end=False)) == [("message", "a")]

    @pytest.mark.parametrize(
        "chunks",
        [
            [DONE],
            ["", DONE],
            [chunk({"role": "assistant", "content": ""}), DONE],
            [{"choices": [], "usage": {"prompt_tokens": 1}}, DONE],
            [chunk({"reasoning": "Hm"}), DONE],
        ],
    )
    def test_the_end_mark_alone_is_no_empty_answer(self, chunks):
        with pytest.raises(BadResponse):
            read(*chunks, end=False)
        assert output_texts(read(chunk({}, "stop"), DONE, end=False)) == []

    @pytest.mark.parametrize(
        "chunks",
        [
            [],
            [chunk({"content": "a"})],
            [chunk({"content": "a"}), '{"id":"cut'],
            [chunk(call(0, "a", "f", '{"x":'))],
            [{"choices": [], "usage": {"prompt_tokens": 1}}],
        ],
    )
    def test_without_any_the_stream_was_cut_off(self, chunks):
        with pytest.raises(ProviderDown):
            read(*chunks, end=False)

    def test_nonsense_amid_the_stream_is_a_bad_response(self):
        with pytest.raises(BadResponse):
            read("<html>", chunk({"content": "a"}))


class TestErrors:
    ERROR = {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded"}

    @pytest.mark.parametrize(
        "stream",
        [
            frames({"error": ERROR}),
            frames(
                chunk({"content": "a"}), {**chunk({}, "stop"), "error": ERROR}, DONE
            ),
            frames({"object": "error", **ERROR}),
            frames(chunk({"content": "a"}))
            + b"["
            + orjson.dumps({"error": ERROR})
            + b"]",
            frames(chunk(None, x_groq={"error": ERROR})),
            b"event: error\n" + frames({"error": ERROR}),
            b"event: error\n" + frames(ERROR),
            b"error: " + orjson.dumps({"detail": "x", "error": ERROR}) + b"\n\n",
        ],
    )
    def test_an_error_inside_the_stream_is_found(self, stream):
        with pytest.raises(RateLimited) as raised:
            decoded(stream)
        assert raised.value.detail == "Slow down."
        assert raised.value.upstream_code == "rate_limit_exceeded"

    @pytest.mark.parametrize(
        "stream",
        [
            frames({"error": "text"}),
            frames({"detail": "text"}),
            b"event: error\ndata: text\n\n",
            b"error: text\n\n",
        ],
    )
    def test_an_error_may_be_mere_text(self, stream):
        with pytest.raises(ProviderDown) as raised:
            decoded(stream)
        assert raised.value.detail == "text"

    @pytest.mark.parametrize(
        ("body", "error"),
        [
            ({"type": "error", "message": "No.", "code": 429}, RateLimited),
            ({"code": 500, "message": "No."}, ProviderDown),
            (
                {
                    "choices": None,
                    "base_resp": {"status_code": 1008, "status_msg": "No."},
                },
                QuotaExhausted,
            ),
            (
                {"base_resp": {"status_code": 1002, "status_msg": "No."}},
                RateLimited,
            ),
        ],
    )
    def test_an_error_need_not_be_under_its_name(self, body, error):
        with pytest.raises(error) as raised:
            decoded(frames(body, DONE))
        assert raised.value.detail == "No."
        with pytest.raises(error):
            list(CODEC.decode(orjson.dumps(body)))

    def test_an_error_may_be_in_the_choice(self):
        failed = chunk({"content": ""}, "error")
        failed["choices"][0]["error"] = {"code": 429, "message": "Slow."}
        with pytest.raises(RateLimited) as raised:
            decoded(frames(chunk({"content": "Hi"}), failed, DONE))
        assert raised.value.detail == "Slow."
        failed["choices"][0]["message"] = {"content": "Hi"}
        deltas, error = decode_body(CODEC.decode, orjson.dumps(failed))
        assert isinstance(error, RateLimited)
        assert output_texts(built(deltas)) == [("message", "Hi")]

    def test_text_and_usage_beside_an_error_count(self):
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        failed = chunk({"content": "lo"}, "error", usage=usage)
        failed["choices"][0]["error"] = {"code": 502, "message": "Down."}
        reader = DeltaReader(CODEC.decoder())
        builder = built(reader.feed(frames(chunk({"content": "Hel"}), failed)))
        assert isinstance(reader.error, ProviderDown)
        assert output_texts(builder) == [("message", "Hello")]
        assert builder.usage["output_tokens"] == 2

    def test_a_status_of_success_is_no_error(self):
        status = {"base_resp": {"status_code": 0, "status_msg": ""}}
        assert output_texts(read(chunk({"content": "Hi"}), status)) == [
            ("message", "Hi")
        ]

    @pytest.mark.parametrize(
        "late",
        [
            {"choices": [], "message": "done"},
            {"message": "done"},
            {"choices": [], "base_resp": {"status_code": 1000, "status_msg": "Late."}},
        ],
    )
    def test_nothing_after_the_end_of_an_answer_fails_it(self, late: Any):
        answer = read(chunk({"content": "Hi"}, "stop"), late)
        assert output_texts(answer) == [("message", "Hi")]

    def test_counts_behind_the_end_marker_are_read_and_nothing_else_is(self):
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        late = [
            chunk({"content": "more"}, usage=usage),
            {"error": {"message": "Late."}},
        ]
        body = frames(chunk({"content": "Hi"}, "stop"), "[DONE]", *late)
        builder = built(DeltaReader(CODEC.decoder()).feed(body))
        assert output_texts(builder) == [("message", "Hi")]
        assert builder.usage["output_tokens"] == 2

    def test_a_message_beside_choices_is_no_error(self):
        queued = {"choices": [], "message": "queued"}
        answer = read(queued, chunk({"content": "Hi"}, "stop"))
        assert output_texts(answer) == [("message", "Hi")]

    def test_an_answer_of_200_may_be_an_error(self):
        body = {"error": {"code": "content_filter", "status": 400, "message": "No."}}
        with pytest.raises(ContentPolicy) as raised:
            list(CODEC.decode(orjson.dumps(body)))
        assert raised.value.upstream_status == 400

    @pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"choices":[]}'])
    def test_an_answer_without_choices_is_a_bad_response(self, body):
        with pytest.raises(BadResponse):
            list(CODEC.decode(body))

    @given(st.binary(max_size=200))
    def test_no_body_does_more_than_raise(self, body: bytes):
        with pytest.raises(LLMError):
            list(CODEC.decode(body))


@pytest.mark.parametrize(
    "notice",
    [
        {"id": "x", "usage": {"prompt_tokens": 1}, "code": 0, "message": "Success"},
        {"id": "x", "message": "queued"},
        {"object": "status", "message": "still working", "usage": None},
    ],
)
def test_a_notice_in_a_stream_ends_no_answer(notice: dict[str, Any]):
    stream = [notice, chunk({"content": "H"}), notice, chunk({"content": "i"})]
    assert output_texts(read(*stream)) == [("message", "Hi")]
    with pytest.raises(LLMError):
        list(CODEC.decode(orjson.dumps(notice)))


@pytest.mark.parametrize("end", [(), (DONE,)])
def test_a_message_without_an_answer_is_the_error(end: tuple[str, ...]):
    with pytest.raises(RateLimited):
        decoded(frames({"code": 429, "message": "Slow down."}, *end))


@pytest.mark.parametrize("odd", [{"image": "https://x.test/y.png"}, {}, None, 5])
def test_what_is_no_part_costs_no_text(odd: Any):
    content = [{"type": "text", "text": "A"}, odd]
    assert output_texts(read(chunk({"content": content}))) == [("message", "A")]
    assert output_texts(answered({"content": content})) == [("message", "A")]


def test_a_piece_with_an_empty_function_leaves_the_name():
    empty = {"tool_calls": [{"index": 0, "name": "other", "function": {}}]}
    pieces = [call(0, "c1", "look", ""), empty, call(0, None, None, "{}")]
    assert calls_of(pieces) == ["look({})"]
