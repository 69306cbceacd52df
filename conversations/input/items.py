"""Validate a request's `input` and `options` and make them canonical. Pure.

In: JSON values as they were sent. Out: items with new ids, and options as they are
stored. Raises InputError, which names the path of the invalid value.

`input` is a string, or a list of Responses items and `{role, content}` messages. The
parts of Chat Completions (`text`, `image_url`) are accepted as well.

Source: https://www.openresponses.org/specification
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

from conversations.input import tool_declarations
from conversations.input.checks import (
    Check,
    InputError,
    InputSizeError,
    boolean,
    by_type,
    check_known,
    check_length,
    choice,
    either,
    inline_size,
    integer,
    mapping,
    message_size,
    non_empty_string,
    number,
    record,
    require,
    short_repr,
    string,
    whole,
)
from llm.cache.cache_seconds import are_valid_seconds
from llm.wire.facades.common_shape import MAX_CACHE_SECONDS
from llm.wire.items import Item, function_call_output, message, new_id

MAX_ITEMS = 500  # of one input
MAX_PARTS = 500  # of one message
MAX_STOPS = 4  # stop sequences; most providers accept no more
MAX_CHECKS = 50  # safety checks of one computer action
MAX_TOOLS = 500  # names in one list
TOOL_NAME_LENGTH = 128  # characters


def items_of(value: Any, *, max_size: int, param: str = "input") -> list[Item]:
    """The canonical items of an input of `max_size` bytes at most.

    Files inside a message (`data:` URLs) count towards the size. The caller checks that
    a `file_id` names a file of the conversation (`conversations.turns.attachments`).
    """
    if isinstance(value, str):
        items = [message("user", _non_blank_string(value, param))]
    elif isinstance(value, list):
        items = [
            _item(entry, f"{param}[{index}]")
            for index, entry in enumerate(check_length(value, param, MAX_ITEMS))
        ]
    else:
        raise InputError(param, "expected a string or a list.", code="invalid_type")
    if (size := sum(map(message_size, items))) > max_size:
        _refuse_size(items, size, max_size, param)
    return items


def _refuse_size(items: Any, size: int, max_size: int, param: str) -> NoReturn:
    """Raises InputSizeError."""
    problem = f"this is {size} bytes long; the limit is {max_size} bytes."
    if inline_size(items):
        problem += " Upload the file and refer to it by its 'file_id'."
    raise InputSizeError(param, problem, code="input_too_large")


def options_of(value: Any, *, param: str = "options") -> dict[str, Any]:
    """The options that are set. None means not set."""
    options: dict[str, Any] = record(_OPTIONS)(value, param)
    return options


# Items


def _item(value: Any, where: str) -> Item:
    fields = mapping(value, where)
    kind = fields.get("type", "message" if "role" in fields else None)
    match kind:
        case "message":
            return _message(fields, where)
        case "function_call_output":
            return _output(fields, where)
        case "computer_call_output":
            return _screen(fields, where)
        case "mcp_approval_response":
            return _approval(fields, where)
        case None:
            raise InputError(f"{where}.type", "missing.", code="missing")
        case _:
            raise InputError(
                f"{where}.type",
                f"items of type {short_repr(kind)} cannot be sent;"
                f" {either(_ITEM_TYPES)} can.",
                code="unknown_item_type",
            )


def _message(fields: Mapping[str, Any], where: str) -> Item:
    check_known(fields, {"type", "id", "status", "role", "content"}, where)
    role = choice("user", "system", "developer", "assistant")(
        require(fields, "role", where), f"{where}.role"
    )
    content, at = require(fields, "content", where), f"{where}.content"
    if isinstance(content, str):
        return message(role, _non_blank_string(content, at))
    parts = _parts(content, at, _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS)
    if not any(_has_text(part) for part in parts):
        raise InputError(at, "the message is empty.", code="empty_message")
    return {
        "type": "message",
        "id": new_id("msg"),
        "status": "completed",
        "role": role,
        "content": parts,
    }


def _output(fields: Mapping[str, Any], where: str) -> Item:
    check_known(fields, {"type", "id", "status", "call_id", "output"}, where)
    call_id = string(require(fields, "call_id", where), f"{where}.call_id")
    output = require(fields, "output", where)
    if isinstance(output, str):
        return function_call_output(call_id, string(output, f"{where}.output"))
    return function_call_output(
        call_id, _parts(output, f"{where}.output", _INPUT_PARTS)
    )


def _screen(fields: Mapping[str, Any], where: str) -> Item:
    """A screenshot taken after the computer actions that the model requested."""
    screenshot = _SCREEN(fields, where)
    at, output = f"{where}.output", screenshot["output"]
    choice("computer_screenshot")(output["type"], f"{at}.type")
    _url(output["image_url"], f"{at}.image_url", _IMAGE_TYPES)
    checks = screenshot.get("acknowledged_safety_checks")
    return {
        "type": "computer_call_output",
        "id": new_id("cuo"),
        "status": "completed",
        "call_id": screenshot["call_id"],
        "output": output,
        **({"acknowledged_safety_checks": checks} if checks else {}),
    }


def _checks(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise InputError(where, "expected a list.", code="invalid_type")
    if len(value) > MAX_CHECKS:
        raise InputError(where, f"at most {MAX_CHECKS} entries are allowed.")
    return [_CHECK(each, f"{where}[{n}]") for n, each in enumerate(value)]


def _approval(fields: Mapping[str, Any], where: str) -> Item:
    """The client's decision about an MCP call that the provider will make."""
    approval = _APPROVAL(fields, where)
    return {**approval, "id": new_id("mcpr")}


