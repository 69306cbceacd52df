"""Reader of request bodies of Gemini's `generateContent`.

Names may be in snake case, as in all of Google's JSON. An output without an id answers
the first open call of its name.

Source: https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from llm.wire.codecs.call_order import separate_equal_ids
from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.facades.request_reading import (
    assistant_items,
    unknown_value,
    unread_fields,
)
from llm.wire.items import Issuer, Item, function_call_output, message
from llm.wire.request import Request

Part = Mapping[str, Any]

_READ = frozenset(
    {"contents", "generationConfig", "systemInstruction", "toolConfig", "tools"}
)
#: Options of `Request` by Google's names.
_OPTIONS = {
    "frequencyPenalty": "frequency_penalty",
    "maxOutputTokens": "max_output_tokens",
    "presencePenalty": "presence_penalty",
    "seed": "seed",
    "stopSequences": "stop",
    "temperature": "temperature",
    "topP": "top_p",
}
_FORM = ("responseJsonSchema", "responseMimeType", "responseSchema")
_HOSTED = {
    "codeExecution": "code_execution",
    "googleMaps": "google_maps",
    "googleSearch": "google_search",
    "urlContext": "url_context",
}
#: Fields with JSON of the user, whose names stay unchanged.
_FREE = frozenset(
    {
        "args",
        "labels",
        "parameters",
        "parametersJsonSchema",
        "response",
        "responseJsonSchema",
        "responseSchema",
    }
)


def request_of(
    body: Mapping[str, Any],
    model: str,
    codec: GeminiCodec | None = None,
    issuer: Issuer | None = None,
) -> Request:
    """Read a request whose URL names the model. Raises BadRequest."""
    body = camel(body)
    reader = _Reader(codec or GeminiCodec(), issuer)
    for part in (body.get("systemInstruction") or {}).get("parts") or ():
        reader.items.append(message("system", part["text"]))
    for content in body["contents"]:
        reader.read(content)
    return Request(
        model=model,
        items=separate_equal_ids(reader.items),
        issuer=issuer,
        **_options(body),
    )


def camel(value: Any) -> Any:
    """Google's field names in camel case, as documented; users' JSON unchanged."""
    if isinstance(value, list):
        return [camel(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    renamed = {_camel_name(name): each for name, each in value.items()}
    return {n: each if n in _FREE else camel(each) for n, each in renamed.items()}


def _camel_name(name: str) -> str:
    return re.sub(r"(?<=[a-z])_([a-z])", lambda found: found[1].upper(), name)


def in_json_schema(declared: Mapping[str, Any]) -> dict[str, Any]:
    """A function declaration whose `parameters` became standard JSON Schema."""
    result = dict(declared)
    if schema := result.pop("parameters", None):
        result["parametersJsonSchema"] = _to_json_schema(schema)
    return result


def _to_json_schema(schema: Any) -> Any:
    """Convert Google's schema: types in capitals, and `nullable` for null. No other
    difference has been seen."""
    if isinstance(schema, list):
        return [_to_json_schema(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    result = {name: _to_json_schema(value) for name, value in schema.items()}
    kind = result.get("type")
    if not isinstance(kind, str):
        return result
    if result.get("nullable") is True:
        del result["nullable"]
        return {**result, "type": [kind.lower(), "null"]}
    return {**result, "type": kind.lower()}


class _Reader:
    def __init__(self, codec: GeminiCodec, issuer: Issuer | None) -> None:
        self.items: list[Item] = []
        self._codec = codec
        self._issuer = issuer
        self._open: list[tuple[str, str]] = []  # name and our id of open calls

    def read(self, content: Mapping[str, Any]) -> None:
        parts: Sequence[Part] = content.get("parts") or ()
        if content.get("role") == "model":
            self._read_model(parts)
            return
        outputs = [part for part in parts if "functionResponse" in part]
        self.items += [self._output(part["functionResponse"]) for part in outputs]
        if user_parts := [
            _part(part) for part in parts if "functionResponse" not in part
        ]:
            self.items.append({**message("user", ""), "content": user_parts})

    def _read_model(self, parts: Sequence[Part]) -> None:
        candidate = {"content": {"parts": parts}, "finishReason": "STOP"}
        deltas = self._codec.decode(orjson.dumps({"candidates": [candidate]}))
        items = assistant_items(deltas, self._issuer)
        calls = [item for item in items if item["type"] == "function_call"]
        self._open = [(call["name"], call["call_id"]) for call in calls]
        self.items += items

    def _output(self, response: Mapping[str, Any]) -> Item:
        name, id = response["name"], response.get("id")
        for call in self._open:
            if call[1] == id or (id is None and call[0] == name):
                self._open.remove(call)
                return function_call_output(call[1], _output_content(response))
        raise unknown_value(f"an output of {name!r} without a call", "contents")


def _output_content(response: Mapping[str, Any]) -> str | list[dict[str, Any]]:
    match response.get("response"):
        case {"output": str(text), **rest} if not rest:
            pass
        case {"error": str(error), **rest} if not rest:
            text = f"Error: {error}"
        case value:
            text = orjson.dumps(value or {}).decode()
    media = [_part(part) for part in response.get("parts") or ()]
    return [{"type": "input_text", "text": text}, *media] if media else text


def _part(part: Part) -> dict[str, Any]:
    match part:
        case {"text": text}:
            return {"type": "input_text", "text": text}
        case {"inlineData": {"mimeType": kind, "data": data}}:
            url = f"data:{kind};base64,{data}"
            return _media(kind, image_url=url, file_data=url)
        case {"fileData": {"fileUri": uri} as file}:
            return _media(file.get("mimeType") or "", image_url=uri, file_url=uri)
    raise unknown_value(f"a part with {', '.join(part)}", "contents")


def _media(kind: str, **places: str) -> dict[str, Any]:
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": places["image_url"]}
    del places["image_url"]
    return {"type": "input_file", **places}


# Options


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a `Request`.

    Tools and `tool_choice` are either both converted or both left in `extra`.
    """
    config = dict(body.get("generationConfig") or {})
    options = {
        ours: config.pop(name) for name, ours in _OPTIONS.items() if name in config
    }
    options = {name: value for name, value in options.items() if value is not None}
    if form := _form(config):
        options["text"] = {"format": form}
        config = unread_fields(config, _FORM)
    extra = unread_fields(body, _READ)
    if config := unread_fields(config, ()):
        extra["generationConfig"] = config
    try:
        options |= {"tools": _tools(body), "tool_choice": _choice(body)}
    except LookupError:
        extra |= {n: body[n] for n in ("tools", "toolConfig") if body.get(n)}
    return {**options, "extra": extra}


