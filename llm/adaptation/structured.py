"""Structured output: formats of an answer, and their validation. No IO.

An answer that must fit a JSON Schema is always validated here, for every model. For a
model that does not support schemas there are two emulations: it is forced to call a
tool whose input is the answer, or the instructions contain the schema. Then the input
of the tool, or the JSON found in the text, becomes the answer's text.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError, create_model

from llm.errors import BadRequest
from llm.wire.codecs.feature_fallbacks import is_forced
from llm.wire.deltas import (
    CloseDelta,
    Delta,
    FinishDelta,
    Key,
    ProofDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
    merge,
)
from llm.wire.items import message, user_message
from llm.wire.json_pointer import format_path
from llm.wire.json_schema.strict import drop_added_nulls
from llm.wire.json_schema.validation import compile_schema
from llm.wire.request import Request

MAX_ERRORS = 5  # listed in the correction
_TOOL_NAME = "final_answer"
_FENCE = "```"
_LANGUAGE = re.compile(r"[\w-]*\s*")
_MAX_FENCES = 100  # that are tried
_MAX_OPENINGS = 20  # brackets that are tried
_MAX_LANGUAGE = 60  # characters between the fence and the end of its line
_OPENING = re.compile(r"[{\[]")


class SchemaMismatch(ValueError):
    """An answer that does not fit its format. `errors` are sentences."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__(" ".join(errors))
        self.errors = errors


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """The format of an answer: JSON that fits `schema` and that `convert` accepts."""

    schema: Mapping[str, Any]
    #: Applies the rules of a type and returns its value; raises SchemaMismatch.
    convert: Callable[[Any], Any] | None = None
    #: The answer's optional properties may be null, because the host requires them.
    has_added_nulls: bool = False

    def parse(self, text: str) -> Any:
        """Parse and validate `text`. Raises SchemaMismatch."""
        value = self.parse_json(text)
        if errors := schema_errors(self.schema, value):
            raise SchemaMismatch(errors)
        return self.convert(value) if self.convert else value

    def parse_json(self, text: str) -> Any:
        """The JSON in `text`, as the caller's schema means it. Raises
        SchemaMismatch."""
        value = json_in(text)
        return drop_added_nulls(self.schema, value) if self.has_added_nulls else value


def parse_output_format(request: Request) -> OutputFormat | None:
    """The format that the request demands; None for any text. Raises BadRequest for an
    invalid JSON Schema."""
    match (request.text or {}).get("format"):
        case {"type": "json_schema", **form}:
            schema = form.get("schema")
            if not isinstance(schema, Mapping):
                raise _schema_error("it is missing")
            check_schema(schema)
            return OutputFormat(schema=schema)
        case {"type": "json_object"}:
            return OutputFormat(schema={"type": "object"})
    return None


def build_output_format(wanted: Any) -> OutputFormat:
    """The format of a JSON Schema, or of a type that pydantic can validate.

    Providers require an object at the top, so other types are wrapped in one.
    """
    if isinstance(wanted, Mapping):
        check_schema(wanted)
        return OutputFormat(schema=wanted)
    adapter: TypeAdapter[Any] = TypeAdapter(wanted)
    schema = adapter.json_schema()
    if schema.get("type") == "object":
        return OutputFormat(schema=schema, convert=partial(_convert, adapter))
    wrapper = create_model("Answer", value=(wanted, ...))
    adapter = TypeAdapter(wrapper)
    return OutputFormat(
        schema=adapter.json_schema(),
        convert=lambda value: _convert(adapter, value).value,
    )


def _convert(adapter: TypeAdapter[Any], value: Any) -> Any:
    try:
        # As JSON, in which a date is a string and a tuple an array.
        return adapter.validate_json(orjson.dumps(value))
    except ValidationError as exc:
        errors = exc.errors(include_input=False, include_url=False)[:MAX_ERRORS]
        raise SchemaMismatch(
            [f"At {_pointer(error['loc'])}: {error['msg']}." for error in errors]
        ) from exc


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises BadRequest for an invalid JSON Schema, or one with remote references."""
    try:
        compile_schema(schema)
    except (ValueError, TypeError) as exc:
        raise _schema_error(_reason(exc)) from exc


def schema_errors(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Validation errors of `value`, with their paths, without quoting it."""
    errors = compile_schema(schema).iter_errors(value)
    return [
        f"At {_pointer(error.instance_path)}: {error.message}."
        for error, _ in zip(errors, range(MAX_ERRORS), strict=False)
    ]


