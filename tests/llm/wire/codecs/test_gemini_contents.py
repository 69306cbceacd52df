from __future__ import annotations

import pytest

from llm.errors import BadRequest
from llm.wire.codecs.gemini.contents import NO_SIGNATURE
from llm.wire.items import function_call_output, message, user_message
from tests.llm.gemini import (
    ISSUER,
    SIGNED,
    call,
    chunk,
    contents,
    encode,
    function_call,
    read,
    text,
    thought,
    with_proofs,
)

PNG = "data:image/png;base64,iVBORw0K"
INLINE_PNG = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}}
OLD = {"model": "gemini-2.5-flash"}
ELSEWHERE = {**ISSUER, "route": "1:2"}
OUTPUT = function_call_output("call_1", "A cat.")


def user(*parts):
    return {"role": "user", "parts": list(parts)}


def model(*parts):
    return {"role": "model", "parts": list(parts)}


def response(result, name="look", **fields):
    return {"functionResponse": {"name": name, "response": result, **fields}}


def user_item(*content):
    return {"type": "message", "role": "user", "content": list(content)}


def developer(text: str):
    return message("developer", text)


class TestWords:
    def test_people_are_users_and_the_assistant_is_the_model(self):
        sent_contents = contents(
            user_message("Hi"), message("assistant", "Ho"), user_message("He")
        )
        assert sent_contents == [user(text("Hi")), model(text("Ho")), user(text("He"))]

    def test_neighbours_of_one_role_are_one_content(self):
        sent_contents = contents(user_message("a"), user_message("b"))
        assert sent_contents == [user(text("a"), text("b"))]

    def test_empty_texts_are_no_parts(self):
        silent = user_message(""), message("assistant", "")
        sent_contents = contents(user_message("a"), *silent)
        assert sent_contents == [user(text("a"))]

    def test_a_conversation_that_the_assistant_began_is_opened_for_it(self):
        sent_contents = contents(message("assistant", "Hello!"), user_message("Hi"))
        assert sent_contents == [
            user(text("…")),
            model(text("Hello!")),
            user(text("Hi")),
        ]

    def test_there_must_be_something_to_answer(self):
        with pytest.raises(BadRequest, match="no message to answer"):
            contents(developer("Be brief."))

    def test_instructions_and_what_follows_them_at_once_have_their_place(self):
        body = encode(developer("Rhyme."), user_message("Hi"), instructions="Be brief.")
        assert body["systemInstruction"] == {
            "parts": [text("Be brief."), text("Rhyme.")]
        }

    def test_instructions_in_the_midst_are_the_users_text(self):
        sent_contents = contents(
            user_message("a"), message("assistant", "b"), developer("Now in French.")
        )
        assert sent_contents[-1] == user(
            text("\n<system>\nNow in French.\n</system>\n")
        )

    def test_gemma_reads_its_instructions_in_the_users_text(self):
        body = encode(
            user_message("Hi"), instructions="Be brief.", model="gemma-4-31b-it"
        )
        assert "systemInstruction" not in body
        assert body["contents"] == [user(text("Be brief."), text("Hi"))]

    def test_unsupported_content_is_refused(self):
        with pytest.raises(BadRequest, match="'telegram'"):
            contents(user_message("a"), {"type": "telegram"})
        with pytest.raises(BadRequest, match="'input_smell'"):
            contents(user_item({"type": "input_smell"}))

    @pytest.mark.parametrize(
        "kind", ["web_search_call", "mcp_call", "reasoning", "parley:note"]
    )
    def test_receipts_and_thoughts_of_others_stay_here(self, kind):
        sent_contents = contents(user_message("a"), {"type": kind, "id": "x"})
        assert sent_contents == [user(text("a"))]


