"""Field checks for request bodies of `POST /responses`.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from typing import Any

from llm.wire.facades.common_shape import (
    EFFORTS,
    OPENAI,
    SERVER_TOOLS,
    VERBOSITY,
    Choice,
    flat_custom,
    flat_function,
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
    or_untyped,
    record,
    refuse,
    string,
    word,
    wrong,
)


def tools_in_choice(choice: Any) -> list[Choice]:
    match choice:
        case {"type": "allowed_tools", "tools": tools}:
            return [named for tool in tools for named in tools_in_choice(tool)]
        case {"type": "function" | "custom" as kind}:
            return [(kind, choice["name"])]
        case {"type": str(kind)}:  # a hosted tool
            return [(kind, None)]
    return []


_by_name = record({"name": nonempty}, ["name"])
_named: dict[str, Check] = {"function": _by_name, "custom": _by_name}
_hosted = record({"name": string, "server_label": string})
_allowed_tools = {
    "mode": word("none", "auto", "required"),
    "tools": array(by_type(_named, _hosted), 1),
}
_responses_choice = by_type(
    {**_named, "allowed_tools": record(_allowed_tools, ["tools"])}, _hosted
)
_functions: dict[str, Check] = {"function": flat_function, "custom": flat_custom}
_responses_tool = by_type(
    {
        **_functions,
        "namespace": record(
            {
                "name": nonempty,
                "description": string,
                "tools": array(by_type(_functions, anything)),
            },
            ["name", "tools"],
        ),
        SERVER_TOOLS: server_tool,
    },
    anything,
)
_input_part_kinds: dict[str, Check] = {
    "input_text": text_part,
    "output_text": text_part,
    "text": text_part,
    "input_image": record({"image_url": string, "file_id": string, "detail": string}),
    "input_file": record(
        {"file_data": string, "file_id": string, "file_url": string, "filename": string}
    ),
    "input_audio": record({"input_audio": mapping}),
    "refusal": record({"refusal": string}, ["refusal"]),
}
_input_parts = array(by_type(_input_part_kinds))
_assistant_parts = array(
    by_type(
        {
            "output_text": record(
                {"text": string, "annotations": array(mapping)}, ["text"]
            ),
            "input_text": text_part,
            "text": text_part,
            "refusal": record({"refusal": string}, ["refusal"]),
        }
    )
)
_input_message = record({"content": either(str=string, list=_input_parts)}, ["content"])
_message = by_type(
    {
        "user": _input_message,
        "system": _input_message,
        "developer": _input_message,
        "assistant": record(
            {
                "content": either(str=string, list=_assistant_parts),
                "phase": string,
                "status": string,
            },
            ["content"],
        ),
    },
    field="role",
)
_thoughts = array(record({"text": string}))
_output = either(str=string, list=_input_parts)
_function_call = record(
    {
        "call_id": nonempty,
        "name": nonempty,
        "namespace": string,
        "arguments": string,
        "status": string,
    },
    ["call_id", "name", "arguments"],
)
_custom_call = record(
    {"call_id": nonempty, "name": nonempty, "input": string, "status": string},
    ["call_id", "name", "input"],
)
_call_output = record({"call_id": nonempty, "output": _output}, ["call_id", "output"])
_item_kinds = by_type(
    {
        "message": _message,
        "reasoning": record(
            {"summary": _thoughts, "content": _thoughts, "encrypted_content": string}
        ),
        "function_call": _function_call,
        "function_call_output": _call_output,
        "custom_tool_call": _custom_call,
        "custom_tool_call_output": _call_output,
        "compaction": record({"encrypted_content": string}, ["encrypted_content"]),
        "item_reference": refuse("send the item itself.", ()),
    },
    record({"call_id": string, "status": string}),
)


@accepts(or_untyped(_item_kinds, _message))
def _item(value: Any, where: str) -> None:
    mapping(value, where)
    _item_kinds({"type": "message", **value}, where)


_form = by_type(
    {
        "text": anything,
        "json_object": anything,
        "json_schema": record({"name": nonempty, "schema": mapping, "strict": boolean}),
    }
)


@accepts({"type": "string", "not": {"pattern": "\\.logprobs$"}})
def _include(value: Any, where: str) -> None:
    string(value, where)
    if value.endswith(".logprobs"):
        raise wrong(where, "log probabilities are not supported.")


FIELDS: dict[str, Check] = {
    **OPENAI,
    "background": boolean,
    "conversation": either(str=nonempty, dict=record({"id": nonempty}, ["id"])),
    "include": array(_include),
    "input": either(str=string, list=array(_item)),
    "instructions": string,
    "max_output_tokens": integer(1),
    "max_tool_calls": integer(1),
    "previous_response_id": nonempty,
    "prompt": refuse("stored prompts are not supported."),
    "reasoning": record(
        {"effort": EFFORTS, "summary": word("auto", "concise", "detailed")}
    ),
    "stream_options": mapping,
    "text": record({"format": _form, "verbosity": VERBOSITY}),
    "tool_choice": either(str=word("none", "auto", "required"), dict=_responses_choice),
    "tools": array(_responses_tool),
    "truncation": word("auto", "disabled"),
}
