"""The demo's Responses API: request bodies in; events, or one response object, out.

It follows OpenAI's own streams and deliberately does not use `ResponseBuilder`, so that
each checks the other.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any

import orjson

from llm.demo.api_interface import Frame, Ids, first_half
from llm.demo.problem import stream_failure
from llm.demo.responses_request import parse_prompt, proof
from llm.demo.steps import CallTool, Say, Script, Step, Think
from llm.demo.words import pieces, words
from llm.wire import sse
from llm.wire.facades.responses_request import echo_of
from llm.wire.items import Event, Item
from llm.wire.request import Request


class ResponsesWire:
    def __init__(self, body: dict[str, Any]) -> None:
        self.prompt = parse_prompt(body)
        self.model: str = body["model"]
        self.stream = bool(body.get("stream"))
        self._body = body
        self._ids = Ids(body)
        self._includes_proof = "reasoning.encrypted_content" in (
            body.get("include") or ()
        )

    def frames(self, script: Script) -> Iterator[Frame]:
        for number, event in enumerate(self._script_events(script)):
            data = orjson.dumps({**event, "sequence_number": number})
            yield Frame(sse.encode(event, data), event["type"].endswith(".delta"))

    def response_body(self, script: Script) -> dict[str, Any]:
        if script.ending == "error":
            return self._response("failed", error=_failure())
        *_, last = self._events(script)
        response: dict[str, Any] = last["response"]
        return response

    # Events

    def _script_events(self, script: Script) -> Iterator[Event]:
        if script.ending not in ("error", "cut"):
            yield from self._events(script)
            return
        yield from first_half(self._events(script), self._events(script))
        if script.ending == "error":
            yield {"type": "error", "error": stream_failure().error}
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
            case CallTool():
                item = self._call(index, step)
                return (yield from self._ask(index, item, step, short))

    def _think(
        self, index: int, item: Item, step: Think
    ) -> Generator[Event, None, Item]:
        yield _item_added_event(index, item)
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
        if self._includes_proof:
            item["encrypted_content"] = proof(step.parts)
        yield _item_done_event(index, item)
        return item

    def _say(
        self, index: int, item: Item, step: Say, short: bool
    ) -> Generator[Event, None, Item]:
        at = {"item_id": item["id"], "output_index": index, "content_index": 0}
        yield _item_added_event(index, item)
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
        yield _item_done_event(index, item)
        return item

    def _ask(
        self, index: int, item: Item, step: CallTool, short: bool
    ) -> Generator[Event, None, Item]:
        at = {"item_id": item["id"], "output_index": index}
        yield _item_added_event(index, item)
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
        yield _item_done_event(index, item)
        return item

    # Objects

    def _reasoning(self, index: int) -> Item:
        item: Item = {"id": self._ids.make("rs_", index), "type": "reasoning"}
        if self._includes_proof:  # like OpenAI's, the first value is not final
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

    def _call(self, index: int, step: CallTool) -> Item:
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
        tools = body.get("tools") or ()
        # As the standard has them, with the fields that the request left out.
        echo = echo_of(body, Request(model=self.model, items=(), tools=tools))
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
            "tool_choice": echo.get("tool_choice") or "auto",
            "tools": echo["tools"],
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
            "output_tokens_details": {"reasoning_tokens": script.reasoning_size},
            "total_tokens": read + written,
        }


def _item_added_event(index: int, item: Item) -> Event:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _item_done_event(index: int, item: Item) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _status(short: bool) -> str:
    return "incomplete" if short else "completed"


def _failure() -> dict[str, Any]:
    error = stream_failure().error
    return {"code": error["code"], "message": error["message"]}