def json_in(text: str) -> Any:
    """Parse `text`, which is JSON or contains it in a fence or after a few words.

    Raises SchemaMismatch if there is none.
    """
    for candidate in _candidates(text):
        try:
            return orjson.loads(candidate)
        except orjson.JSONDecodeError:
            continue
    for found in islice(_OPENING.finditer(text), _MAX_OPENINGS):
        try:
            _, end = json.JSONDecoder().raw_decode(text, found.start())
            return orjson.loads(text[found.start() : end])
        except (ValueError, RecursionError):
            continue  # a bracket of the words before it
    raise SchemaMismatch(["The answer is not JSON."])


def _candidates(text: str) -> Iterator[str]:
    yield text
    yield from islice(_find_fenced(text), _MAX_FENCES)


def _find_fenced(text: str) -> Iterator[str]:
    """The texts between fences. Each search starts where the last one ended."""
    position = 0
    while (fence := text.find(_FENCE, position)) >= 0:
        position = fence + len(_FENCE)
        line_end = text.find("\n", position, position + _MAX_LANGUAGE)
        if line_end < 0 or not _LANGUAGE.fullmatch(text, position, line_end):
            continue
        if (end := text.find(_FENCE, line_end)) < 0:
            return
        yield text[line_end + 1 : end]
        position = end + len(_FENCE)


def _reason(exc: Exception) -> str:
    """The last part of the library's message; the part before is the context."""
    return str(exc).partition("\n")[0].rpartition("ValueError: ")[2]


def _pointer(path: Sequence[str | int]) -> str:
    return format_path(path) or "the top"


def _schema_error(why: str) -> BadRequest:
    return BadRequest(
        f"The JSON Schema in 'text.format' cannot be used: {why}.",
        param="text.format.schema",
    )


# The request, for a model that takes no schema


def add_answer_tool(
    request: Request, output_format: OutputFormat
) -> tuple[Request, str]:
    """Make the model call a tool whose input is the answer, or one of the other tools.

    Also returns the name of that tool.
    """
    name, taken = _TOOL_NAME, {tool.get("name") for tool in request.tools}
    while name in taken:
        name += "_"
    tool = {
        "type": "function",
        "name": name,
        "description": "Give the final answer. Call it once, and with nothing else.",
        "parameters": dict(output_format.schema),
    }
    offered = request.tools if request.tool_choice in (None, "auto") else ()
    return (
        replace(
            request,
            tools=[*offered, tool],
            tool_choice="required" if offered else {"type": "function", "name": name},
            text=without_format(request).text,
        ),
        name,
    )


def add_format_instructions(
    request: Request, output_format: OutputFormat, *, json_mode: bool
) -> Request:
    """Add the schema to the instructions, and use JSON mode if `json_mode`."""
    schema = json.dumps(dict(output_format.schema), ensure_ascii=False)
    instructions = (
        "Your final answer must be one JSON value that fits this JSON Schema, and"
        f" nothing else: no explanation, no Markdown.\n\n{schema}"
    )
    text = without_format(request).text or {}
    if json_mode:
        text = {**text, "format": {"type": "json_object"}}
    return replace(
        request,
        instructions="\n\n".join(filter(None, [request.instructions, instructions])),
        text=text or None,
    )


def can_be_tool_input(schema: Mapping[str, Any]) -> bool:
    """Whether it can be the input of a tool: providers require an object at the top."""
    return schema.get("type") == "object"


def forces_a_call(request: Request) -> bool:
    """Whether the model must call a tool, and cannot answer with text."""
    return bool(request.tools) and is_forced(request.tool_choice)


def request_correction(request: Request, text: str, errors: Sequence[str]) -> Request:
    """Ask for a correction of `text`."""
    correction = "That does not fit. " + " ".join(errors)
    correction += " Answer again with the corrected JSON and nothing else."
    answer = [message("assistant", text)] if text else []
    return replace(request, items=[*request.items, *answer, user_message(correction)])


def without_format(request: Request) -> Request:
    rest = {k: v for k, v in (request.text or {}).items() if k != "format"}
    return replace(request, text=rest or None)


# The answer


