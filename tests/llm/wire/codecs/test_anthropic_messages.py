from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import BadRequest
from llm.wire.items import function_call_output, message, user_message
from llm.wire.request import Request
from tests.llm.claude import (
    CALL,
    CODEC,
    FOUND,
    NEW,
    OLD,
    OTHER,
    REDACTED,
    SEARCH,
    TEXT,
    THOUGHT,
    call,
    encode,
    issued,
    messages,
    read,
    stored_items,
    streamed,
    text,
)

HI = user_message("Hi")
PNG = "data:image/png;base64,iVBORw0K"
PDF = "data:application/pdf;base64,JVBERi0="


def result(id: str = "toolu_1", *blocks: dict, **fields: object) -> dict:
    content = {"content": list(blocks)} if blocks else {}
    return {"type": "tool_result", "tool_use_id": id, **content, **fields}


def user(*parts: dict) -> dict:
    return {"type": "message", "role": "user", "content": list(parts)}


def output(*parts: dict) -> dict:
    return function_call_output("toolu_1", list(parts))


def heard(*parts: dict) -> list:
    [(role, blocks)] = messages(user(*parts))
    assert role == "user"
    return blocks


class TestTurns:
    def test_each_side_speaks_in_turn(self):
        sent_messages = messages(
            HI, user_message("there"), message("assistant", "Yes?"), user_message("Go")
        )
        assert sent_messages == [
            ("user", [text("Hi"), text("there")]),
            ("assistant", [text("Yes?")]),
            ("user", [text("Go")]),
        ]

    def test_empty_texts_are_omitted(self):
        sent_messages = messages(
            HI, message("assistant", " \n"), user_message(""), user_message("Go")
        )
        assert sent_messages == [("user", [text("Hi"), text("Go")])]

    def test_the_first_word_is_the_users(self):
        sent_messages = messages(message("assistant", "Welcome."), HI)
        assert [role for role, _ in sent_messages] == ["user", "assistant", "user"]

    def test_so_is_the_last(self):
        sent_messages = messages(HI, message("assistant", "It was"))
        assert sent_messages[-1] == ("user", [text("Go on.")])

    def test_silence_cannot_be_answered(self):
        with pytest.raises(BadRequest):
            encode(user_message(""))

    def test_a_refusal_goes_back_as_text(self):
        refusal = {"type": "refusal", "refusal": "No."}
        answer = {"type": "message", "role": "assistant", "content": [refusal]}
        assert messages(HI, answer, HI)[1] == ("assistant", [text("No.")])

    def test_the_easy_form_of_a_message_will_do(self):
        assert messages({"role": "user", "content": "Hi"}) == [("user", [text("Hi")])]

    def test_an_item_we_do_not_know_is_refused(self):
        with pytest.raises(BadRequest, match="'poem'"):
            encode(HI, {"type": "poem"})

    @pytest.mark.parametrize("type", ["web_search_call", "compaction", "parley:note"])
    def test_receipts_of_others_stay_out(self, type):
        assert messages(HI, {"type": type}) == [("user", [text("Hi")])]


