"""The vendors' own SDKs send the same request as our codecs.

Each SDK talks to a small HTTP server that records requests. It is called with its own
parameters, and again with the body that our codec wrote.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from llm.management.request_normal_form import differences, normalize
from llm.providers import all_providers
from llm.wire.items import Issuer, Item, function_call_output, message, user_message
from llm.wire.request import Request

ISSUER: Issuer = {"provider": "p", "model": "m", "route": "1:1"}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Its name."}},
    "required": ["city"],
}
PICTURE = "iVBORw0KGgo="
QUESTION = "How warm is it in Rome and in Oslo?"
SYSTEM = "Answer briefly."
TOOL = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": SCHEMA,
}


class Ear:
    """A server that remembers the path and the body of the last request."""

    def __init__(self) -> None:
        self.path, self.body = "", {}
        ear = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                ear.path = self.path
                ear.body = json.loads(self.rfile.read(int(self.headers[LENGTH])))
                self.send_response(400)  # the answer does not matter
                self.send_header(LENGTH, "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


LENGTH = "Content-Length"


@pytest.fixture
def ear() -> Iterator[Ear]:
    ear = Ear()
    thread = threading.Thread(target=ear.server.serve_forever, args=(0.01,))
    thread.start()
    yield ear
    ear.server.shutdown()
    thread.join()
    ear.server.server_close()


def written(provider: str, codec: str, model: str, **options: Any) -> dict[str, Any]:
    """Our request for the conversation that every SDK sends below."""
    request = Request(
        model=model,
        items=conversation(),
        instructions=SYSTEM,
        tools=[TOOL],
        tool_choice="auto",
        max_output_tokens=2000,
        issuer=ISSUER,
        stream=False,
        **options,
    )
    return all_providers()[provider].codec(codec).encode(request)


def conversation() -> list[Item]:
    seen = [
        {"type": "input_text", "text": QUESTION},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"},
    ]
    return [
        {**user_message(""), "content": seen},
        message("assistant", "Let me see."),
        call("call_1", "Rome"),
        call("call_2", "Oslo"),
        function_call_output("call_1", "40 C"),
        function_call_output("call_2", "10 C"),
        user_message("And in words?"),
    ]


def call(id: str, city: str) -> Item:
    return {
        "type": "function_call",
        "call_id": id,
        "name": "weather",
        "arguments": json.dumps({"city": city}),
    }


def different(api: str, ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return list(differences(normalize(api, ours), normalize(api, theirs)))


# OpenAI


@pytest.fixture
def of_openai(ear: Ear) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=ear.url, api_key="k", max_retries=0) as client:
        yield client


def test_openai_chat_as_its_sdk_sends_it(ear: Ear, of_openai: openai.OpenAI):
    def called(id: str, city: str) -> Any:
        function = {"name": "weather", "arguments": json.dumps({"city": city})}
        return {"id": id, "type": "function", "function": function}

    picture = {"url": f"data:image/png;base64,{PICTURE}"}
    with pytest.raises(openai.BadRequestError):
        of_openai.chat.completions.create(
            model="gpt-5",
            messages=[
                {"role": "system", "content": SYSTEM},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": QUESTION},
                        {"type": "image_url", "image_url": picture},
                    ],
                },
                {
                    "role": "assistant",
                    "content": "Let me see.",
                    "tool_calls": [called("call_1", "Rome"), called("call_2", "Oslo")],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "40 C"},
                {"role": "tool", "tool_call_id": "call_2", "content": "10 C"},
                {"role": "user", "content": "And in words?"},
            ],
            tools=[
                {
                    "type": "function",
                    "function": {
                        "name": "weather",
                        "description": "The weather of a city.",
                        "parameters": SCHEMA,
                    },
                }
            ],
            tool_choice="auto",
            max_completion_tokens=2000,
            reasoning_effort="low",
            seed=7,
        )
    ours = written(
        "openai", "openai_chat", "gpt-5", seed=7, reasoning={"effort": "low"}
    )
    assert ear.path == "/chat/completions"
    assert different("chat", ours, ear.body) == []


def test_openai_chat_through_its_sdk_is_sent_as_we_wrote_it(
    ear: Ear, of_openai: openai.OpenAI
):
    ours = written("openai", "openai_chat", "gpt-5")
    with pytest.raises(openai.BadRequestError):
        of_openai.chat.completions.create(**ours)
    assert ear.body == ours


def test_openai_responses_as_its_sdk_sends_it(ear: Ear, of_openai: openai.OpenAI):
    def called(id: str, city: str) -> Any:
        return call(id, city)

    picture = f"data:image/png;base64,{PICTURE}"
    with pytest.raises(openai.BadRequestError):
        of_openai.responses.create(
            model="gpt-5",
            instructions=SYSTEM,
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": QUESTION},
                        {"type": "input_image", "image_url": picture, "detail": "auto"},
                    ],
                },
                {"role": "assistant", "content": "Let me see."},
                called("call_1", "Rome"),
                called("call_2", "Oslo"),
                {
                    "type": "function_call_output",
                    "call_id": "call_1",
                    "output": "40 C",
                },
                {
                    "type": "function_call_output",
                    "call_id": "call_2",
                    "output": "10 C",
                },
                {"role": "user", "content": "And in words?"},
            ],
            tools=[
                {
                    "type": "function",
                    "name": "weather",
                    "description": "The weather of a city.",
                    "parameters": SCHEMA,
                    "strict": False,
                }
            ],
            tool_choice="auto",
            max_output_tokens=2000,
            reasoning={"effort": "low", "summary": "auto"},
        )
    thought = {"effort": "low", "summary": "auto"}
    ours = written("openai", "openai_responses", "gpt-5", reasoning=thought)
    assert ear.path == "/responses"
    assert different("responses", ours, ear.body) == []


def test_openai_responses_through_its_sdk_are_sent_as_we_wrote_them(
    ear: Ear, of_openai: openai.OpenAI
):
    ours = written("openai", "openai_responses", "gpt-5")
    with pytest.raises(openai.BadRequestError):
        of_openai.responses.create(**ours)
    assert ear.body == ours


# Anthropic


@pytest.fixture
def of_anthropic(ear: Ear) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=ear.url, api_key="k", max_retries=0) as client:
        yield client


def test_anthropic_as_its_sdk_sends_it(ear: Ear, of_anthropic: anthropic.Anthropic):
    def used(id: str, city: str) -> Any:
        return {
            "type": "tool_use",
            "id": id,
            "name": "weather",
            "input": {"city": city},
        }

    source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    with pytest.raises(anthropic.BadRequestError):
        of_anthropic.messages.create(
            model="claude-sonnet-5-5",
            max_tokens=2000,
            system=SYSTEM,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": QUESTION},
                        {"type": "image", "source": source},
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Let me see."},
                        used("call_1", "Rome"),
                        used("call_2", "Oslo"),
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "call_1",
                            "content": "40 C",
                        },
                        {
                            "type": "tool_result",
                            "tool_use_id": "call_2",
                            "content": "10 C",
                        },
                        {"type": "text", "text": "And in words?"},
                    ],
                },
            ],
            tools=[
                {
                    "name": "weather",
                    "description": "The weather of a city.",
                    "input_schema": SCHEMA,
                }
            ],
            tool_choice={"type": "auto"},
            stop_sequences=["END"],
        )
    ours = written("anthropic", "anthropic", "claude-sonnet-5-5", stop=["END"])
    assert ear.path == "/v1/messages"
    assert different("messages", ours, ear.body) == []


def test_anthropic_through_its_sdk_is_sent_as_we_wrote_it(
    ear: Ear, of_anthropic: anthropic.Anthropic
):
    ours = written("anthropic", "anthropic", "claude-sonnet-5-5")
    with pytest.raises(anthropic.BadRequestError):
        of_anthropic.messages.create(**ours)
    assert ear.body == ours


# Gemini


@pytest.fixture
def of_google(ear: Ear) -> Iterator[genai.Client]:
    options = types.HttpOptions(base_url=ear.url)
    with genai.Client(api_key="k", http_options=options) as client:
        yield client


GEMINI = "gemini-2.5-flash"


def test_gemini_as_its_sdk_sends_it(ear: Ear, of_google: genai.Client):
    def called(id: str, city: str) -> types.Part:
        args = {"city": city}
        return types.Part(
            function_call=types.FunctionCall(id=id, name="weather", args=args)
        )

    def result_part(id: str, words: str) -> types.Part:
        response = types.FunctionResponse(
            id=id, name="weather", response={"output": words}
        )
        return types.Part(function_response=response)

    picture = types.Part(
        inline_data=types.Blob(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")
    )
    function = types.FunctionDeclaration(
        name="weather",
        description="The weather of a city.",
        parameters_json_schema=SCHEMA,
    )
    with pytest.raises(genai.errors.ClientError):
        of_google.models.generate_content(
            model=GEMINI,
            contents=[
                types.Content(role="user", parts=[types.Part(text=QUESTION), picture]),
                types.Content(
                    role="model",
                    parts=[
                        types.Part(text="Let me see."),
                        called("call_1", "Rome"),
                        called("call_2", "Oslo"),
                    ],
                ),
                types.Content(
                    role="user",
                    parts=[
                        result_part("call_1", "40 C"),
                        result_part("call_2", "10 C"),
                        types.Part(text="And in words?"),
                    ],
                ),
            ],
            config=types.GenerateContentConfig(
                system_instruction=SYSTEM,
                max_output_tokens=2000,
                temperature=0.5,
                stop_sequences=["END"],
                tools=[types.Tool(function_declarations=[function])],
            ),
        )
    ours = written("gemini", "gemini", GEMINI, temperature=0.5, stop=["END"])
    assert ear.path.endswith(f"/models/{GEMINI}:generateContent")
    assert different("generateContent", ours, ear.body) == []


def test_gemini_through_its_sdk_is_sent_as_we_wrote_it(
    ear: Ear, of_google: genai.Client
):
    ours = written("gemini", "gemini", GEMINI)
    config = {
        **ours["generationConfig"],
        **{name: ours[name] for name in ("systemInstruction", "tools", "toolConfig")},
    }
    with pytest.raises(genai.errors.ClientError):
        of_google.models.generate_content(
            model=GEMINI,
            contents=[types.Content.model_validate(c) for c in ours["contents"]],
            config=types.GenerateContentConfig.model_validate(config),
        )
    assert different("generateContent", ours, ear.body) == []