class AnswerValidator:
    """Collects the deltas of one provider call and validates the answer.

    With `buffered` all deltas are held back until the end, so that the answer can still
    be discarded.
    """

    def __init__(
        self, output_format: OutputFormat, *, tool: str = "", buffered: bool
    ) -> None:
        self._output_format = output_format
        self._tool = tool  # the tool whose input is the answer
        self._buffered = buffered
        self._deltas: list[Delta] = []
        # Set by `close`:
        self.text = ""
        self.is_valid = False
        self.errors: Sequence[str] = ()

    def buffer(self) -> None:
        """Hold back all deltas until the end. Call it before the first `feed`."""
        self._buffered = True

    def feed(self, deltas: Sequence[Delta]) -> list[Delta]:
        self._deltas += deltas
        return [] if self._buffered else list(deltas)

    def close(self) -> list[Delta]:
        """Validate the answer and return the deltas that were held back, rewritten."""
        deltas = merge(self._deltas)
        calls = [d for d in deltas if isinstance(d, ToolCallDelta)]
        answers = _calls_of(calls, self._tool)
        others = [d for d in calls if d.key not in answers]
        if answers and not others:
            self.text = _arguments(deltas, next(iter(answers)))
        else:
            self.text = _final_text(deltas)
        if not others and _is_whole(deltas):
            self._validate()
        if not self._buffered:
            return []
        return self._rewrite(deltas, answers, answered=not others)

    def _validate(self) -> None:
        try:
            self._output_format.parse(self.text)
            if not self._buffered:  # nothing around the JSON can be removed any more
                _require_bare_json(self.text)
        except SchemaMismatch as exc:
            self.errors = exc.errors
        else:
            self.is_valid = True

    def _rewrite(
        self, deltas: Sequence[Delta], answers: Mapping[Key, str], *, answered: bool
    ) -> list[Delta]:
        """The deltas with the answer as the text of a message."""
        remaining = [d for d in deltas if getattr(d, "key", None) not in answers]
        if not answered:
            return (
                remaining  # other tools first; the answer is requested again after them
            )
        if answers:
            replaced_types, end_types = (
                (TextDelta, FinishDelta, UsageDelta),
                (FinishDelta, UsageDelta),
            )
            before = [d for d in remaining if not isinstance(d, replaced_types)]
            after = [
                _normalize_finish(d) for d in remaining if isinstance(d, end_types)
            ]
            key = ("answer", next(iter(answers)))
            return [*before, TextDelta(key, self.text), CloseDelta(key), *after]
        if not self.is_valid:
            return remaining
        return _strip_wrapping(remaining, self.text, self._output_format)


def _require_bare_json(text: str) -> None:
    """Raises SchemaMismatch."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise SchemaMismatch(["The answer has text around its JSON."]) from exc


def _calls_of(calls: Sequence[ToolCallDelta], tool: str) -> dict[Key, str]:
    """The calls of `tool` in their order: its name, by the key of the call."""
    return {call.key: call.name for call in calls if tool and call.name == tool}


def _arguments(deltas: Sequence[Delta], key: Key) -> str:
    """The arguments of one call: from its end, or joined from pieces."""
    pieces: list[str] = []
    for delta in deltas:
        match delta:
            case ToolCallDelta() if delta.key == key:
                pieces.append(delta.arguments)
            case CloseDelta(arguments=str(whole)) if delta.key == key:
                pieces = [whole]
    return "".join(pieces)


def _final_text(deltas: Sequence[Delta]) -> str:
    """The text without commentary, for models that mark it."""
    texts = [d for d in deltas if isinstance(d, TextDelta)]
    passing = {d.key for d in texts if d.phase == "commentary"}
    return "".join(d.text for d in texts if d.key not in passing)


def _is_whole(deltas: Sequence[Delta]) -> bool:
    """Whether the answer ended normally. A refusal is not a complete answer."""
    reasons = [d.reason for d in deltas if isinstance(d, FinishDelta)]
    refused = any(isinstance(d, RefusalDelta) and d.text for d in deltas)
    return not refused and reasons[-1:] in (["stop"], ["tool_calls"])


def _normalize_finish(delta: Delta) -> Delta:
    if isinstance(delta, FinishDelta) and delta.reason == "tool_calls":
        return FinishDelta("stop", delta.raw)
    return delta


def _strip_wrapping(
    deltas: Sequence[Delta], text: str, output_format: OutputFormat
) -> list[Delta]:
    """The answer's JSON without the text and the fence around it, and without added
    nulls."""
    value = output_format.parse_json(text)
    try:
        is_bare = orjson.loads(text) == value
    except orjson.JSONDecodeError:
        is_bare = False
    if is_bare:
        return list(deltas)
    bare = orjson.dumps(value).decode()
    texts = [d for d in deltas if isinstance(d, TextDelta) and d.phase != "commentary"]
    keys, out = {d.key for d in texts}, list[Delta]()
    for delta in deltas:
        if delta is texts[-1]:
            out.append(TextDelta(texts[-1].key, bare, texts[-1].phase))
        elif not isinstance(delta, TextDelta | ProofDelta) or delta.key not in keys:
            out.append(delta)
    return out
