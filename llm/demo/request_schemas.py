"""Request schemas that both demo APIs share, and conversion to a `DemoPrompt`. Pure.

The fields are the same in both APIs; some are only nested differently.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llm.demo.problem import Problem
from llm.demo.prompt import CallHistory, DemoPrompt, Message, OfferedTool
from llm.wire.json_schema.validation import compile_schema

Schema = Mapping[str, Any]

OPTIONAL_TEXT: Schema = {"type": ["string", "null"]}
OPTIONAL_OBJECT: Schema = {"type": ["object", "null"]}
OPTIONAL_FLAG: Schema = {"type": ["boolean", "null"]}
OPTIONAL_COUNT: Schema = {"type": ["integer", "null"], "minimum": 1}

TOOL_CHOICE: Schema = {
    "anyOf": [
        {"enum": ["none", "auto", "required", None]},
        {
            "type": "object",
            "required": ["type"],
            "properties": {
                "type": {"type": "string"},
                "tools": {"type": "array"},
                "allowed_tools": {
                    "type": "object",
                    "properties": {"tools": {"type": "array"}},
                },
            },
        },
    ]
}

#: The parts of a message's content, if it is no plain text.
PARTS: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"type": "string"},
            "text": {"type": "string"},
            "refusal": {"type": "string"},
        },
    },
}

#: Fields that both APIs have.
COMMON: Schema = {
    "model": {"type": "string"},
    "stream": OPTIONAL_FLAG,
    "tool_choice": TOOL_CHOICE,
    "parallel_tool_calls": OPTIONAL_FLAG,
}

#: Fields of a function tool.
FUNCTION: Schema = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
    "description": OPTIONAL_TEXT,
    "parameters": OPTIONAL_OBJECT,
}

#: The schema for the format `json_object`, which allows any object.
_ANY_OBJECT: Schema = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}


def list_of_tools(function: Schema) -> Schema:
    """Schema of `tools`; `function` has the additional fields of a function tool."""
    tool = {
        "type": "object",
        "required": ["type"],
        "if": {"properties": {"type": {"const": "function"}}},
        "then": function,
    }
    return {"type": ["array", "null"], "items": tool}


def format_schema(schema_fields: Schema) -> Schema:
    """Schema of an answer's format; `schema_fields` are those of type `json_schema`."""
    return {
        **OPTIONAL_OBJECT,
        "required": ["type"],
        "if": {"properties": {"type": {"const": "json_schema"}}},
        "then": schema_fields,
    }


#: Fields of the format `json_schema`.
NAMED_SCHEMA: Schema = {
    "required": ["name", "schema"],
    "properties": {"schema": {"type": "object"}},
}


def prompt_of(
    body: Mapping[str, Any],
    messages: Sequence[Message],
    calls: CallHistory,
    *,
    functions: Sequence[Mapping[str, Any]],
    effort: str | None,
    schema: Schema | None,
    max_words: int | None,
) -> DemoPrompt:
    """Raises Problem."""
    offers = [
        OfferedTool(f["name"], f.get("description") or "", f.get("parameters") or {})
        for f in functions
    ]
    tools, must_call = choose(offers, body.get("tool_choice"))
    return DemoPrompt(
        messages=messages,
        answered=calls.answered,
        tools=tools,
        must_call=must_call,
        parallel=body.get("parallel_tool_calls") is not False,
        effort="" if effort in (None, "none") else effort,
        schema=schema,
        max_words=max_words,
    )


def functions_of(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [tool for tool in body.get("tools") or () if tool["type"] == "function"]


def schema_of(form: Mapping[str, Any], named: Any) -> Schema | None:
    """The schema that the answer must match, if any; `named` is its parent object."""
    match form.get("type"):
        case "json_schema":
            schema: Schema = named["schema"]
            return schema
        case "json_object":
            return _ANY_OBJECT
    return None


def message_of(role: str, content: Any, files: Collection[str]) -> Message:
    """`files`: types of parts that are attachments."""
    parts = content if isinstance(content, list) else ()
    return Message(role, text_of(content), sum(part["type"] in files for part in parts))


def choose(
    tools: Sequence[OfferedTool], choice: str | Mapping[str, Any] | None
) -> tuple[Sequence[OfferedTool], bool]:
    """The tools that `tool_choice` allows, and whether one of them must be called.

    Accepts the choices of both APIs; those of Chat Completions are nested.
    """
    if choice in (None, "auto"):
        return tools, False
    if choice == "none":
        return (), False
    required = True
    allowed = list(tools)
    if isinstance(choice, Mapping) and choice["type"] == "allowed_tools":
        nested = choice.get("allowed_tools") or choice
        names = [_name(tool) for tool in nested.get("tools") or ()]
        allowed = [tool for tool in tools if tool.name in names]
        required = nested.get("mode") == "required"
    elif choice != "required":
        allowed = [tool for tool in tools if tool.name == _name(choice)]
    if not allowed:
        raise Problem(
            400, "'tool_choice' names no tool of 'tools'.", param="tool_choice"
        )
    return allowed, required


def text_of(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    """The text of a message's content."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text") or part.get("refusal") or "" for part in content)


def check(schema: Mapping[str, Any], body: Any) -> None:
    """Raises Problem with the field's name if `body` does not match `schema`."""
    for exc in compile_schema(schema).iter_errors(body):
        path = list(exc.instance_path)
        missing = exc.kind.name == "required"
        if missing:
            path.append(exc.kind.as_dict()["property"])
        param = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
        param = param.lstrip(".")
        problem = "Missing required parameter:" if missing else "Invalid value for"
        raise Problem(
            400,
            f"{problem} '{param}'." if param else "The body must be a JSON object.",
            code="missing_required_parameter" if missing else "invalid_value",
            param=param or None,
        )


def _name(choice: Any) -> Any:
    """The name of the tool in a choice; None if it has none."""
    if not isinstance(choice, Mapping):
        return None
    function = choice.get("function")
    return (function if isinstance(function, Mapping) else choice).get("name")