class TestFiles:
    @pytest.mark.parametrize(
        ("part", "expected"),
        [
            ({"type": "input_image", "image_url": PNG}, INLINE_PNG),
            ({"type": "input_image", "image_url": {"url": PNG}}, INLINE_PNG),
            (
                {"type": "input_image", "image_url": "https://a.example/b.webp?c=d"},
                {
                    "fileData": {
                        "mimeType": "image/webp",
                        "fileUri": "https://a.example/b.webp?c=d",
                    }
                },
            ),
            (
                {"type": "input_image", "file_id": "gs://bucket/picture"},
                {
                    "fileData": {
                        "mimeType": "image/jpeg",
                        "fileUri": "gs://bucket/picture",
                    }
                },
            ),
            (
                {"type": "input_file", "file_data": "data:application/pdf;base64,JVBE"},
                {"inlineData": {"mimeType": "application/pdf", "data": "JVBE"}},
            ),
            (
                {"type": "input_file", "filename": "a.md", "file_data": "SGk="},
                {"inlineData": {"mimeType": "text/markdown", "data": "SGk="}},
            ),
            (
                {
                    "type": "input_file",
                    "file_data": "data:application/json;charset=utf-8;base64,e30=",
                },
                {"inlineData": {"mimeType": "text/plain", "data": "e30="}},
            ),
            (
                {"type": "input_file", "file_data": "data:text/plain,Hi%21"},
                {"inlineData": {"mimeType": "text/plain", "data": "SGkh"}},
            ),
            (
                {"type": "input_file", "file_url": "https://a.example/b"},
                {
                    "fileData": {
                        "mimeType": "application/pdf",
                        "fileUri": "https://a.example/b",
                    }
                },
            ),
            (
                {
                    "type": "input_audio",
                    "input_audio": {"format": "wav", "data": "UklG"},
                },
                {"inlineData": {"mimeType": "audio/wav", "data": "UklG"}},
            ),
        ],
    )
    def test_files_go_along_or_by_their_address(self, part, expected):
        [sent_content] = contents(
            user_item({"type": "input_text", "text": "See"}, part)
        )
        assert sent_content == user(text("See"), expected)

    @pytest.mark.parametrize(
        "part",
        [
            {"type": "input_image", "file_id": "file-1"},
            {"type": "input_file", "file_id": "file-1"},
            {"type": "input_file", "filename": "a.pdf"},
        ],
    )
    def test_another_providers_file_is_refused(self, part):
        with pytest.raises(BadRequest, match="send it along"):
            contents(user_item(part))