_CHECK = record({"id": string, "code": string, "message": string}, ["id"])
_SCREEN = record(
    {
        "type": string,
        "id": string,
        "status": string,
        "call_id": non_empty_string,
        "output": record(
            {"type": string, "image_url": string, "detail": string},
            ["type", "image_url"],
        ),
        "acknowledged_safety_checks": _checks,
    },
    ["call_id", "output"],
)
_APPROVAL = record(
    {
        "type": string,
        "id": string,
        "approval_request_id": non_empty_string,
        "approve": boolean,
        "reason": string,
    },
    ["approval_request_id", "approve"],
)
_ITEM_TYPES = (
    "message",
    "function_call_output",
    "computer_call_output",
    "mcp_approval_response",
)


def _non_blank_string(text: str, where: str) -> str:
    if not text.strip():
        raise InputError(where, "the message is empty.", code="empty_message")
    return string(text, where)


# Parts


def _parts(
    value: Any, where: str, kinds: Mapping[str, Callable[..., Item]]
) -> list[Item]:
    if not isinstance(value, list):
        raise InputError(where, "expected a string or a list.", code="invalid_type")
    return [
        _part(part, f"{where}[{index}]", kinds)
        for index, part in enumerate(check_length(value, where, MAX_PARTS))
    ]


def _part(value: Any, where: str, kinds: Mapping[str, Callable[..., Item]]) -> Item:
    fields = mapping(value, where)
    kind = require(fields, "type", where)
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(
            f"{where}.type",
            f"{short_repr(kind)} cannot be sent here; {either(kinds)} can.",
            code="unknown_part_type",
        )
    return kinds[kind](fields, where)


def _has_text(part: Item) -> bool:
    text = part.get("text", part.get("refusal"))
    return text is None or bool(text.strip())


def _input_text(fields: Mapping[str, Any], where: str) -> Item:
    check_known(fields, {"type", "text"}, where)
    text = string(require(fields, "text", where), f"{where}.text")
    return {"type": "input_text", "text": text}


def _output_text(fields: Mapping[str, Any], where: str) -> Item:
    check_known(fields, {"type", "text", "annotations", "logprobs"}, where)
    text = string(require(fields, "text", where), f"{where}.text")
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _refusal(fields: Mapping[str, Any], where: str) -> Item:
    check_known(fields, {"type", "refusal"}, where)
    text = string(require(fields, "refusal", where), f"{where}.refusal")
    return {"type": "refusal", "refusal": text}


def _input_image(fields: Mapping[str, Any], where: str) -> Item:
    check_known(fields, {"type", "image_url", "file_id", "detail"}, where)
    detail = _DETAIL(fields.get("detail") or "auto", f"{where}.detail")
    name = _only_one(fields, ("image_url", "file_id"), where)
    at = f"{where}.{name}"
    if name == "file_id":
        source = _file_id(fields[name], at)
    else:
        source = _url(fields[name], at, _IMAGE_TYPES)
    return {"type": "input_image", name: source, "detail": detail}


def _chat_image(fields: Mapping[str, Any], where: str) -> Item:
    check_known(fields, {"type", "image_url"}, where)
    image = require(fields, "image_url", where)
    if isinstance(image, str):
        return _input_image(fields, where)
    inner = mapping(image, f"{where}.image_url")
    check_known(inner, {"url", "detail"}, f"{where}.image_url")
    url = require(inner, "url", f"{where}.image_url")
    return _input_image({**_detail(inner), "image_url": url}, where)


def _detail(image: Mapping[str, Any]) -> dict[str, Any]:
    return {"detail": image["detail"]} if "detail" in image else {}


def _input_file(fields: Mapping[str, Any], where: str) -> Item:
    check_known(fields, {"type", "filename", "file_data", "file_url", "file_id"}, where)
    source = _only_one(fields, ("file_data", "file_url", "file_id"), where)
    part = {"type": "input_file"}
    if name := fields.get("filename"):
        part["filename"] = string(name, f"{where}.filename")
    at = f"{where}.{source}"
    if source == "file_id":
        return {**part, "file_id": _file_id(fields[source], at)}
    url = _url(fields[source], at, _ANY_TYPE)
    if url.startswith("data:") != (source == "file_data"):
        raise InputError(at, "'file_data' takes a data: URL, 'file_url' an https: one.")
    return {**part, source: url}