def _form(config: Mapping[str, Any]) -> dict[str, Any] | None:
    if config.get("responseMimeType") != "application/json":
        return None
    if "responseSchema" in config:
        return None  # in Google's own schema format
    if schema := config.get("responseJsonSchema"):
        return {"type": "json_schema", "name": "answer", "schema": schema}
    return {"type": "json_object"}


def _tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Raises LookupError for tools that `Request` cannot express."""
    tools: list[dict[str, Any]] = []
    for group in body.get("tools") or ():
        for name, value in unread_fields(group, ()).items():
            if name == "functionDeclarations":
                tools += map(_function, value)
            elif value:
                raise LookupError(name)
            else:
                tools.append({"type": _HOSTED[name]})
    return tools


def _function(declared: Mapping[str, Any]) -> dict[str, Any]:
    declared = in_json_schema(declared)
    if declared.keys() - {"name", "description", "parametersJsonSchema"}:
        raise LookupError(declared["name"])
    schema = declared.get("parametersJsonSchema") or {"type": "object"}
    named = {n: declared[n] for n in ("name", "description") if declared.get(n)}
    return {"type": "function", **named, "parameters": schema}


def _choice(body: Mapping[str, Any]) -> str | dict[str, Any] | None:
    """Raises LookupError for a choice that `Request` cannot express."""
    config = body.get("toolConfig") or {}
    if config.keys() - {"functionCallingConfig", "includeServerSideToolInvocations"}:
        raise LookupError("toolConfig")
    match config.get("functionCallingConfig"):
        case None:
            return None
        case {"mode": "ANY", "allowedFunctionNames": names}:
            tools = [{"type": "function", "name": name} for name in names]
            return {"type": "allowed_tools", "mode": "required", "tools": tools}
        case {"mode": mode, **rest} if not rest:
            return {"AUTO": "auto", "ANY": "required", "NONE": "none"}[mode]
    raise LookupError("functionCallingConfig")