class TestInstructions:
    def test_leading_instructions_are_the_system_prompt(self):
        body = encode(message("developer", "Be kind."), HI, instructions="Be brief.")
        assert [block["text"] for block in body["system"]] == ["Be brief.", "Be kind."]

    def test_later_instructions_follow_the_users_turn(self):
        sent_messages = messages(
            HI,
            message("assistant", "Yes?"),
            message("developer", "Be kind."),
            user_message("Go"),
        )
        assert sent_messages[2:] == [
            ("user", [text("Go")]),
            ("system", [text("Be kind.")]),
        ]

    def test_it_stays_where_it_was_once_it_is_answered(self):
        items = [HI, message("system", "Be kind."), message("assistant", "Yes?"), HI]
        assert [role for role, _ in messages(*items)] == [
            "user",
            "system",
            "assistant",
            "user",
        ]

    def test_outputs_are_a_turn_of_the_users(self):
        sent_messages = messages(
            HI, call(), function_call_output("toolu_1", "It."), message("system", "Now")
        )
        assert [role for role, _ in sent_messages[2:]] == ["user", "system"]

    def test_without_a_user_turn_before_it_an_instruction_is_a_user_message(self):
        sent_messages = messages(
            HI, message("assistant", "Yes?"), message("system", "Be kind.")
        )
        assert sent_messages[-1] == ("user", [text("<system>\nBe kind.\n</system>")])

    def test_so_it_is_to_models_that_would_not_heed_it(self):
        items = [HI, message("developer", "Be kind."), user_message("Go")]
        [(_, blocks)] = messages(*items, model=OLD)
        assert blocks[1] == text("<system>\nBe kind.\n</system>")
        assert CODEC.degraded(Request(model=OLD, items=items)) == ["input"]
        assert CODEC.degraded(Request(model=NEW, items=items)) == []


