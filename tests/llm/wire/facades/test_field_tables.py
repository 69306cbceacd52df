"""The table of fields in `docs/gateway.md` says what the code does with each.

`python -m tests.llm.wire.facades.test_field_tables` prints the table anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from conversations.turns.all_except import AllExcept
from llm.errors import BadRequest
from llm.wire.facades import (
    body_checks,
    chat_request,
    chat_shape,
    messages_request,
    messages_shape,
    responses_request,
    responses_shape,
)
from llm.wire.facades.losses import find_losses
from llm.wire.facades.request_conversion import portable
from llm.wire.request import Request

DOCUMENT = Path(__file__).parents[4] / "docs" / "gateway.md"
BEGIN, END = "<!-- fields -->\n", "<!-- end of fields -->\n"
HEAD = "| field | Chat Completions | Messages | Responses |\n|:---|:---|:---|:---|\n"
_SCHEMA = {"type": "object", "properties": {}}
_FORM = {"type": "json_schema", "name": "a", "schema": _SCHEMA, "strict": True}
_HI = [{"role": "user", "content": "Hi"}]
_CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": _SCHEMA}}
_TOOL = {"type": "function", "name": "f", "parameters": _SCHEMA}

APIS: dict[str, Any] = {
    "chat": (chat_shape.FIELDS, body_checks.check_chat, chat_request.request_of),
    "messages": (
        messages_shape.FIELDS,
        body_checks.check_messages,
        messages_request.request_of,
    ),
    "responses": (
        responses_shape.FIELDS,
        body_checks.check_responses,
        responses_request.request_of,
    ),
}
LEAST: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": _HI},
    "messages": {"model": "m", "messages": _HI, "max_tokens": 9},
    "responses": {"model": "m", "input": "Hi"},
}
#: A value for each field, that has an effect where the field is known.
SAMPLES: dict[str, Any] = {
    "frequency_penalty": 0.5,
    "max_completion_tokens": 7,
    "max_output_tokens": 7,
    "max_tokens": 7,
    "messages": [{"role": "user", "content": "Other"}],
    "input": "Other",
    "instructions": "Be brief.",
    "system": "Be brief.",
    "metadata": {"user_id": "b"},
    "parallel_tool_calls": False,
    "presence_penalty": 0.5,
    "prompt_cache_key": "k",
    "safety_identifier": "u",
    "service_tier": "flex",
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "seed": 4,
    "random_seed": 4,
    "stop": ["END"],
    "stop_sequences": ["END"],
    "user": "u",
    "verbosity": "low",
    "reasoning_effort": "low",
    "reasoning": {"effort": "low"},
    "thinking": {"type": "enabled", "budget_tokens": 2048},
    "output_config": {"effort": "low"},
    "text": {"format": _FORM},
    "response_format": {"type": "json_schema", "json_schema": _FORM},
    "logit_bias": {"7": 1},
    "logprobs": True,
    "top_logprobs": 3,
    "n": 2,
    "audio": {"voice": "alloy"},
    "modalities": ["text", "audio"],
    "functions": [{"name": "f"}],
    "function_call": {"name": "f"},
    "prediction": {"type": "content", "content": "x"},
    "web_search_options": {},
    "prompt": {"id": "pmpt_1"},
    "include": ["file_search_call.results"],
    "truncation": "auto",
    "context_management": {"edits": []},
    "container": "c",
    "mcp_servers": [{"name": "x"}],
    "cache_control": {"type": "ephemeral"},
    "provider": {"order": ["x"]},
    "guided_json": _SCHEMA,
    "background": True,
    "conversation": "conv_1",
    "previous_response_id": "resp_1",
    "max_tool_calls": 2,
    "store": False,
    "stream": True,
    "stream_options": {"include_usage": True},
    "betas": ["a"],
    "parley": {"explain": True},
}
_OF_API: dict[str, dict[str, Any]] = {
    "chat": {"tools": [_CHAT_TOOL], "tool_choice": "required"},
    "messages": {
        "tools": [{"name": "f", "input_schema": _SCHEMA}],
        "tool_choice": {"type": "any"},
    },
    "responses": {"tools": [_TOOL], "tool_choice": "required"},
}
#: Decided by this server, for every host.
_SERVED = frozenset(
    {
        "background",
        "betas",
        "conversation",
        "max_tool_calls",
        "model",
        "parley",
        "previous_response_id",
        "store",
        "stream",
        "stream_options",
    }
)


def treatment(api: str, name: str) -> str:
    """What becomes of the field for a host of another API."""
    known, check, request_of = APIS[api]
    if name in _SERVED:
        return "Parley" if name in known or name == "betas" else "–"
    samples = {**SAMPLES, **_OF_API[api]}
    base: dict[str, Any] = dict(LEAST[api])
    if name == "tool_choice":
        base["tools"] = samples["tools"]
    body = {**base, name: samples[name]}
    try:
        check(body)
    except BadRequest:
        return "refused"
    converted, lost = portable(request_of(body), hosted_tools=AllExcept())
    lost = [*lost, *find_losses(api, body)]
    if name in {each.partition(".")[0] for each in lost}:
        return "left out" if _is_of(api, name) else "–"
    before, _ = portable(request_of(base), hosted_tools=AllExcept())
    return "translated" if _differ(converted, before) else "–"


def _is_of(api: str, name: str) -> bool:
    """Whether vendors of the API document the field."""
    return name in APIS[api][0] or name in _DOCUMENTED[api]


_DOCUMENTED = {
    "chat": {
        *("prediction", "web_search_options", "cache_control", "provider"),
        *("guided_json", "top_k"),
    },
    "messages": {"context_management", "container", "mcp_servers", "cache_control"},
    "responses": {"context_management", "include", "truncation"},
}


def _differ(one: Request, other: Request) -> bool:
    return _values(one) != _values(other)


def _values(request: Request) -> dict[str, Any]:
    """Without the ids of items, which are new each time."""
    values = {each.name: getattr(request, each.name) for each in fields(request)}
    values["items"] = [{**item, "id": ""} for item in request.items]
    return values


def make_table() -> str:
    names = sorted({*SAMPLES, "model", "tools", "tool_choice"})
    rows = [
        f"| `{name}` | {' | '.join(treatment(api, name) for api in APIS)} |\n"
        for name in names
    ]
    return HEAD + "".join(rows)


def test_the_table_of_fields_is_that_of_the_code():
    text = DOCUMENT.read_text(encoding="utf-8")
    _, _, rest = text.partition(BEGIN)
    assert rest.partition(END)[0] == make_table()


def test_every_field_that_is_checked_is_in_the_table():
    for api, (known, _, _) in APIS.items():
        covered: Mapping[str, Any] = {**SAMPLES, **_OF_API[api], "model": "m"}
        assert known.keys() <= covered.keys()


if __name__ == "__main__":
    print(make_table(), end="")
