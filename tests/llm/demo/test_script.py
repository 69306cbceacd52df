from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.demo.cities import ZONES, cities
from llm.demo.problem import Problem
from llm.demo.prompt import AnsweredCall, DemoPrompt, Message, OfferedTool
from llm.demo.request_schemas import choose
from llm.demo.script import MAX_DELAY, script_for
from llm.demo.steps import CallTool, Say, Script, Think
from llm.demo.texts import GREETING, HELP, INSTRUCTIONS, NO_TOOL, SHOWPIECE
from llm.demo.tool_selection import expression
from llm.demo.words import pieces, words


def offer(name: str, *properties: str, description: str = "") -> OfferedTool:
    schema = {
        "type": "object",
        "properties": {property: {"type": "string"} for property in properties},
        "required": list(properties),
    }
    return OfferedTool(name, description, schema)


WEATHER = offer("weather_demo", "city")
TIME = offer("current_time", "timezone")
CALCULATOR = offer("calculator", "expression")
TOOLS = [WEATHER, TIME, CALCULATOR]
BOTH = "What is the weather in Paris, and what time is it there?"


def prompt(*spoken_text: str, tools: list[OfferedTool] = TOOLS, **more) -> DemoPrompt:
    messages = [Message("user", text) for text in spoken_text]
    return DemoPrompt(messages=messages, tools=tools, **more)


def spoken_text(prompt: DemoPrompt) -> str:
    steps = script_for(prompt).steps
    return "".join(step.text for step in steps if isinstance(step, Say))


def called(prompt: DemoPrompt) -> list[tuple[str, dict[str, str]]]:
    calls = [step for step in script_for(prompt).steps if isinstance(step, CallTool)]
    return [(call.name, json.loads(call.arguments)) for call in calls]


def test_files_as_text_precede_the_question():
    files = '<file name="a.md">\n# A\n</file><file name="b.md">\n/help\n</file>'
    assert spoken_text(prompt(f"{files}/echo one")) == "one"
    assert spoken_text(prompt(f"/echo {files}")) == files


# Calling


def test_a_question_for_two_things_calls_two_tools_after_saying_so():
    first, *calls = script_for(prompt(BOTH)).steps
    assert first == Say(
        "Let me look that up with `weather_demo` and `current_time`.", "commentary"
    )
    assert calls == [
        CallTool("weather_demo", '{"city":"Paris"}'),
        CallTool("current_time", '{"timezone":"Europe/Paris"}'),
    ]


@pytest.mark.parametrize(
    ("question", "calls"),
    [
        ("weather in tokyo?", [("weather_demo", {"city": "Tokyo"})]),
        (
            "Will it rain in Oslo and Lima?",
            [("weather_demo", {"city": "Oslo"}), ("weather_demo", {"city": "Lima"})],
        ),
        (
            "What’s the weather in Ulm Nord today",
            [("weather_demo", {"city": "Ulm Nord"})],
        ),
        ("What time is it?", [("current_time", {"timezone": "UTC"})]),
        (
            "What time is it in New York?",
            [("current_time", {"timezone": "America/New_York"})],
        ),
        ("What time is it in Ulm Nord?", []),
        ("what is 12*7+3?", [("calculator", {"expression": "12*7+3"})]),
        ("Use calculator", [("calculator", {"expression": "demo"})]),
        (
            'Use calculator with "2 ^ 8"',
            [("calculator", {"expression": "2 ^ 8"})],
        ),
        ("What is the weather?", []),
        ("Hello there", []),
    ],
)
def test_tools_are_called_when_the_question_needs_them(question, calls):
    assert called(prompt(question)) == calls