def _only_one(fields: Mapping[str, Any], names: Collection[str], where: str) -> str:
    present = [name for name in names if fields.get(name)]
    if len(present) != 1:
        *others, last = map(repr, names)
        raise InputError(where, f"give either {', '.join(others)} or {last}.")
    return present[0]


def _file_id(value: Any, where: str) -> str:
    """A well-formed file id; `turns.attachments` checks that the file exists."""
    if not _FILE_ID.fullmatch(string(value, where)):
        problem = "there is no such file in this conversation."
        raise InputError(where, problem, code="unknown_file")
    return str(value)


_INPUT_PARTS = {
    "input_text": _input_text,
    "input_image": _input_image,
    "input_file": _input_file,
    "text": _input_text,
    "image_url": _chat_image,
}
_OUTPUT_PARTS = {"output_text": _output_text, "refusal": _refusal, "text": _output_text}

_IMAGE_TYPES = re.compile(r"data:image/(png|jpeg|gif|webp);base64,")
_ANY_TYPE = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_FILE_ID = re.compile(r"file_[0-9a-z]{1,59}")
_HTTP_URL = re.compile(r"https?://[^\s/]\S*", re.IGNORECASE)


def _url(value: Any, where: str, data_types: re.Pattern[str]) -> str:
    url = string(value, where)
    if _HTTP_URL.fullmatch(url):
        return url
    head = data_types.match(url)
    if head is None or not _BASE64.fullmatch(url, head.end()):
        raise InputError(
            where, "expected an https: URL, or a data: URL of a known type in base64."
        )
    return url


def is_file_url(url: str, *, is_picture: bool) -> bool:
    """Whether a part may contain, or name, its file by this URL."""
    try:
        _url(url, "", _IMAGE_TYPES if is_picture else _ANY_TYPE)
    except InputError:
        return False
    return True


# Options


def _tool_choice(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return choice("auto", "none", "required")(value, where)
    return by_type(
        {
            "function": record(
                {"type": string, "name": tool_declarations.function_name}, ["name"]
            )
        }
    )(value, where)


def _metadata(value: Any, where: str) -> dict[str, str]:
    fields = mapping(value, where)
    if len(fields) > 16:
        raise InputError(where, "at most 16 pairs are allowed.")
    for name, text in fields.items():
        if len(name) > 64 or len(string(text, f"{where}.{name}")) > 512:
            raise InputError(
                where, "a name has at most 64 characters, a value at most 512."
            )
    return dict(fields)


_FORMAT = by_type(
    {
        "text": record({"type": string}),
        "json_object": record({"type": string}),
        "json_schema": record(
            {
                "type": string,
                "name": tool_declarations.function_name,
                "description": string,
                "schema": tool_declarations.schema,
                "strict": boolean,
            },
            ["name", "schema"],
        ),
    }
)
_DETAIL = choice("auto", "low", "high")


def _stops(value: Any, where: str) -> list[str]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not 1 <= len(stops) <= MAX_STOPS:
        raise InputError(where, f"expected a string, or 1 to {MAX_STOPS} of them.")
    return [non_empty_string(stop, f"{where}[{n}]") for n, stop in enumerate(stops)]


def _names(value: Any, where: str) -> list[str]:
    if not isinstance(value, list):
        raise InputError(where, "expected a list of names.", code="invalid_type")
    if len(value) > MAX_TOOLS:
        raise InputError(where, f"at most {MAX_TOOLS} names are allowed.")
    names = [_tool_name(name, f"{where}[{n}]") for n, name in enumerate(value)]
    return list(dict.fromkeys(names))


def _tool_name(value: Any, where: str) -> str:
    if not 1 <= len(string(value, where)) <= TOOL_NAME_LENGTH:
        problem = f"expected 1 to {TOOL_NAME_LENGTH} characters."
        raise InputError(where, problem)
    return str(value)


def _cache_seconds(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(where, "expected a whole number.", code="invalid_type")
    if not are_valid_seconds(value):
        raise InputError(where, f"must lie between 0 and {MAX_CACHE_SECONDS}.")
    return value


_OPTIONS: dict[str, Check] = {
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "max_output_tokens": whole,
    "reasoning": record(
        {
            "effort": choice(
                "none", "minimal", "low", "medium", "high", "xhigh", "max"
            ),
            "summary": choice("auto", "concise", "detailed"),
        }
    ),
    "text": record({"format": _FORMAT, "verbosity": choice("low", "medium", "high")}),
    "tool_choice": _tool_choice,
    "parallel_tool_calls": boolean,
    "stop": _stops,
    "seed": integer,
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "metadata": _metadata,
    # Tools of the client, and server tools that may be called ([] for none).
    "tools": tool_declarations.tools,
    "server_tools": _names,
    "disabled_tools": _names,
    # Unsupported options are dropped and reported instead of refused.
    "ignore_invalid_options": boolean,
    # How long the answer is stored for equal requests.
    "cache_seconds": _cache_seconds,
}

#: Names of the options that clients may set.
OPTION_NAMES = frozenset(_OPTIONS)
