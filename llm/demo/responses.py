"""The demo's Responses wire: bodies in; events, or one response object, out.

Written after OpenAI's own streams and on purpose not with our `ResponseBuilder`, so
that the two check one another.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import jsonschema_rs
import orjson

from llm.demo.problem import Problem, broken
from llm.demo.prompt import (
    ANY_OBJECT,
    TOOL_CHOICE,
    Calls,
    Message,
    Offer,
    Prompt,
    check,
    choose,
)
from llm.demo.steps import Call, Say, Script, Step, Think
from llm.demo.wire import Frame, Ids, half
from llm.demo.words import pieces, words
from llm.wire import sse
from llm.wire.items import Event, Item

_CONTENT = {
    "anyOf": [
        {"type": "string"},
        {
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
        },
    ]
}
_TEXT = {"type": "string"}
#: What an item of each type must have; types we do not know may come back as they went.
_FIELDS: dict[str, dict[str, Any]] = {
    "message": {
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": _CONTENT,
    },
    "function_call": {
        "call_id": {"type": "string", "minLength": 1, "maxLength": 64},
        "name": _TEXT,
        "arguments": _TEXT,
    },
    "function_call_output": {"call_id": _TEXT, "output": _CONTENT},
    "reasoning": {
        "summary": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["text"],
                "properties": {"text": _TEXT},
            },
        }
    },
}
_ITEM = {
    "type": "object",
    "properties": {"type": _TEXT},
    "if": {"required": ["type"]},
    "then": {
        "allOf": [
            {
                "if": {"properties": {"type": {"const": type}}},
                "then": {"required": list(fields), "properties": fields},
            }
            for type, fields in _FIELDS.items()
        ]
    },
    "else": {"required": ["role", "content"], "properties": _FIELDS["message"]},
}
_OPTIONAL_TEXT = {"type": ["string", "null"]}
_BODY = jsonschema_rs.validator_for(
    {
        "type": "object",
        "required": ["model", "input"],
        "properties": {
            "model": {"type": "string"},
            "input": {
                "anyOf": [{"type": "string"}, {"type": "array", "items": _ITEM}],
            },
            "instructions": _OPTIONAL_TEXT,
            "stream": {"type": ["boolean", "null"]},
            "tools": {
                "type": ["array", "null"],
                "items": {
                    "type": "object",
                    "required": ["type"],
                    "properties": {
                        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
                        "description": _OPTIONAL_TEXT,
                        "parameters": {"type": ["object", "null"]},
                    },
                    "if": {"properties": {"type": {"const": "function"}}},
                    "then": {"required": ["name"]},
                },
            },
            "tool_choice": TOOL_CHOICE,
            "parallel_tool_calls": {"type": ["boolean", "null"]},
            "max_output_tokens": {"type": ["integer", "null"], "minimum": 1},
            "reasoning": {
                "type": ["object", "null"],
                "properties": {"effort": _OPTIONAL_TEXT},
            },
            "include": {"type": ["array", "null"]},
            "text": {
                "type": ["object", "null"],
                "properties": {
                    "format": {
                        "type": ["object", "null"],
                        "required": ["type"],
                        "if": {"properties": {"type": {"const": "json_schema"}}},
                        "then": {
                            "required": ["name", "schema"],
                            "properties": {"schema": {"type": "object"}},
                        },
                    }
                },
            },
        },
    }
)


class ResponsesWire:
    def __init__(self, body: dict[str, Any]) -> None:
        check(_BODY, body)
        self.model: str = body["model"]
        self.stream = bool(body.get("stream"))
        self.prompt = _read(body)
        self._body = body
        self._ids = Ids(body)
        self._proves = "reasoning.encrypted_content" in (body.get("include") or ())

    def frames(self, script: Script) -> Iterator[Frame]:
        for number, event in enumerate(self._told(script)):
            data = orjson.dumps({**event, "sequence_number": number})
            yield Frame(sse.encode(event, data), event["type"].endswith(".delta"))

    def whole(self, script: Script) -> dict[str, Any]:
        if script.ending == "error":
            return self._response("failed", error=_failure())
        *_, last = self._events(script)
        response: dict[str, Any] = last["response"]
        return response

    # Events

    def _told(self, script: Script) -> Iterator[Event]:
        if script.ending not in ("error", "cut"):
            yield from self._events(script)
            return
        yield from half(self._events(script), self._events(script))
        if script.ending == "error":
            yield {"type": "error", "error": broken().error}
            failed = self._response("failed", error=_failure())
            yield {"type": "response.failed", "response": failed}

    def _events(self, script: Script) -> Iterator[Event]:
        begun = self._response("in_progress")
        yield {"type": "response.created", "response": begun}
        yield {"type": "response.in_progress", "response": begun}
        output: list[Item] = []
        for index, step in enumerate(script.steps):
            last = index == len(script.steps) - 1
            short = last and script.ending == "length"
            output.append((yield from self._item(index, step, short)))
        yield self._end(script, output)

    def _end(self, script: Script, output: list[Item]) -> Event:
        status = "incomplete" if script.ending == "length" else "completed"
        fields: dict[str, Any] = {"output": output, "usage": self._usage(script)}
        if status == "incomplete":
            fields["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            fields["completed_at"] = int(time.time())
        response = self._response(status, **fields)
        return {"type": f"response.{status}", "response": response}

    def _item(
        self, index: int, step: Step, short: bool
    ) -> Generator[Event, None, Item]:
        match step:
            case Think():
                item = self._reasoning(index)
                return (yield from self._think(index, item, step))
            case Say():
                item = self._message(index, step)
                return (yield from self._say(index, item, step, short))
            case Call():
                item = self._call(index, step)
                return (yield from self._ask(index, item, step, short))

    def _think(
        self, index: int, item: Item, step: Think
    ) -> Generator[Event, None, Item]:
        yield _added(index, item)
        for number, text in enumerate(step.parts):
            at = {
                "item_id": item["id"],
                "output_index": index,
                "summary_index": number,
            }
            yield {
                "type": "response.reasoning_summary_part.added",
                **at,
                "part": {"type": "summary_text", "text": ""},
            }
            for word in words(text):
                yield {
                    "type": "response.reasoning_summary_text.delta",
                    **at,
                    "delta": word,
                }
            yield {"type": "response.reasoning_summary_text.done", **at, "text": text}
            part = {"type": "summary_text", "text": text}
            yield {"type": "response.reasoning_summary_part.done", **at, "part": part}
        summary = [{"type": "summary_text", "text": text} for text in step.parts]
        item = {**item, "summary": summary}
        if self._proves:
            item["encrypted_content"] = proof(step.parts)
        yield _done(index, item)
        return item

    def _say(
        self, index: int, item: Item, step: Say, short: bool
    ) -> Generator[Event, None, Item]:
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        yield _added(index, item)
        yield {"type": "response.content_part.added", **at, "part": _text("")}
        for word in words(step.text):
            yield {
                "type": "response.output_text.delta",
                **at,
                "delta": word,
                "logprobs": [],
            }
        yield {
            "type": "response.output_text.done",
            **at,
            "text": step.text,
            "logprobs": [],
        }
        part = _text(step.text)
        yield {"type": "response.content_part.done", **at, "part": part}
        item = {**item, "status": _status(short), "content": [part]}
        yield _done(index, item)
        return item

    def _ask(
        self, index: int, item: Item, step: Call, short: bool
    ) -> Generator[Event, None, Item]:
        at = {"item_id": item["id"], "output_index": index}
        yield _added(index, item)
        for word in pieces(step.arguments):
            yield {
                "type": "response.function_call_arguments.delta",
                **at,
                "delta": word,
            }
        yield {
            "type": "response.function_call_arguments.done",
            **at,
            "arguments": step.arguments,
        }
        item = {**item, "status": _status(short), "arguments": step.arguments}
        yield _done(index, item)
        return item

    # Objects

    def _reasoning(self, index: int) -> Item:
        item: Item = {"id": self._ids.make("rs_", index), "type": "reasoning"}
        if self._proves:  # as OpenAI's: what comes early is not yet the proof
            item["encrypted_content"] = proof(())
        return {**item, "summary": []}

    def _message(self, index: int, step: Say) -> Item:
        return {
            "id": self._ids.make("msg_", index),
            "type": "message",
            "status": "in_progress",
            "content": [],
            "phase": step.phase,
            "role": "assistant",
        }

    def _call(self, index: int, step: Call) -> Item:
        return {
            "id": self._ids.make("fc_", index),
            "type": "function_call",
            "status": "in_progress",
            "arguments": "",
            "call_id": self._ids.make("call_", index),
            "name": step.name,
        }

    def _response(self, status: str, **fields: Any) -> dict[str, Any]:
        body = self._body
        reasoning, text = body.get("reasoning") or {}, body.get("text") or {}
        return {
            "id": self._ids.make("resp_"),
            "object": "response",
            "created_at": self._ids.created_at,
            "status": status,
            "background": False,
            "completed_at": None,
            "error": None,
            "frequency_penalty": 0.0,
            "incomplete_details": None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "max_tool_calls": None,
            "model": self.model,
            "output": [],
            "parallel_tool_calls": self.prompt.parallel,
            "presence_penalty": 0.0,
            "previous_response_id": None,
            "prompt_cache_key": body.get("prompt_cache_key"),
            "reasoning": {
                "effort": reasoning.get("effort"),
                "summary": reasoning.get("summary"),
            },
            "safety_identifier": body.get("safety_identifier"),
            "service_tier": "default",
            "store": False,
            "temperature": 1.0,
            "text": {
                "format": text.get("format") or {"type": "text"},
                "verbosity": text.get("verbosity") or "medium",
            },
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_logprobs": 0,
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": None,
            "user": None,
            "metadata": body.get("metadata") or {},
            **fields,
        }

    def _usage(self, script: Script) -> dict[str, Any]:
        read, written = self.prompt.size, script.size
        return {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": script.thought},
            "total_tokens": read + written,
        }


def proof(parts: Sequence[str]) -> str:
    """What stands for encrypted reasoning: it fits these words and no others."""
    digest = hashlib.sha256("\n".join(["parley demo", *parts]).encode()).digest()
    return f"demo-{base64.urlsafe_b64encode(digest).decode()}"


# Reading


def _read(body: Mapping[str, Any]) -> Prompt:
    if body.get("previous_response_id"):
        raise Problem(
            400,
            "The demo keeps no responses; send the conversation as 'input'.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    messages, calls = _conversation(body)
    tools, must_call = choose(_offers(body), body.get("tool_choice"))
    effort = (body.get("reasoning") or {}).get("effort") or ""
    return Prompt(
        messages=messages,
        answered=calls.answered,
        tools=tools,
        must_call=must_call,
        parallel=body.get("parallel_tool_calls") is not False,
        effort="" if effort == "none" else effort,
        schema=_schema((body.get("text") or {}).get("format") or {}),
        max_words=body.get("max_output_tokens"),
    )


def _conversation(body: Mapping[str, Any]) -> tuple[list[Message], Calls]:
    messages, calls = [], Calls()
    if instructions := body.get("instructions"):
        messages.append(Message("system", instructions))
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for item in items:
        if item.get("type", "message") == "message":
            messages.append(_message(item))
            if item["role"] == "user":
                calls.turn()
        else:
            _take(item, calls)
    if waiting := calls.waiting:
        raise _bad_input(f"No tool output found for function call {waiting[0]}.")
    return messages, calls


def _message(item: Item) -> Message:
    content = item["content"]
    attached = 0
    if not isinstance(content, str):
        attached = sum(
            part["type"] in ("input_image", "input_file") for part in content
        )
    return Message(item["role"], _spoken(content), attached)


def _take(item: Item, calls: Calls) -> None:
    match item["type"]:
        case "function_call":
            calls.call(item["call_id"], item["name"], item["arguments"])
        case "function_call_output":
            if not calls.output(item["call_id"], _spoken(item["output"])):
                raise _bad_input(
                    "No tool call found for function call output with call_id "
                    f"{item['call_id']}."
                )
        case "reasoning":
            _check_proof(item)
        # Receipts of hosted tools come back as they went; we have none.


def _check_proof(item: Item) -> None:
    """A proof goes back only to the one who made it, with the words it is for."""
    given = item.get("encrypted_content")
    parts = [part["text"] for part in item["summary"]]
    if given is not None and given != proof(parts):
        raise Problem(
            400,
            "The encrypted content of a reasoning item could not be verified.",
            code="invalid_encrypted_content",
            param="input",
        )


def _spoken(content: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or part.get("refusal") or "" for part in content)


def _offers(body: Mapping[str, Any]) -> list[Offer]:
    functions = [t for t in body.get("tools") or () if t["type"] == "function"]
    return [
        Offer(t["name"], t.get("description") or "", t.get("parameters") or {})
        for t in functions
    ]


def _schema(format: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if format.get("type") == "json_schema":
        schema: Mapping[str, Any] = format["schema"]
        return schema
    return ANY_OBJECT if format.get("type") == "json_object" else None


def _bad_input(message: str) -> Problem:
    return Problem(400, message, param="input")


# Pieces


def _added(index: int, item: Item) -> Event:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(index: int, item: Item) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _status(short: bool) -> str:
    return "incomplete" if short else "completed"


def _failure() -> dict[str, Any]:
    error = broken().error
    return {"code": error["code"], "message": error["message"]}
