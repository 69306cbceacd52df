from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import (
    BadRequest,
)
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_chat.messages import wire_call_id
from llm.wire.items import function_call_output, message, user_message
from tests.llm.chat import (
    CODEC,
    ISSUER,
    answered,
    function_call,
    messages,
    reasoning,
    tool_call,
)


class TestMessages:
    def test_text_is_a_plain_string(self):
        assert messages(user_message("Hi"), message("assistant", "Ho")) == [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Ho"},
        ]

    def test_instructions_come_first_in_the_role_the_host_knows(self):
        openai = OpenAIChatCodec(system_role="developer")
        for codec, role in ((CODEC, "system"), (openai, "developer")):
            sent_messages = messages(
                user_message("Hi"), codec=codec, instructions="Be brief."
            )
            assert sent_messages[0] == {"role": role, "content": "Be brief."}

    def test_strict_templates_get_one_system_message_in_front(self):
        strict = OpenAIChatCodec(merge_system=True)
        items = user_message("Hi"), message("developer", "Now in French.")
        assert messages(*items, codec=strict, instructions="Be brief.") == [
            {"role": "system", "content": "Be brief.\n\nNow in French."},
            {"role": "user", "content": "Hi"},
        ]

    @pytest.mark.parametrize("text", ["Here:", ""])
    def test_its_host_gets_the_pictures_back_that_it_has_drawn(self, text):
        images = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
            for data in ("AAA", "BBB")
        ]
        builder = answered({"content": text, "images": images})
        items = [
            {**item, "provider_data": {"issuer": ISSUER, "raw": raw}}
            if (raw := builder.proofs.get(item["id"]))
            else item
            for item in builder.output
        ]
        assert messages(*items, user_message("bluer")) == [
            {"role": "assistant", "content": text, "images": images},
            {"role": "user", "content": "bluer"},
        ]

    def test_a_refusal_is_apart_from_the_text_after_it(self):
        answer = message("assistant", "B")
        refusal = {"type": "refusal", "refusal": "no"}
        [sent] = messages({**answer, "content": [refusal, *answer["content"]]})
        assert sent["content"] == "no\n\nB"

    def test_consecutive_assistant_items_become_one_message(self):
        assert messages(
            message("assistant", "Let me see."),
            function_call("a"),
            function_call("b"),
            function_call_output("b", "B"),
            function_call_output("a", "A"),
            message("assistant", "So."),
        ) == [
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [tool_call("a"), tool_call("b")],
            },
            {"role": "tool", "tool_call_id": "a", "content": "A"},
            {"role": "tool", "tool_call_id": "b", "content": "B"},
            {"role": "assistant", "content": "So."},
        ]

    def test_calls_after_outputs_are_another_message(self):
        sent_messages = messages(
            function_call("a"),
            function_call_output("a", "A"),
            function_call("b"),
            function_call_output("b", "B"),
        )
        assert [m["role"] for m in sent_messages] == [
            "assistant",
            "tool",
            "assistant",
            "tool",
        ]
        assert sent_messages[0]["content"] is None

    def test_pictures_of_a_tool_are_shown_behind_the_last_output(self):
        picture = {"type": "input_image", "image_url": "data:image/png;base64,AAA"}
        seen = [{"type": "input_text", "text": "Seen:"}, picture]
        sent_messages = messages(
            function_call("a"),
            function_call("b"),
            function_call_output("a", seen),
            function_call_output("b", "B"),
            user_message("And?"),
        )
        assert [m["role"] for m in sent_messages] == [
            "assistant",
            "tool",
            "tool",
            "user",
            "user",
        ]
        assert (
            sent_messages[1]["content"]
            == "Seen:\n[image 1 of the tools] follows below."
        )
        assert sent_messages[3]["content"] == [
            {"type": "text", "text": "[image 1 of the tools]"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA"}},
        ]

    def test_pictures_and_files_in_a_message_are_parts(self):
        content = [
            {"type": "input_text", "text": "See"},
            {
                "type": "input_image",
                "image_url": "https://x.example/i",
                "detail": "high",
            },
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": "data:application/pdf",
            },
        ]
        item = {"type": "message", "role": "user", "content": content}
        [sent_message] = messages(item, codec=OpenAIChatCodec(files=True))
        assert sent_message["content"] == [
            {"type": "text", "text": "See"},
            {
                "type": "image_url",
                "image_url": {"url": "https://x.example/i", "detail": "high"},
            },
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf"},
            },
        ]

    @pytest.mark.parametrize("files", [False, True])
    def test_a_text_file_is_sent_as_text(self, files: bool):
        data = "data:text/plain;base64,SGkgdGhlcmU="
        part = {"type": "input_file", "filename": "a.txt", "file_data": data}
        item = {"type": "message", "role": "user", "content": [part]}
        sent_messages = messages(item, codec=OpenAIChatCodec(files=files))
        assert sent_messages == [{"role": "user", "content": "a.txt:\n\nHi there"}]

    @pytest.mark.parametrize(
        "part",
        [
            {"type": "input_image", "file_id": "file_1"},
            {"type": "input_image", "image_url": "https://x.example/i"},
            {"type": "input_file", "file_url": "https://x.example/f"},
            {"type": "input_file", "file_data": "data:application/pdf;base64,AAA"},
            {"type": "input_file", "file_data": "data:text/plain;base64,%"},
            {"type": "input_video"},
        ],
    )
    def test_unsupported_content_is_refused_in_a_sentence(self, part):
        item = {"type": "message", "role": "user", "content": [part]}
        with pytest.raises(BadRequest, match=r"This provider does not accept .+\."):
            messages(item, codec=OpenAIChatCodec(image_urls=False))

    def test_a_refusal_is_sent_as_text(self):
        item = {
            **message("assistant", ""),
            "content": [{"type": "refusal", "refusal": "No."}],
        }
        assert messages(item) == [{"role": "assistant", "content": "No."}]

    def test_receipts_of_other_hosts_tools_are_left_out(self):
        receipts = [{"type": "web_search_call"}, {"type": "parley:approval"}]
        assert messages(*receipts, user_message("Hi")) == [
            {"role": "user", "content": "Hi"}
        ]

    def test_an_unknown_item_is_refused(self):
        with pytest.raises(BadRequest, match="'riddle' cannot be sent"):
            messages({"type": "riddle"})

    def test_arguments_that_are_no_object_are_wrapped(self):
        sent_messages = messages(function_call("a", '{"x": ['), function_call("b", ""))
        arguments = [
            call["function"]["arguments"] for call in sent_messages[0]["tool_calls"]
        ]
        assert arguments == ['{"_raw": "{\\"x\\": ["}', "{}"]

    def test_custom_calls_keep_their_shape(self):
        item = {
            "type": "custom_tool_call",
            "call_id": "a",
            "name": "sql",
            "input": "SELECT 1",
        }
        output = {"type": "custom_tool_call_output", "call_id": "a", "output": "1"}
        assert messages(item, output) == [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "custom",
                        "custom": {"name": "sql", "input": "SELECT 1"},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "1"},
        ]

    @given(st.text())
    def test_call_ids_fit_their_host_and_stay_the_same(self, call_id: str):
        nine, usual = wire_call_id(call_id, 9), wire_call_id(call_id)
        assert len(nine) == 9
        assert nine.isalnum()
        assert 0 < len(usual) <= 40
        assert wire_call_id(usual) == usual
        assert wire_call_id(nine, 9) == nine

    def test_a_call_and_its_output_keep_one_id(self):
        [sent_message, output] = messages(
            function_call("functions.f:0"), function_call_output("functions.f:0", "x")
        )
        assert sent_message["tool_calls"][0]["id"] == output["tool_call_id"]


