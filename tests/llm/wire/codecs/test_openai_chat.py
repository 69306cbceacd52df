from __future__ import annotations

import pytest

from llm.errors import (
    BadRequest,
)
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_chat.host_options import OPENAI_OPTIONS
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.items import user_message
from llm.wire.request import Request
from tests.llm.chat import (
    encode,
)

TOOL = {
    "type": "function",
    "name": "f",
    "parameters": {"type": "object"},
    "strict": True,
}
OTHER = {"type": "function", "name": "g", "parameters": {"type": "object"}}


class TestOptions:
    def test_a_plain_request_requests_a_stream_with_usage(self):
        assert encode(user_message("Hi")) == {
            "model": "m",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def test_a_whole_answer_is_not_streamed(self):
        assert encode(user_message("Hi"), stream=False).keys() == {"model", "messages"}

    @pytest.mark.parametrize(
        ("options", "body"),
        [
            ({"max_output_tokens": 5}, {"max_tokens": 5}),
            ({"temperature": 0.0, "top_p": 1.0}, {"temperature": 0.0, "top_p": 1.0}),
            ({"stop": ["a"]}, {"stop": ["a"]}),
            ({"seed": 1}, {"seed": 1}),
            ({"presence_penalty": 0.1}, {"presence_penalty": 0.1}),
            ({"frequency_penalty": 0.1}, {"frequency_penalty": 0.1}),
            ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
            ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
            ({"reasoning": {"summary": "auto"}}, {}),
            (
                {"text": {"format": {"type": "json_object"}}},
                {"response_format": {"type": "json_object"}},
            ),
            ({"text": {"format": {"type": "text"}}}, {}),
            (
                {
                    "text": {
                        "format": {
                            "type": "json_schema",
                            "name": "n",
                            "schema": {"type": "object"},
                            "strict": True,
                        }
                    }
                },
                {
                    "response_format": {
                        "type": "json_schema",
                        "json_schema": {
                            "name": "n",
                            "schema": {"type": "object"},
                            "strict": True,
                        },
                    }
                },
            ),
            ({"extra": {"top_k": 3}}, {"top_k": 3}),
            ({"tool_choice": "auto", "parallel_tool_calls": False}, {}),  # no tools
            ({"metadata": {"a": "b"}, "service_tier": "flex"}, {}),  # OpenAI's own
        ],
    )
    def test_options_are_encoded_in_chats_fields(self, options, body):
        sent_body = encode(user_message("Hi"), **options)
        for name in ("model", "messages", "stream", "stream_options"):
            del sent_body[name]
        assert sent_body == body

    @pytest.mark.parametrize(
        ("codec", "options", "body"),
        [
            (
                OpenAIChatCodec(max_tokens_field="max_completion_tokens"),
                {"max_output_tokens": 5},
                {"max_completion_tokens": 5},
            ),
            (
                OpenAIChatCodec(seed_field="random_seed"),
                {"seed": 1},
                {"random_seed": 1},
            ),
            (
                OpenAIChatCodec(efforts={"minimal": "low"}),
                {"reasoning": {"effort": "minimal"}},
                {"reasoning_effort": "low"},
            ),
            (
                OpenAIChatCodec(effort_field="reasoning"),
                {"reasoning": {"effort": "high"}},
                {"reasoning": {"effort": "high"}},
            ),
            (OpenAIChatCodec(drops=frozenset({"seed"})), {"seed": 1}, {}),
            (OpenAIChatCodec(defaults={"store": False}), {}, {"store": False}),
            (
                OpenAIChatCodec(options=OPENAI_OPTIONS),
                {
                    "metadata": {"a": "b"},
                    "prompt_cache_key": "k",
                    "safety_identifier": "u",
                    "service_tier": "flex",
                    "text": {"verbosity": "low"},
                },
                {
                    "metadata": {"a": "b"},
                    "prompt_cache_key": "k",
                    "safety_identifier": "u",
                    "service_tier": "flex",
                    "verbosity": "low",
                },
            ),
        ],
    )
    def test_a_host_may_word_them_otherwise(self, codec, options, body):
        sent_body = encode(user_message("Hi"), codec=codec, stream=False, **options)
        assert sent_body == {"model": "m", "messages": sent_body["messages"], **body}

    def test_the_path_may_contain_the_model(self):
        codec = OpenAIChatCodec(path_template="/deployments/{model}/chat/completions")
        request = Request(model="a/b", items=[])
        assert codec.path(request) == "/deployments/a%2Fb/chat/completions"


class TestTools:
    def test_functions_are_nested(self):
        sent_tools = encode(user_message("Hi"), tools=[TOOL])["tools"]
        assert sent_tools == [
            {
                "type": "function",
                "function": {"name": "f", "parameters": {"type": "object"}},
            }
        ]

    def test_strictness_goes_only_to_hosts_that_know_it(self):
        strict = OpenAIChatCodec(strict_tools=True)
        [sent_tool] = encode(user_message("Hi"), tools=[TOOL], codec=strict)["tools"]
        assert sent_tool["function"]["strict"] is True

    def test_a_grammar_is_nested_too(self):
        grammar = {"type": "grammar", "syntax": "regex", "definition": "a+"}
        tool = {"type": "custom", "name": "c", "format": grammar}
        [sent_tool] = encode(user_message("Hi"), tools=[tool])["tools"]
        assert sent_tool["custom"]["format"] == {
            "type": "grammar",
            "grammar": {"syntax": "regex", "definition": "a+"},
        }

    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            ("auto", "auto"),
            ("none", "none"),
            ("required", "required"),
            (
                {"type": "function", "name": "f"},
                {"type": "function", "function": {"name": "f"}},
            ),
            (
                {"type": "custom", "name": "c"},
                {"type": "custom", "custom": {"name": "c"}},
            ),
        ],
    )
    def test_the_choice_is_encoded(self, choice, expected):
        body = encode(user_message("Hi"), tools=[TOOL], tool_choice=choice)
        assert body["tool_choice"] == expected

    ALLOWED = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "g"}],
    }

    def test_a_choice_among_some_shows_only_those(self):
        body = encode(user_message("Hi"), tools=[TOOL, OTHER], tool_choice=self.ALLOWED)
        assert [tool["function"]["name"] for tool in body["tools"]] == ["g"]
        assert body["tool_choice"] == "required"

    def test_or_is_reported_where_known(self):
        codec = OpenAIChatCodec(allowed_tools=True)
        body = encode(
            user_message("Hi"),
            codec=codec,
            tools=[TOOL, OTHER],
            tool_choice=self.ALLOWED,
        )
        assert len(body["tools"]) == 2
        assert body["tool_choice"] == {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "g"}}],
            },
        }

    def test_tools_that_the_host_would_run_are_refused(self):
        with pytest.raises(BadRequest, match="no tool of the type 'web_search'"):
            encode(user_message("Hi"), tools=[{"type": "web_search"}])
        with pytest.raises(BadRequest, match="name a tool of the type 'web_search'"):
            encode(user_message("Hi"), tools=[TOOL], tool_choice={"type": "web_search"})


@pytest.mark.parametrize("codec", [OpenAIChatCodec(), OpenAIResponsesCodec()])
def test_probabilities_of_tokens_are_named_because_no_item_shows_them(codec):
    request = Request(model="m", items=[user_message("Hi")], top_logprobs=2)
    assert codec.degraded(request) == ["top_logprobs"]
