"""Checks of whole request bodies before they are read. BadRequest names the field.

Documented features that we do not support are refused by name. Unknown fields and tools
are ignored, because clients send many that only their own service understands. Each
check gets the parsed body and the names of `server_tools`, which `tool_choice` may name
besides the declared tools.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from llm.wire.facades import chat_shape, messages_shape, responses_shape
from llm.wire.facades.common_shape import SERVER_TOOLS, Choice
from llm.wire.facades.field_checks import Schema, fields, object_of, request_body, wrong
from llm.wire.request import single_tools

Body = Mapping[str, Any]

_DATE = re.compile(r"_20\d\d_?\d\d_?\d\d$")

_CHAT = ("model", "messages")
_COUNTED = ("model", "messages")
_MESSAGES = ("model", "max_tokens", "messages")
_OF_CHAT_ANSWERS = ("audio", "logprobs", "modalities", "n", "top_logprobs")
_RESPONSES = ("model",)  # without `input` it continues another response


def check_chat(body: Any, *, server_tools: Collection[str] = ()) -> None:
    """Check the body of `POST /chat/completions`."""
    request_body(body)
    fields(body, chat_shape.FIELDS, _CHAT)
    if choice := body.get("tool_choice"):
        _check_choice(body, chat_shape.tools_in_choice(choice), server_tools)


def check_chat_answer(body: Mapping[str, Any]) -> None:
    """Check what the body of `POST /chat/completions` asks of an answer that is written
    anew: it has one choice, without log probabilities and audio."""
    wanted = {name: body[name] for name in _OF_CHAT_ANSWERS if name in body}
    fields(wanted, chat_shape.FIELDS, ())


def check_messages(
    body: Any, *, counting: bool = False, server_tools: Collection[str] = ()
) -> None:
    """Check the body of `POST /v1/messages`, or of the endpoint that counts tokens."""
    request_body(body)
    fields(body, messages_shape.FIELDS, _COUNTED if counting else _MESSAGES)
    if choice := body.get("tool_choice"):
        _check_choice(body, messages_shape.tools_in_choice(choice), server_tools)


def check_responses(body: Any, *, server_tools: Collection[str] = ()) -> None:
    """Check the body of `POST /responses`."""
    request_body(body)
    fields(body, responses_shape.FIELDS, _RESPONSES)
    if choice := body.get("tool_choice"):
        _check_choice(body, responses_shape.tools_in_choice(choice), server_tools)


def schemas() -> dict[str, Schema]:
    """JSON Schemas of the bodies that pass.

    They do not express that `tool_choice` must name a declared tool.
    """
    return {
        "ChatRequest": object_of(chat_shape.FIELDS, _CHAT),
        "MessagesRequest": object_of(messages_shape.FIELDS, _MESSAGES),
        "CountTokensRequest": object_of(messages_shape.FIELDS, _COUNTED),
        "ResponsesRequest": object_of(responses_shape.FIELDS, _RESPONSES),
    }


# Tools


def _tool_name(tool: Mapping[str, Any]) -> str | None:
    """The name by which a tool can be chosen."""
    nested = tool.get(tool.get("type") or "")
    name = nested.get("name") if isinstance(nested, dict) else tool.get("name")
    return name if isinstance(name, str) else None


def _undated(kind: Any) -> str:
    """Types of tools have dates, those of choices may have none."""
    return _DATE.sub("", str(kind))


def _check_choice(
    body: Body,
    chosen: Iterable[Choice],
    server_tools: Collection[str],
) -> None:
    tools = body.get("tools") or []
    kinds = {_undated(tool.get("type")) for tool in tools}
    known = {*map(_tool_name, tools), *map(_tool_name, single_tools(tools))}
    own = [tool for tool in tools if tool.get("type") == SERVER_TOOLS]
    known |= {name for tool in own for name in tool.get("names") or ()}
    for kind, name in chosen:
        is_declared = name in known or name in server_tools  # may contain every name
        if (_undated(kind) not in kinds) if name is None else not is_declared:
            shown = (name or kind)[:64]
            raise wrong("tool_choice", f"there is no {shown!r} among the tools.")
    if not known and _is_forced(body.get("tool_choice")) and not tools:
        raise wrong("tool_choice", "a tool is required, but none is declared.")


def _is_forced(choice: Any) -> bool:
    """Whether some tool must be called; "any" is used by Mistral and Anthropic."""
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return kind in ("required", "any")
