"""The Responses API: OpenAI's own, Azure's, xAI's and that of compatible servers.

In: a `Request` becomes the JSON body of `POST {base}/responses`, stateless (`store:
false`) unless it runs in the background. Out: the answer, streamed or complete, becomes
deltas (`decoder`). Canonical items already have this shape, so hosts differ
only in the features they support, which are the codec's fields.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from llm.errors import BadRequest, LLMError
from llm.wire.body_parser import parse_object
from llm.wire.classify_errors import classify
from llm.wire.codecs.feature_fallbacks import filter_by_choice, is_forced, open_schema
from llm.wire.codecs.openai_responses.decoder import ResponsesDecoder
from llm.wire.codecs.openai_responses.forwarding import fit_body
from llm.wire.codecs.openai_responses.hosted_tools import (
    Dialect,
    convert_hosted_tool,
    includes,
    is_degraded,
)
from llm.wire.codecs.openai_responses.input_items import (
    ResponsesInput,
    without_private_fields,
)
from llm.wire.deltas import Delta
from llm.wire.forwarding.codec import add_to_body, body_of
from llm.wire.item_prefix_cache import (
    EncodedPrefix,
    SplitItems,
    encode_messages,
    encode_prefix,
    without_prefix,
)
from llm.wire.request import Request
from llm.wire.usage_numbers import count

#: Options of OpenAI that compatible servers may not know.
OPENAI_OPTIONS = frozenset(
    {
        "metadata",
        "phase",  # of an assistant's message
        "prompt_cache_key",
        "safety_identifier",
        "service_tier",
        "stream_options",
        "top_logprobs",
        "verbosity",
    }
)
#: OpenAI's models that reason; others refuse a request for encrypted reasoning.
OPENAI_REASONERS = re.compile(r"o\d|codex|gpt-([6-9]|5(?!.*chat))")

#: Fields of https://platform.openai.com/docs/api-reference/responses/input-tokens
_COUNTED = frozenset(
    {
        "input",
        "instructions",
        "model",
        "parallel_tool_calls",
        "reasoning",
        "text",
        "tool_choice",
        "tools",
        "truncation",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIResponsesCodec:
    """The wire format; the fields describe one host's dialect."""

    name: str = "openai_responses"
    options: frozenset[str] = frozenset()  # the supported ones of OPENAI_OPTIONS
    #: Models that are asked for `encrypted_content`, by the beginning of their names.
    #: Others are asked if a request sets `reasoning` or contains such proofs.
    reasoners: re.Pattern[str] | None = None
    efforts: Mapping[str, str] = field(default_factory=dict)  # canonical to the host's
    developer_role: bool = True
    #: False if the host refuses `additionalProperties: false`; then strict has no
    #: effect.
    strict_schemas: bool = True
    takes_tool_choice: bool = True  # Meta: only the model may choose
    hosted_tools: Dialect = "openai"  # the format of hosted tools
    tool_results: bool = False  # reports the results of its tools on request
    deployment: str = ""  # Azure: the deployment's name, sent instead of the model's

    def path(self, request: Request) -> str:
        if request.resumes is None:
            return "/responses"
        # Read from the first event: stored items are compared and emitted once.
        wanted = self._include(request, self._input(request))
        query = urlencode([("stream", "true"), *(("include[]", w) for w in wanted)])
        return f"/responses/{quote(request.resumes.id, safe='')}?{query}"

    def cancel_path(self, response_id: str) -> str:
        return f"/responses/{quote(response_id, safe='')}/cancel"

    def count_path(self, request: Request) -> str:
        return "/responses/input_tokens"

    def encode_count(self, request: Request) -> dict[str, Any]:
        body = self.encode(request)
        return {name: body[name] for name in body if name in _COUNTED}

    def decode_count(self, body: bytes) -> int | None:
        return count(parse_object(body), "input_tokens")

    def encode(self, request: Request) -> dict[str, Any]:
        _refuse_unsupported(request)
        wire = self._input(request)
        known: dict[str, Any] = {
            "instructions": request.instructions or None,
            "max_output_tokens": request.max_output_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            **(self._tools(request) if request.tools else {}),
            **self._extras(request),
            "background": request.in_background or None,
            "reasoning": (request.reasoning and self._reasoning(request)) or None,
            "text": (request.text and self._text(request)) or None,
        }
        body: dict[str, Any] = {
            "model": self.deployment or request.model,
            "input": wire.items,
            "store": request.in_background,
            "stream": request.stream,
            **{name: value for name, value in known.items() if value is not None},
        }
        body.update(request.extra)
        wanted = [*self._include(request, wire), *(request.extra.get("include") or ())]
        if wanted:
            body["include"] = list(dict.fromkeys(wanted))
        if body.get("background") and not body["stream"]:
            raise BadRequest("A background response must be streamed.", param="stream")
        return body

    def forward(self, request: Request) -> dict[str, Any]:
        """The client's own body for this host, which stores nothing."""
        body = add_to_body(body_of(request), request, self, "input")
        if self.deployment:
            body["model"] = self.deployment
        return fit_body(
            body,
            developer_role=self.developer_role,
            strict_schemas=self.strict_schemas,
            reports_own_calls=self.hosted_tools == "xai",
        )

    def degraded(self, request: Request) -> list[str]:
        """The options that are ignored or only approximated."""
        effort = (request.reasoning or {}).get("effort")
        lost = {
            "metadata": bool(request.metadata) and "metadata" not in self.options,
            "reasoning.effort": self.efforts.get(effort or "", effort) != effort,
            "seed": request.seed is not None,
            "service_tier": bool(request.service_tier)
            and "service_tier" not in self.options,
            "text.verbosity": bool((request.text or {}).get("verbosity"))
            and "verbosity" not in self.options,
            "tools": any(
                is_degraded(tool, self.hosted_tools)
                for tool in request.tools
                if tool.get("type") != "function"
            ),
            "tool_choice": not self.takes_tool_choice
            and bool(request.tools)
            and is_forced(request.tool_choice),
            "top_logprobs": bool(request.top_logprobs),  # no item shows them
        }
        return [name for name, is_lost in lost.items() if is_lost]

    def decoder(self) -> ResponsesDecoder:
        return ResponsesDecoder()

    def decode(self, body: bytes) -> Iterator[Delta]:
        return ResponsesDecoder().answer(body)

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> LLMError:
        return classify(status, headers, body)

    # The body

    def _input(self, request: Request) -> ResponsesInput:
        if not isinstance(request.items, SplitItems):
            return self._build_input(request)
        earlier = encode_prefix(request, self, self._encode_prefix)
        if earlier is None:
            return self._build_input(request)
        wire = self._build_input(without_prefix(request))
        if not earlier.ids.isdisjoint(wire.used_call_ids):
            return self._build_input(request)
        wire.items = earlier.prepend_to(wire.items)
        wire.has_encrypted_reasoning = (
            wire.has_encrypted_reasoning or "reasoned" in earlier.notes
        )
        return wire

    def _encode_prefix(self, request: Request) -> EncodedPrefix | None:
        wire = self._build_input(request)
        if wire.is_cut:  # its output may be among the next items
            return None
        notes = frozenset({"reasoned"} if wire.has_encrypted_reasoning else ())
        return EncodedPrefix(
            encode_messages(wire.items[:-1]), frozenset(wire.used_call_ids), notes
        )

    def _build_input(self, request: Request) -> ResponsesInput:
        return ResponsesInput(
            request,
            developer_role=self.developer_role,
            phases="phase" in self.options,
            reports_own_calls=self.hosted_tools == "xai",
        )

    def _tools(self, request: Request) -> dict[str, Any]:
        tools, choice = list(request.tools), request.tool_choice
        if not self.takes_tool_choice:
            tools, choice = filter_by_choice(tools, choice), None
        if not tools:
            return {}  # a choice without tools is an error
        return {
            "tools": [self._tool(tool) for tool in tools],
            "tool_choice": choice,
            "parallel_tool_calls": request.parallel_tool_calls,
        }

    def _tool(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        function = without_private_fields(tool)
        if function.get("type") == "custom":
            return function
        if function.get("type") != "function":
            return convert_hosted_tool(function, self.hosted_tools)
        schema, strict = function.get("parameters"), bool(function.get("strict"))
        if not self.strict_schemas:
            schema, strict = open_schema(schema), False
        # If `strict` is missing, OpenAI tries strict mode first, and fails on other
        # schemas.
        return {**function, "parameters": schema, "strict": strict}

    def _include(self, request: Request, wire: ResponsesInput) -> list[str]:
        effort = (request.reasoning or {}).get("effort")
        reasons = (
            wire.has_encrypted_reasoning
            or (bool(request.reasoning) and effort != "none")
            or bool(self.reasoners and self.reasoners.match(request.model))
        )
        wanted = ["reasoning.encrypted_content"] if reasons else []
        return wanted + (includes(request.tools) if self.tool_results else [])

    def _extras(self, request: Request) -> dict[str, Any]:
        # Turns off random padding against eavesdroppers, a third of every delta's
        # bytes.
        unpadded = {"include_obfuscation": False}
        known: dict[str, Any] = {
            "metadata": dict(request.metadata) if request.metadata else None,
            "prompt_cache_key": request.prompt_cache_key,
            "safety_identifier": request.safety_identifier,
            "service_tier": request.service_tier,
            "top_logprobs": request.top_logprobs or None,
            "stream_options": unpadded if request.stream else None,
        }
        return {name: known[name] for name in known.keys() & self.options}

    def _reasoning(self, request: Request) -> dict[str, Any]:
        reasoning = dict(request.reasoning or {})
        if effort := reasoning.get("effort"):
            reasoning["effort"] = self.efforts.get(effort, effort)
        return {name: value for name, value in reasoning.items() if value is not None}

    @property
    def strict_formats(self) -> bool:
        """Whether the host takes `strict` with an answer's schema."""
        return self.strict_schemas

    def _text(self, request: Request) -> dict[str, Any]:
        text = {k: v for k, v in (request.text or {}).items() if v is not None}
        if "verbosity" not in self.options:
            text.pop("verbosity", None)
        if "format" in text and not self.strict_schemas:
            text["format"] = open_schema(text["format"])
        return text


def _refuse_unsupported(request: Request) -> None:
    """`seed` is optional and may be ignored; these options would change the answer."""
    for name in ("stop", "presence_penalty", "frequency_penalty"):
        if getattr(request, name):
            raise BadRequest(
                f"This model's API does not support {name!r}; leave it out.", param=name
            )