def test_other_tools_are_recognised_by_name_description_and_schema():
    theirs = [
        offer("get_forecast", "unit", "location"),
        offer("wall", "place", description="The clock on a place's wall."),
        offer("do_maths", "formula"),
    ]
    assert called(prompt(f"{BOTH} And what is 2 plus 3?", tools=theirs)) == [
        ("get_forecast", {"unit": "demo", "location": "Paris"}),
        ("wall", {"place": "Paris"}),
        ("do_maths", {"formula": "2 + 3"}),
    ]


def test_a_follow_up_takes_over_what_it_leaves_out():
    assert called(prompt("Weather in Rome?", "And in Oslo?")) == [
        ("weather_demo", {"city": "Oslo"})
    ]
    assert called(prompt("Weather in Rome?", "What time is it there?")) == [
        ("current_time", {"timezone": "Europe/Rome"})
    ]


def test_without_parallel_calls_one_follows_the_other_and_then_comes_the_answer():
    request = prompt(BOTH, parallel=False)
    assert called(request) == [("weather_demo", {"city": "Paris"})]
    weather = AnsweredCall("weather_demo", {"city": "Paris"}, "sunny")
    request = replace(request, answered=[weather])
    assert called(request) == [("current_time", {"timezone": "Europe/Paris"})]
    assert spoken_text(request) == ""
    time = AnsweredCall("current_time", {"timezone": "Europe/Paris"}, "noon")
    request = replace(request, answered=[weather, time])
    assert called(request) == []
    assert "sunny" in spoken_text(request)
    assert "noon" in spoken_text(request)


def test_a_required_call_is_made_even_when_the_question_needs_none():
    tools, must_call = choose(TOOLS, {"type": "function", "name": "calculator"})
    request = prompt("Hello", tools=list(tools), must_call=must_call)
    assert called(request) == [("calculator", {"expression": "demo"})]
    assert called(replace(request, messages=[Message("user", "/echo no")])) != []


@pytest.mark.parametrize(
    ("choice", "names", "must_call"),
    [
        (None, ["weather_demo", "current_time", "calculator"], False),
        ("auto", ["weather_demo", "current_time", "calculator"], False),
        ("none", [], False),
        ("required", ["weather_demo", "current_time", "calculator"], True),
        ({"type": "function", "name": "calculator"}, ["calculator"], True),
        (
            {"type": "function", "function": {"name": "calculator"}},
            ["calculator"],
            True,
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "calculator"}],
            },
            ["calculator"],
            False,
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "calculator"}}],
                },
            },
            ["calculator"],
            True,
        ),
    ],
)
def test_tool_choice_of_both_wires(choice, names, must_call):
    tools, must = choose(TOOLS, choice)
    assert ([tool.name for tool in tools], must) == (names, must_call)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "x"}])
def test_a_choice_that_names_no_tool_is_refused(choice):
    with pytest.raises(Problem) as caught:
        choose([], choice)
    assert caught.value.error["param"] == "tool_choice"


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("What is 3 × 4?", "3 * 4"),
        ("(1+2)*3", "(1+2)*3"),
        ("calculate 2^10", "2**10"),
        ("how much is 10 divided by 4", "10 / 4"),
        ("12 - 5 = ?", "12 - 5"),
        ("What is -3 + 5?", "-3 + 5"),
        ("What is 1,000 minus 1?", "1000 - 1"),
        ("What happened on 2026-01-02?", ""),
        ("What is chapter 7?", ""),
        ("It went 3-2 for us", ""),
    ],
)
def test_arithmetic_is_found_in_words_and_symbols(question, found):
    assert expression(question) == found


def test_every_city_is_found_in_any_case():
    for city in ZONES:
        assert cities(f"so, {city.upper()}!") == [city]