class TestProofs:
    DETAILS = [{"type": "reasoning.text", "text": "Hm.", "signature": "s", "index": 0}]

    def test_go_back_to_their_maker(self):
        extra = {"extra_content": {"google": {"thought_signature": "sig"}}}
        assert messages(
            reasoning({"reasoning_details": self.DETAILS}), function_call(raw=extra)
        )[:1] == [
            {
                "role": "assistant",
                "content": None,
                "reasoning_details": self.DETAILS,
                "tool_calls": [tool_call(**extra)],
            }
        ]

    def test_proofs_go_to_no_other_provider(self):
        other = {**ISSUER, "route": "2:2"}
        items = (
            reasoning({"reasoning_content": "Hm."}, other),
            message("assistant", "a"),
        )
        assert messages(*items) == [{"role": "assistant", "content": "a"}]

    def test_pieces_of_one_answer_are_put_together_again(self):
        later = [{"type": "reasoning.encrypted", "data": "x", "index": 0}]
        [sent_message] = messages(
            reasoning({"reasoning_details": self.DETAILS, "reasoning": "a"}),
            message("assistant", "Yes."),
            reasoning({"reasoning_details": later, "reasoning": "b"}),
        )
        assert sent_message["reasoning_details"] == [*self.DETAILS, *later]
        assert sent_message["reasoning"] == "ab"

    def test_thinking_parts_stand_before_the_text(self):
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
        [sent_message] = messages(
            reasoning({"content": [thinking]}), message("assistant", "a")
        )
        assert sent_message["content"] == [thinking, {"type": "text", "text": "a"}]

    def test_a_thought_that_led_to_nothing_is_not_sent(self):
        assert messages(reasoning({"reasoning_content": "Hm."})) == []

    def test_decoded_reasoning_goes_back_unchanged(self):
        """Through decoder, builder and encoder, byte for byte."""
        details = [
            {"type": "reasoning.summary", "summary": "Hm.", "index": 0},
            {"type": "reasoning.encrypted", "data": "xyz", "id": "rs_1", "index": 0},
        ]
        builder = answered(
            {
                "content": "Let me see.",
                "reasoning_details": details,
                "tool_calls": [tool_call("call_1", '{"a":1}')],
            }
        )
        items = [
            {**i, "provider_data": {"issuer": ISSUER, "raw": builder.proofs[i["id"]]}}
            if i["id"] in builder.proofs
            else i
            for i in builder.output
        ]
        assert messages(*items)[:1] == [
            {
                "role": "assistant",
                "content": "Let me see.",
                "reasoning_details": details,
                "tool_calls": [tool_call("call_1", '{"a":1}')],
            }
        ]
