"""Field checks for request bodies of `POST /v1/messages`.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

from typing import Any

from llm.wire.facades.common_shape import (
    EFFORTS,
    SERVER_TOOLS,
    Choice,
    parley,
    server_tool,
    text_part,
)
from llm.wire.facades.field_checks import (
    Check,
    accepts,
    anything,
    array,
    boolean,
    by_type,
    either,
    integer,
    mapping,
    nonempty,
    number,
    or_untyped,
    record,
    refuse,
    string,
)

_source = by_type(
    {
        "base64": record(
            {"media_type": nonempty, "data": string}, ["media_type", "data"]
        ),
        "url": record({"url": nonempty}, ["url"]),
    }
)
_passages = array(by_type({"text": text_part}))
_content = by_type(
    {"text": text_part, "image": record({"source": _source}, ["source"])}
)
_document_source = by_type(
    {
        "base64": record(
            {"media_type": nonempty, "data": string}, ["media_type", "data"]
        ),
        "url": record({"url": nonempty}, ["url"]),
        "text": record({"data": string}, ["data"]),
        "content": record(
            {"content": either(str=string, list=array(_content))}, ["content"]
        ),
    }
)
_input_blocks: dict[str, Check] = {
    "text": text_part,
    "image": record({"source": _source}, ["source"]),
    "document": record(
        {
            "source": _document_source,
            "title": string,
            "citations": record({"enabled": boolean}),
        },
        ["source"],
    ),
    "search_result": record(
        {"source": string, "title": string, "content": _passages},
        ["source", "content"],
    ),
    "container_upload": record({"file_id": string}),
    "tool_reference": record({"tool_name": nonempty}, ["tool_name"]),
}
_result = record(
    {
        "tool_use_id": nonempty,
        "content": either(str=string, list=array(by_type(_input_blocks))),
        "is_error": boolean,
    },
    ["tool_use_id"],
)
#: Clients return as input whatever a model has written.
_call = record({"id": nonempty, "name": nonempty, "input": anything}, ["id", "name"])
_hosted_call = record(
    {"id": nonempty, "name": string, "input": mapping, "server_name": string},
    ["id", "name"],
)
_assistant_blocks: dict[str, Check] = {
    "text": record({"text": string, "citations": array(mapping)}, ["text"]),
    "thinking": record({"thinking": string, "signature": string}, ["thinking"]),
    "redacted_thinking": record({"data": string}, ["data"]),
    "tool_use": _call,
    "server_tool_use": _hosted_call,
    "mcp_tool_use": _hosted_call,
    "mcp_tool_listing": record({"tools": array(mapping), "mcp_server_name": string}),
    "fallback": record({"to": record({"model": string})}),
    "compaction": record({"content": string, "encrypted_content": string}),
    "tool_result": refuse("must be in a user message.", ()),
    "image": refuse("must be in a user message.", ()),
    "document": refuse("must be in a user message.", ()),
}
#: Results of hosted tools, and blocks that only their issuer understands.
_other_block = record({"tool_use_id": string})
_turn = by_type(
    {
        "user": record(
            {
                "content": either(
                    str=string,
                    list=array(by_type({**_input_blocks, "tool_result": _result})),
                )
            },
            ["content"],
        ),
        "assistant": record(
            {
                "content": either(
                    str=string, list=array(by_type(_assistant_blocks, _other_block))
                )
            },
            ["content"],
        ),
        "system": record(
            {"content": either(str=string, list=array(by_type({"text": text_part})))},
            ["content"],
        ),
    },
    field="role",
)


_own_tool = record(
    {"name": nonempty, "description": string, "input_schema": mapping},
    ["name", "input_schema"],
)
_tool_kinds = by_type(
    {"custom": _own_tool, SERVER_TOOLS: server_tool}, record({"name": string})
)


@accepts(or_untyped(_tool_kinds, _own_tool, None))
def _messages_tool(value: Any, where: str) -> None:
    mapping(value, where)
    untyped = value.get("type") is None
    typed = {**value, "type": "custom"} if untyped else value
    _tool_kinds(typed, where)


_parallel = {"disable_parallel_tool_use": boolean}
FIELDS: dict[str, Check] = {
    "max_tokens": integer(1),
    "messages": array(_turn, 1),
    "metadata": record({"user_id": string}),
    "model": nonempty,
    "output_config": record({"effort": EFFORTS, "format": mapping}),
    "parley": parley,
    "service_tier": string,
    "stop_sequences": array(string),
    "stream": boolean,
    "system": either(str=string, list=array(by_type({"text": text_part}))),
    "temperature": number(0, 1),
    "thinking": record({"type": nonempty, "budget_tokens": integer(1)}, ["type"]),
    "tool_choice": by_type(
        {
            "auto": record(_parallel),
            "any": record(_parallel),
            "none": anything,
            "tool": record({**_parallel, "name": nonempty}, ["name"]),
        }
    ),
    "tools": array(_messages_tool),
    "top_k": integer(0),
    "top_p": number(0, 1),
}


def tools_in_choice(choice: Any) -> list[Choice]:
    match choice:
        case {"type": "tool", "name": name}:
            return [("tool", name)]
    return []