class TestOutputs:
    def test_outputs_of_a_round_are_one_content_in_the_order_of_the_calls(self):
        sent_contents = contents(
            user_message("a"),
            function_call("1"),
            function_call("2"),
            function_call_output("2", "B"),
            function_call_output("1", "A"),
            message("assistant", "So."),
            **OLD,
        )
        assert sent_contents[1:] == [
            model(call(id="1", args={}), call(id="2", args={})),
            user(response({"output": "A"}, id="1"), response({"output": "B"}, id="2")),
            model(text("So.")),
        ]

    def test_rounds_follow_each_other(self):
        sent_contents = contents(
            user_message("a"),
            function_call("1"),
            function_call_output("1", "A"),
            function_call("2"),
            function_call_output("2", "B"),
        )
        assert [content["role"] for content in sent_contents] == [
            "user",
            "model",
            "user",
            "model",
            "user",
        ]

    @pytest.mark.parametrize(
        ("output", "expected"),
        [
            ("3 °C", {"output": "3 °C"}),
            ("", {"output": ""}),
            ('{"sum": 5}', {"sum": 5}),
            ("[1]", {"output": "[1]"}),
            ('{"half', {"output": '{"half'}),
            ('{"$ref": "#/a"}', {"output": '{"$ref": "#/a"}'}),
            ("Error: no such city.", {"error": "no such city."}),
        ],
    )
    def test_an_output_is_an_object(self, output, expected):
        output = function_call_output("call_1", output)
        [*_, last] = contents(user_message("a"), function_call(), output)
        assert last == user(response(expected, id="call_1"))

    def test_an_output_names_the_function_and_gemini_s_own_id(self):
        raw = [call("lookup", {}, "8oy1", **SIGNED)]
        sent_contents = contents(user_message("a"), function_call(raw=raw), OUTPUT)
        assert sent_contents[1:] == [
            model(*raw),
            user(response({"output": "A cat."}, "lookup", id="8oy1")),
        ]

    def test_an_id_that_gemini_did_not_issue_is_not_sent(self):
        raw = [call("look", {}, **SIGNED)]
        sent_contents = contents(user_message("a"), function_call(raw=raw), OUTPUT)
        assert sent_contents[-1] == user(response({"output": "A cat."}))

    def test_an_id_too_strange_to_travel_is_left_out_on_both_sides(self):
        strange = function_call("call/1 ü"), function_call_output("call/1 ü", "A")
        _, model_content, result_content = contents(user_message("a"), *strange, **OLD)
        assert model_content == model(call(args={}))
        assert result_content == user(response({"output": "A"}))

    def test_an_output_without_a_call_is_refused(self):
        with pytest.raises(BadRequest, match="'call_1'"):
            contents(user_message("a"), OUTPUT)

    def test_newer_models_see_pictures_inside_an_output(self):
        seen = [
            {"type": "input_text", "text": "Seen:"},
            {"type": "input_image", "image_url": PNG},
        ]
        output = function_call_output("call_1", seen)
        items = user_message("a"), function_call(), output
        inside = response({"output": "Seen:"}, id="call_1", parts=[INLINE_PNG])
        assert contents(*items)[-1] == user(inside)
        behind = response({"output": "Seen:"}, id="call_1")
        shown = user(behind, text("[Returned by look:]"), INLINE_PNG)
        assert contents(*items, **OLD)[-1] == shown

    def test_media_of_an_output_follow_it(self):
        gif = {"type": "input_image", "image_url": "data:image/gif;base64,R0lG"}
        output = function_call_output("call_1", [gif])
        [*_, last] = contents(user_message("a"), function_call(), output)
        assert [list(part) for part in last["parts"]] == [
            ["functionResponse"],
            ["text"],
            ["inlineData"],
        ]

    @pytest.mark.parametrize(
        ("arguments", "args"),
        [
            ("", {}),
            ('{"a": 1}', {"a": 1}),
            ("[1]", {"_raw": "[1]"}),
            ("{", {"_raw": "{"}),
        ],
    )
    def test_arguments_are_an_object(self, arguments, args):
        items = user_message("a"), function_call(arguments=arguments), OUTPUT
        assert contents(*items, **OLD)[1] == model(call(id="call_1", args=args))

    def test_a_custom_call_is_a_function_of_one_text(self):
        custom_call = {
            "type": "custom_tool_call",
            "call_id": "1",
            "name": "sh",
            "input": "ls",
        }
        output = {"type": "custom_tool_call_output", "call_id": "1", "output": "a"}
        assert contents(user_message("a"), custom_call, output, **OLD)[1:] == [
            model(call("sh", {"input": "ls"}, "1")),
            user(response({"output": "a"}, "sh", id="1")),
        ]


class TestSignatures:
    ANSWER = (
        chunk(thought("Hm."), text("Let me see.", **SIGNED)),
        chunk(call(args={"n": 1}, **SIGNED), call(args={"n": 2})),
        chunk(text("", **SIGNED)),
    )

    def test_geminis_content_goes_back_to_it_part_by_part(self):
        items = with_proofs(read(*self.ANSWER))
        assert contents(user_message("a"), *items)[1] == model(
            thought("Hm."),
            text("Let me see.", **SIGNED),
            call(args={"n": 1}, **SIGNED),
            call(args={"n": 2}),
            text("", **SIGNED),
        )

    def test_no_signature_leaves_for_anybody_else(self):
        items = with_proofs(read(*self.ANSWER), ELSEWHERE)
        first, second = (item["call_id"] for item in items[2:])
        assert contents(user_message("a"), *items, **OLD)[1] == model(
            text("Let me see."),
            call(args={"n": 1}, id=first),
            call(args={"n": 2}, id=second),
        )

    def test_newer_models_get_a_placeholder_for_a_missing_signature(self):
        unsigned = {"thoughtSignature": NO_SIGNATURE}
        sent_contents = contents(
            user_message("a"),
            function_call("1"),
            function_call("2"),
            function_call_output("1", "A"),
            function_call_output("2", "B"),
            function_call("3"),
            function_call_output("3", "C"),
            model="gemini-3.8-flash",
        )
        assert sent_contents[1] == model(
            call(id="1", args={}, **unsigned), call(id="2", args={})
        )
        assert sent_contents[3] == model(call(id="3", args={}, **unsigned))

    def test_the_stored_parts_are_not_modified(self):
        raw = [call(args={})]
        contents(user_message("a"), function_call(raw=raw), OUTPUT)
        assert raw == [call(args={})]
