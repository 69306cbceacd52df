"""Is this body one that the readers of its API can read? BadRequest names what is not.

What the API has and we have not is refused by name. Fields and tools that are unknown
to us are left alone: clients send many that only their own service understands. Each
check is given the body as it was parsed and the names of `server_tools` that a choice
may name besides the declared ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from llm.wire.facades import chat_shape, messages_shape, responses_shape
from llm.wire.facades.common_shape import SERVER_TOOLS, Choice
from llm.wire.facades.shapes import Schema, fields, object_of, request_body, wrong

Body = Mapping[str, Any]

_CHAT = ("model", "messages")
_COUNTED = ("model", "messages")
_MESSAGES = ("model", "max_tokens", "messages")
_RESPONSES = ("model",)  # one without input goes on from another


def check_chat(body: Any, *, server_tools: Collection[str] = ()) -> None:
    """The body of `POST /chat/completions`."""
    request_body(body)
    fields(body, chat_shape.FIELDS, _CHAT)
    _check_choice(body, chat_shape.chosen(body.get("tool_choice")), server_tools)


def check_messages(
    body: Any, *, counting: bool = False, server_tools: Collection[str] = ()
) -> None:
    """The body of `POST /v1/messages`, or of its twin that only counts tokens."""
    request_body(body)
    fields(body, messages_shape.FIELDS, _COUNTED if counting else _MESSAGES)
    _check_choice(body, messages_shape.chosen(body.get("tool_choice")), server_tools)


def check_responses(body: Any, *, server_tools: Collection[str] = ()) -> None:
    """The body of `POST /responses`."""
    request_body(body)
    fields(body, responses_shape.FIELDS, _RESPONSES)
    _check_choice(body, responses_shape.chosen(body.get("tool_choice")), server_tools)


def schemas() -> dict[str, Schema]:
    """What the bodies look like that pass, as JSON Schema. A choice of a tool that is
    not declared does not pass all the same."""
    return {
        "ChatRequest": object_of(chat_shape.FIELDS, _CHAT),
        "MessagesRequest": object_of(messages_shape.FIELDS, _MESSAGES),
        "CountTokensRequest": object_of(messages_shape.FIELDS, _COUNTED),
        "ResponsesRequest": object_of(responses_shape.FIELDS, _RESPONSES),
    }


# Tools


def _declared(tool: Mapping[str, Any]) -> str | None:
    """The name by which a tool can be chosen."""
    nested = tool.get(tool.get("type") or "")
    name = nested.get("name") if isinstance(nested, dict) else tool.get("name")
    return name if isinstance(name, str) else None


def _check_choice(
    body: Body,
    chosen: Iterable[Choice],
    server_tools: Collection[str],
) -> None:
    tools = body.get("tools") or []
    kinds = {tool.get("type") for tool in tools}
    known = {*map(_declared, tools)}
    own = [tool for tool in tools if tool.get("type") == SERVER_TOOLS]
    known |= {name for tool in own for name in tool.get("names") or ()}
    for kind, name in chosen:
        is_declared = name in known or name in server_tools  # which may be all
        if (kind not in kinds) if name is None else not is_declared:
            shown = (name or kind)[:64]
            raise wrong("tool_choice", f"there is no {shown!r} among the tools.")
    if not known and _is_forced(body.get("tool_choice")) and not tools:
        raise wrong("tool_choice", "a tool is required, but none is declared.")


def _is_forced(choice: Any) -> bool:
    """Whichever, but a tool; "any" is Mistral's word, and Anthropic's."""
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return kind in ("required", "any")
