"""Field checks for request bodies of `POST /chat/completions`.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from typing import Any

from llm.wire.facades.common_shape import (
    EFFORTS,
    OPENAI,
    SERVER_TOOLS,
    TURNED_OFF,
    VERBOSITY,
    Choice,
    description_fields,
    flat_function,
    no_logprobs,
    schema_form,
    server_tool,
    text_part,
)
from llm.wire.facades.field_checks import (
    Check,
    accepts,
    anything,
    array,
    by_type,
    either,
    integer,
    mapping,
    nonempty,
    or_untyped,
    record,
    refuse,
    schema_of,
    string,
    word,
    wrong,
)


def tools_in_choice(choice: Any) -> list[Choice]:
    match choice:
        case {"type": "allowed_tools", "allowed_tools": {"tools": tools}}:
            return [named for tool in tools for named in tools_in_choice(tool)]
        case {"type": "function" | "custom" as kind}:
            return [(kind, choice[kind]["name"])]
    return []


_by_name = record({"name": nonempty}, ["name"])
_chat_named: dict[str, Check] = {
    "function": record({"function": _by_name}, ["function"]),
    "custom": record({"custom": _by_name}, ["custom"]),
}
_allowed_tools = {
    "mode": word("auto", "required"),
    "tools": array(by_type(_chat_named), 1),
}
_chat_choice = either(
    str=word("none", "auto", "required", "any"),
    dict=by_type(
        {
            **_chat_named,
            "allowed_tools": record(
                {"allowed_tools": record(_allowed_tools, _allowed_tools)},
                ["allowed_tools"],
            ),
        }
    ),
)


_grammar = by_type(
    {"text": anything, "grammar": record({"grammar": mapping}, ["grammar"])}
)


_chat_tool = by_type(
    {
        "function": record({"function": flat_function}, ["function"]),
        "custom": record(
            {"custom": record({**description_fields, "format": _grammar}, ["name"])},
            ["custom"],
        ),
        SERVER_TOOLS: server_tool,
    },
    anything,
)
_image = either(str=nonempty, dict=record({"url": nonempty, "detail": string}, ["url"]))
_chat_file = record({"file_data": string, "file_id": string, "filename": string})
_chat_part = by_type(
    {
        "text": text_part,
        "image_url": record({"image_url": _image}, ["image_url"]),
        "file": record({"file": _chat_file}, ["file"]),
        "video_url": record(
            {
                "video_url": either(
                    str=nonempty, dict=record({"url": nonempty}, ["url"])
                )
            },
            ["video_url"],
        ),
        # Mistral takes the audio as a string where others take an object.
        "input_audio": record(
            {"input_audio": either(str=nonempty, dict=anything)}, ["input_audio"]
        ),
    }
)
_chat_content = either(str=string, list=array(_chat_part))
_assistant_part = by_type(
    {
        "text": text_part,
        "refusal": record({"refusal": string}, ["refusal"]),
        "thinking": anything,  # Mistral's
        "reference": anything,
    }
)
_arguments = either(str=string, dict=anything)
_function_call = record(
    {"function": record({"name": nonempty, "arguments": _arguments}, ["name"])},
    ["function"],
)
_chat_call_kinds = by_type(
    {
        "function": _function_call,
        "custom": record(
            {"custom": record({"name": nonempty, "input": string}, ["name"])},
            ["custom"],
        ),
    }
)


#: Some hosts give all calls of an answer one id, or none.
_with_id = record({"id": string}, ["id"])


@accepts(
    {**schema_of(_with_id), **or_untyped(_chat_call_kinds, _function_call, None, "")}
)
def _chat_call(value: Any, where: str) -> None:
    _with_id(value, where)
    untyped = value.get("type") in (None, "")
    typed = {**value, "type": "function"} if untyped else value
    _chat_call_kinds(typed, where)
    for other in {"custom", "function"} - {typed["type"]}:
        if value.get(other) is not None:
            raise wrong(f"{where}.{other}", f"is not of a {typed['type']} call.")


_chat_calls = array(_chat_call)

_of_google = record({"google": mapping})
_assistant = record(
    {
        "annotations": array(record({"url_citation": mapping})),
        "content": either(str=string, list=array(_assistant_part)),
        "extra_content": _of_google,
        "function_call": record({"name": string, "arguments": _arguments}),
        "images": array(record({"image_url": record({"url": string})})),
        "name": string,
        "reasoning_details": array(mapping),
        "refusal": string,
        "thinking_blocks": array(mapping),
        "tool_calls": _chat_calls,
    }
)
_input_message = record({"content": _chat_content, "name": string}, ["content"])
_chat_message = by_type(
    {
        "system": _input_message,
        "developer": _input_message,
        "user": _input_message,
        "assistant": _assistant,
        "tool": record(
            {"content": _chat_content, "tool_call_id": string}, ["tool_call_id"]
        ),
    },
    field="role",
)
FIELDS: dict[str, Check] = {
    **OPENAI,
    "audio": refuse("audio answers are not supported.", TURNED_OFF),
    "function_call": refuse(
        "is not supported; use tool_choice.", (*TURNED_OFF, "none", "auto")
    ),
    "functions": refuse("functions are not supported; use tools.", TURNED_OFF),
    "logit_bias": refuse("is not supported.", TURNED_OFF),
    "logprobs": no_logprobs,
    "max_completion_tokens": integer(1),
    "max_tokens": integer(1),
    "messages": array(_chat_message, 1),
    "modalities": array(word("text")),
    "n": refuse("only 1 answer at a time is supported.", (None, 1)),
    "random_seed": integer(),
    "reasoning_effort": EFFORTS,
    "response_format": by_type(
        {
            "text": anything,
            "json_object": anything,
            "json_schema": record({"json_schema": schema_form}, ["json_schema"]),
        }
    ),
    "seed": integer(),
    "stop": either(str=string, list=array(string)),
    "tool_choice": _chat_choice,
    "tools": array(_chat_tool),
    "verbosity": VERBOSITY,
}