@pytest.mark.parametrize(
    "noise", ["-", "(", "1 ", "what is ", "/cut ", "in A ", '"', "say "]
)
def test_a_megabyte_of_noise_is_answered_like_anything_else(noise):
    assert script_for(prompt(noise * (1_000_000 // len(noise)))).steps


# Answering


def test_outputs_become_a_list_with_a_line_each():
    answered = [
        AnsweredCall(
            "weather_demo",
            {"city": "Paris"},
            '{"city":"Paris","sky":"light *rain*","utc_time":"2026-01-02T03:04:05Z"}',
        ),
        AnsweredCall("current_time", {"timezone": "Asia/Ho_Chi_Minh"}, "14:05"),
        AnsweredCall("calculator", {"expression": "12*7+3"}, "87"),
        AnsweredCall("notes", {}, "one\n\ntwo"),
        AnsweredCall("tags", {"of": "me"}, '["a", {"b": null}, true, null]'),
    ]
    text = spoken_text(prompt(BOTH, answered=answered, tools=[]))
    assert text.startswith(
        "### Here is what I found\n\n"
        "- **Weather in Paris**\n"
        "    - Sky: light \\*rain\\*\n"
        "    - UTC time: 2 January 2026, 03:04\n"
        "- **Time in Ho Chi Minh:** 14:05\n"
        "- **`12*7+3`:** 87\n"
        "- **`notes`**\n"
        "    - one\n"
        "    - two\n"
        "- **`tags` for me**\n"
        "    - a\n"
        '    - `{"b":null}`\n'
        "    - yes\n"
        "    - nothing\n\n"
    )
    assert text.endswith("I am a demo and no AI.")


def test_without_the_tool_it_names_what_is_missing():
    assert spoken_text(prompt(BOTH, tools=[])) == NO_TOOL["weather"]
    assert spoken_text(prompt("What time is it?", tools=[])) == NO_TOOL["time"]
    assert spoken_text(prompt("What is 1+1?", tools=[])) == NO_TOOL["maths"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Reply with exactly: PONG-42", "PONG-42"),
        ("Say exactly:  two\nlines ", "two\nlines"),
        ("My name is Ada. Reply with exactly: OK", "OK"),
        ("Count from 1 to 5", "1, 2, 3, 4, 5"),
        ("Count slowly to 3", "1, 2, 3"),
        ("Count from 3 down to 1", "3, 2, 1"),
        ("/echo  kept as it is ", " kept as it is "),
        ("/echo", ""),
        ("/long 4", "1 2 3 4"),
        ("/markdown", SHOWPIECE),
        ("/help", HELP),
        ("Hello", GREETING),
        ("", GREETING),
    ],
)
def test_known_questions_have_known_answers(question, answer):
    assert spoken_text(prompt(question)) == answer


def test_it_remembers_earlier_messages():
    assert (
        spoken_text(prompt("My name is Ada.", "What is my name?"))
        == "Your name is Ada."
    )
    assert spoken_text(prompt("One", "What did I say before?")).endswith("> One")


def test_attachments_are_counted_not_looked_at():
    message = Message("user", "What is this?", attachments=2)
    assert spoken_text(DemoPrompt(messages=[message])).startswith("I got 2 attachments")


def test_a_conversation_without_a_question_is_greeted():
    assert spoken_text(DemoPrompt(messages=[Message("system", "Be kind.")])) == GREETING


def test_reasoning_comes_first_and_only_on_request():
    assert not any(isinstance(s, Think) for s in script_for(prompt("Hello")).steps)
    for request in (
        prompt("/think Hello"),
        prompt("Hello", effort="low"),
        prompt("Think hard: hello"),
    ):
        first, *_ = script_for(request).steps
        assert isinstance(first, Think)
        assert "Hello" in first.parts[0] or "hello" in first.parts[0]


def test_structured_output_follows_the_tool_calls():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema["required"] = ["n"]
    request = prompt("Weather in Rome?", schema=schema)
    assert called(request) == [("weather_demo", {"city": "Rome"})]
    answer = AnsweredCall("weather_demo", {"city": "Rome"}, "sunny")
    assert spoken_text(replace(request, answered=[answer])) == '{"n":0}'


def test_a_schema_without_an_end_is_refused():
    with pytest.raises(Problem) as caught:
        script_for(prompt("Hello", schema={"$ref": "#"}))
    assert caught.value.error["code"] == "invalid_json_schema"


# Instructions


@pytest.mark.parametrize("status", ["400", "401", "404", "429", "500", "503", "599"])
def test_fail_answers_with_that_status(status):
    with pytest.raises(Problem) as caught:
        script_for(prompt(f"/fail {status}"))
    assert caught.value.status == int(status)
    assert (caught.value.retry_after is not None) == (status == "429")


@pytest.mark.parametrize(
    ("what", "status", "code"),
    [
        ("quota", 429, "insufficient_quota"),
        ("context", 400, "context_length_exceeded"),
        ("policy", 400, "content_policy_violation"),
    ],
)
def test_fail_knows_some_failures_by_name(what, status, code):
    with pytest.raises(Problem) as caught:
        script_for(prompt(f"/fail {what}"))
    assert (caught.value.status, caught.value.error["code"]) == (status, code)


@pytest.mark.parametrize("text", ["/fail 200", "/fail x", "/long many", "/etc/hosts"])
def test_a_wrong_instruction_is_answered_with_the_list_of_right_ones(text):
    assert spoken_text(prompt(text)).endswith(HELP)


def test_stage_directions_combine_and_leave_the_question():
    script = script_for(prompt("/slow 5 /think /slow 2.5 /cut Count to 3"))
    assert (script.delay, script.ending) == (7.5, "cut")
    think, say = script.steps
    assert isinstance(think, Think)
    assert say == Say("1, 2, 3")


def test_a_broken_off_answer_has_begun_before():
    assert script_for(prompt("/cut")).size == 60
    assert script_for(prompt("/fail stream")).ending == "error"


def test_slow_has_an_end():
    assert script_for(prompt("/slow 9999 hello")).delay == MAX_DELAY


def test_tool_makes_the_requested_call_and_reports_its_output():
    request = prompt('/tool calculator {"expression": "1"}')
    assert called(request) == [("calculator", {"expression": "1"})]
    done = replace(
        request, answered=[AnsweredCall("calculator", {"expression": "1"}, "1")]
    )
    assert called(done) == []
    assert called(prompt("/tool calculator")) == [
        ("calculator", {"expression": "demo"})
    ]


def test_tool_passes_broken_arguments_on_once():
    request = prompt("/tool calculator {broken")
    assert script_for(request).steps[-1] == CallTool("calculator", "{broken")
    done = replace(request, answered=[AnsweredCall("calculator", {}, "error")])
    assert not any(isinstance(step, CallTool) for step in script_for(done).steps)


def test_tool_names_the_tools_there_are():
    assert "`weather_demo`" in spoken_text(prompt("/tool nothing {}"))
    assert "none" in spoken_text(prompt("/tool nothing {}", tools=[]))


def test_help_lists_every_instruction():
    for name in INSTRUCTIONS:
        assert f"`{name}`" in HELP


# Laws


@given(st.text())
def test_words_and_pieces_join_to_the_text(text):
    assert "".join(words(text)) == text
    assert "".join(pieces(text)) == text


@given(st.text(), st.integers(1, 40))
def test_a_limited_script_has_as_many_words_as_allowed(text, limit):
    steps = [Think((text, "b c")), Say(text), CallTool("f", json.dumps({"a": text}))]
    whole = Script(steps=steps)
    limited = whole.truncate(limit)
    assert limited.size == min(whole.size, limit)
    assert (limited.ending == "length") == (whole.size > limit)


@given(st.text(alphabet="/abcdefilnoprstuvw 0123456789{}?\"'\n"))
def test_any_question_has_the_same_answer_twice(text):
    def outcome() -> Script | int:
        try:
            return script_for(prompt(text))
        except Problem as problem:
            return problem.status

    assert outcome() == outcome()