class TestCalls:
    def test_outputs_come_first_and_in_the_order_of_their_calls(self):
        sent_messages = messages(
            HI,
            call("a"),
            call("b"),
            function_call_output("b", "B"),
            function_call_output("a", "A"),
            user_message("Thanks"),
        )
        assert sent_messages[2] == (
            "user",
            [result("a", text("A")), result("b", text("B")), text("Thanks")],
        )

    def test_a_call_of_others_is_rebuilt(self):
        sent_messages = messages(HI, call(), function_call_output("toolu_1", "It."))
        assert sent_messages[1] == ("assistant", [CALL])

    @pytest.mark.parametrize(
        ("arguments", "given"),
        [("", {}), ("{}", {}), ("[1]", {"_raw": "[1]"}), ('{"a', {"_raw": '{"a'})],
    )
    def test_arguments_must_be_an_object(self, arguments, given):
        assert messages(HI, call(arguments=arguments))[1][1][0]["input"] == given

    def test_a_custom_call_has_its_text_as_input(self):
        custom = {**call(), "type": "custom_tool_call", "input": "ls"}
        answer = {
            "type": "custom_tool_call_output",
            "call_id": "toolu_1",
            "output": "a",
        }
        sent_messages = messages(HI, custom, answer)
        assert sent_messages[1][1][0]["input"] == {"input": "ls"}
        assert sent_messages[2][1] == [result("toolu_1", text("a"))]

    def test_a_name_has_only_letters_that_are_taken(self):
        [use] = messages(HI, call(name="server.tool/x"))[1][1]
        assert use["name"] == "server_tool_x_d8a31773"

    @pytest.mark.parametrize("words", ["Error: lost", "ERROR: lost"])
    def test_a_failure_is_marked(self, words):
        sent_messages = messages(HI, call(), function_call_output("toolu_1", words))
        assert sent_messages[2][1] == [result("toolu_1", text(words), is_error=True)]

    def test_an_output_may_be_empty(self):
        sent_messages = messages(HI, call(), function_call_output("toolu_1", ""))
        assert sent_messages[2][1] == [result()]

    def test_an_output_may_show_pictures_and_papers(self):
        sent_messages = messages(
            HI,
            call(),
            output(
                {"type": "input_text", "text": "See"},
                {"type": "input_image", "image_url": PNG},
                {"type": "input_file", "file_data": PDF, "filename": "a.pdf"},
            ),
        )
        [answer] = sent_messages[2][1]
        assert [b["type"] for b in answer["content"]] == ["text", "image", "document"]

    def test_an_unanswered_call_gets_an_error_output(self):
        sent_messages = messages(HI, call(), user_message("Never mind"))
        answer, words = sent_messages[2][1]
        assert (answer["tool_use_id"], answer["is_error"]) == ("toolu_1", True)
        assert words == text("Never mind")

    def test_an_output_of_a_missing_call_is_sent_as_text(self):
        sent_messages = messages(HI, function_call_output("gone", "It."))
        assert sent_messages == [("user", [text("Hi"), text("It.")])]

    def test_a_toolset_is_named_again_with_the_output(self):
        block = {**CALL, "toolset_name": "computer"}
        sent_messages = messages(
            HI,
            issued(call(), {"content": [block]}),
            function_call_output("toolu_1", "ok"),
        )
        assert sent_messages[2][1][0]["toolset_name"] == "computer"

    @given(st.lists(st.text(min_size=1, max_size=70), min_size=1, max_size=4))
    def test_any_call_id_is_taken_and_answered(self, ids):
        turns = [i for id in ids for i in (call(id), function_call_output(id, id))]
        body = CODEC.encode(Request(model=NEW, items=[HI, *turns]))
        uses = [
            block["id"]
            for message in body["messages"]
            for block in message["content"]
            if block["type"] == "tool_use"
        ]
        answers = [
            block["tool_use_id"]
            for message in body["messages"]
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        assert uses == answers
        assert len({*uses}) == len(ids)
        assert all(re.fullmatch("[a-zA-Z0-9_-]+", id) for id in uses)

    def test_the_same_id_always_becomes_the_same(self):
        first, again = (messages(HI, call("a.b:c"))[1][1] for _ in range(2))
        assert first == again
        assert first[0]["id"] != "a.b:c"


class TestProofs:
    BLOCKS = (THOUGHT, REDACTED, TEXT, SEARCH, FOUND, CALL)

    def test_go_back_to_their_maker_as_they_came(self):
        items = stored_items(read(*streamed(*self.BLOCKS), reason="tool_use"))
        sent_messages = messages(HI, *items, function_call_output("toolu_1", "It."))
        assert sent_messages[1] == ("assistant", list(self.BLOCKS))

    def test_but_to_no_other_provider(self):
        items = stored_items(read(*streamed(*self.BLOCKS), reason="tool_use"), OTHER)
        sent_messages = messages(HI, *items, function_call_output("toolu_1", "It."))
        assert sent_messages[1] == ("assistant", [TEXT, CALL])

    def test_empty_text_would_be_refused(self):
        items = stored_items(read(*streamed(THOUGHT, {**TEXT, "text": "\n\n"}, CALL)))
        assert messages(HI, *items)[1][1] == [THOUGHT, CALL]

    def test_a_call_id_that_comes_again_is_made_new(self):
        first, again = (issued(call(), {"content": [CALL]}) for _ in range(2))
        done = function_call_output("toolu_1", "It.")
        sent_messages = messages(HI, first, done, again, done)
        assert sent_messages[1][1][0]["id"] == "toolu_1" != sent_messages[3][1][0]["id"]
        assert sent_messages[4][1][0]["tool_use_id"] == sent_messages[3][1][0]["id"]
        assert CALL["id"] == "toolu_1"

    def test_a_paused_turn_ends_with_what_the_assistant_did(self):
        items = stored_items(read(*streamed(TEXT, SEARCH), reason="pause_turn"))
        assert messages(HI, *items)[-1] == ("assistant", [TEXT, SEARCH])

    def test_and_goes_on_as_one_message(self):
        paused = stored_items(read(*streamed(TEXT, SEARCH), reason="pause_turn"))
        went_on = stored_items(read(*streamed(FOUND, TEXT)))
        sent_messages = messages(HI, *paused, *went_on, HI)
        assert sent_messages[1] == ("assistant", [TEXT, SEARCH, FOUND, TEXT])

    def test_a_search_that_waits_for_our_tools_stays(self):
        items = stored_items(read(*streamed(SEARCH, CALL), reason="tool_use"))
        sent_messages = messages(HI, *items, function_call_output("toolu_1", "It."))
        assert sent_messages[1] == ("assistant", [SEARCH, CALL])

    def test_one_that_never_ended_stays_out(self):
        items = stored_items(read(*streamed(TEXT, SEARCH), reason="pause_turn"))
        assert messages(HI, *items, HI)[1] == ("assistant", [TEXT])

    def test_the_container_is_named_where_code_may_run(self):
        builder = read(*streamed(SEARCH, FOUND), container={"id": "container_1"})
        items = [HI, *stored_items(builder), HI]
        code = {"type": "code_interpreter", "container": {"type": "auto"}}
        assert encode(*items, tools=[code])["container"] == "container_1"
        assert "container" not in encode(*items)


class TestParts:
    @pytest.mark.parametrize(
        ("url", "source"),
        [
            (PNG, {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"}),
            (
                "data:image/jpg;base64,/9j/",
                {"type": "base64", "media_type": "image/jpeg", "data": "/9j/"},
            ),
            ("https://a.test/b.png", {"type": "url", "url": "https://a.test/b.png"}),
        ],
    )
    def test_images_are_sent_or_pointed_at(self, url, source):
        part = {"type": "input_image", "image_url": url, "detail": "auto"}
        assert heard(part) == [{"type": "image", "source": source}]

    @pytest.mark.parametrize(
        ("file", "source"),
        [
            (
                {"file_data": PDF},
                {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            ),
            (
                {"file_data": "JVBERi0="},
                {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            ),
            (
                {"file_data": "data:text/markdown;base64,SGk="},
                {"type": "text", "media_type": "text/plain", "data": "Hi"},
            ),
            (
                {"file_data": "data:text/plain,H%C3%A4"},
                {"type": "text", "media_type": "text/plain", "data": "Hä"},
            ),
            (
                {"file_url": "https://a.test/b"},
                {"type": "url", "url": "https://a.test/b"},
            ),
        ],
    )
    def test_files_are_documents(self, file, source):
        part = {"type": "input_file", "filename": "b", **file}
        assert heard(part) == [{"type": "document", "title": "b", "source": source}]

    @pytest.mark.parametrize(
        "part",
        [
            {"type": "input_image", "file_id": "file-1"},
            {"type": "input_image", "image_url": "data:image/tiff;base64,AAAA"},
            {"type": "input_file", "file_id": "file-1"},
            {"type": "input_file", "file_data": "data:application/zip;base64,AAAA"},
            {"type": "input_file", "file_data": "data:text/plain;base64,AP8="},
            {"type": "input_audio", "input_audio": {}},
        ],
    )
    def test_unsupported_content_is_refused(self, part):
        with pytest.raises(BadRequest, match="Claude does not accept"):
            heard(part)

    def test_an_image_has_no_detail_here(self):
        part = {"type": "input_image", "image_url": PNG, "detail": "high"}
        assert CODEC.degraded(Request(model=NEW, items=[user(part)])) == ["input"]


class TestCache:
    MARK = {"type": "ephemeral"}

    def test_the_system_prompt_is_marked_at_its_end(self):
        body = encode(message("system", "B"), HI, instructions="A")
        assert [b.get("cache_control") for b in body["system"]] == [None, self.MARK]

    def test_without_one_the_last_tool_is(self):
        tools = [{"type": "function", "name": n, "parameters": {}} for n in "ab"]
        marks = [t.get("cache_control") for t in encode(HI, tools=tools)["tools"]]
        assert marks == [None, self.MARK]

    def test_a_conversation_is_marked_at_its_end(self):
        body = encode(HI, message("assistant", "Yes?"), HI)
        marked = ["cache_control" in m["content"][-1] for m in body["messages"]]
        assert marked == [False, False, True]

    def test_a_single_question_is_not(self):
        assert "cache_control" not in encode(HI)["messages"][0]["content"][0]

    def test_proofs_are_never_marked(self):
        items = stored_items(read(*streamed(TEXT, SEARCH), reason="pause_turn"))
        body = encode(HI, *items)
        assert body["messages"][-1]["content"] == [TEXT, SEARCH]
        assert body["messages"][0]["content"][-1]["cache_control"] == self.MARK
