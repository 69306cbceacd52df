"""Chat Completions, for OpenAI and the many hosts that copied it.

In: a `Request` becomes the JSON body of `POST {base}/chat/completions`. Out: the
answer, streamed or complete, becomes deltas. `host_options` is how hosts differ.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from llm.errors import BadRequest, LLMError
from llm.wire.body_parser import parse_object
from llm.wire.classify_errors import classify
from llm.wire.codecs.feature_fallbacks import (
    filter_by_choice,
    has_late_instructions,
    is_forced,
)
from llm.wire.codecs.file_data import names_video
from llm.wire.codecs.openai_chat.decoder import ChatDecoder
from llm.wire.codecs.openai_chat.forwarding import fit_body
from llm.wire.codecs.openai_chat.host_options import OPENAI_OPTIONS, HostOptions
from llm.wire.codecs.openai_chat.hosted_tools import HostedToolFields
from llm.wire.codecs.openai_chat.messages import messages
from llm.wire.deltas import Delta
from llm.wire.forwarding.codec import add_to_body, body_of
from llm.wire.hosted_tools import is_hosted
from llm.wire.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIChatCodec(HostOptions):
    """Encodes requests and decodes answers as the host of these options expects."""

    def path(self, request: Request) -> str:
        return self.path_template.format(model=quote(request.model, safe=""))

    def encode(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.deployment or request.model,
            "messages": [*messages(request, self), *self._prefill(request)],
            **self._delivery(request),
            **self._tools(request),
            **self._sampling(request),
            **self._form(request),
            **self._extras(request),
        }
        known = {
            name: value
            for name, value in body.items()
            if value is not None and name not in self.drops
        }
        begun = self.prefill_fields if request.prefill else {}
        return {**self._defaults(request), **known, **begun, **request.extra}

    def forward(self, request: Request) -> dict[str, Any]:
        """The client's own body for this host."""
        body = body_of(request)
        if self.deployment:
            body["model"] = self.deployment
        body = fit_body(add_to_body(body, request, self, "messages"), self)
        if "model" in self.drops:
            del body["model"]
        return {**self._defaults(request), **body}

    def degraded(self, request: Request) -> list[str]:
        """The options that are ignored or only approximated."""
        effort, choice = (request.reasoning or {}).get("effort"), request.tool_choice
        requested = {
            "metadata": request.metadata,
            "service_tier": request.service_tier,
            "verbosity": (request.text or {}).get("verbosity"),
        }
        lost = [name for name, value in requested.items() if value]
        lost = [name for name in lost if name not in self.options]
        if request.top_logprobs:  # no item shows them
            lost.append("top_logprobs")
        if self.efforts.get(effort or "", effort) != effort:
            lost.append("reasoning.effort")
        if request.tools and not self.takes_tool_choice and is_forced(choice):
            lost.append("tool_choice")
        if self._collect_hosted_tools(request.model, request.tools).is_degraded:
            lost.append("tools")
        if self.merge_system and has_late_instructions(request.items):
            lost.append("input")
        if self.drops:
            sent = self._sampling(request)
            if request.tools:
                sent["parallel_tool_calls"] = request.parallel_tool_calls
            lost += [name for name in self.drops if sent.get(name) is not None]
        names = {
            "logprobs": "top_logprobs",
            "verbosity": "text.verbosity",
            self.seed_field: "seed",
        }
        return sorted({names.get(name, name) for name in lost})

    def decoder(self) -> ChatDecoder:
        return ChatDecoder(
            echo=self.reasoning_echo,
            think_tags=self.think_tags,
            think_begun=self.think_begun,
        )

    def decode(self, body: bytes) -> Iterator[Delta]:
        return self.decoder().answer(parse_object(body))

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> LLMError:
        return classify(status, headers, body, statuses=self.statuses)

    def fetches(self, part: Mapping[str, Any], url: str) -> bool:
        """Whether the host fetches the content of `part` from `url`; of files only
        videos."""
        is_shown = part["type"] == "input_image" or names_video(part)
        return self.image_urls and is_shown

    # The body

    def _prefill(self, request: Request) -> list[dict[str, Any]]:
        if not request.prefill:
            return []
        begun = {"role": "assistant", "content": request.prefill}
        return [{**begun, **self.prefill_message}]

    def _defaults(self, request: Request) -> dict[str, Any]:
        defaults = dict(self.defaults)
        for beginning, fields in self.model_defaults.items():
            if request.model.startswith(beginning):
                defaults.update(fields)
        return defaults

    def _delivery(self, request: Request) -> dict[str, Any]:
        if not request.stream:
            return {}
        options = dict(self.stream_options) or None
        return {"stream": True, "stream_options": options}

    def _sampling(self, request: Request) -> dict[str, Any]:
        logprobs = request.top_logprobs
        return {
            self.max_tokens_field: request.max_output_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop": list(request.stop) or None,
            self.seed_field: request.seed,
            "presence_penalty": request.presence_penalty,
            "frequency_penalty": request.frequency_penalty,
            "logprobs": True if logprobs else None,
            "top_logprobs": logprobs or None,
        }

    def _form(self, request: Request) -> dict[str, Any]:
        """Reasoning effort and response format."""
        form = (request.text or {}).get("format") or {}
        answer = {"response_format": _response_format(self.fit_schema(form))}
        effort = (request.reasoning or {}).get("effort")
        if effort == "none" and self.no_reasoning:
            return {**answer, **self.no_reasoning}
        effort = self.efforts.get(effort, effort) if effort else None
        as_object = effort and self.effort_field == "reasoning"
        return {
            **answer,
            self.effort_field: {"effort": effort} if as_object else effort,
        }

    def _extras(self, request: Request) -> dict[str, Any]:
        known = {
            "metadata": dict(request.metadata) if request.metadata else None,
            "prompt_cache_key": request.prompt_cache_key,
            "safety_identifier": request.safety_identifier,
            "service_tier": request.service_tier,
            "verbosity": (request.text or {}).get("verbosity"),
        }
        return {name: known[name] for name in OPENAI_OPTIONS & self.options}

    # Tools

    def _tools(self, request: Request) -> dict[str, Any]:
        choice, tools = request.tool_choice, list(request.tools)
        if not self.takes_tool_choice:
            choice, tools = None, filter_by_choice(tools, choice)
        if not tools:
            return {}  # a choice without tools is an error
        if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
            choice, tools = self._convert_allowed_tools(choice, tools)
        elif isinstance(choice, Mapping):
            choice = _choice_by_name(choice)
        run_there = tools if choice != "none" else []
        theirs = self._collect_hosted_tools(request.model, run_there)
        ours = [self._tool(tool) for tool in tools if not is_hosted(tool)]
        if not (entries := [*ours, *theirs.tools]):
            return theirs.fields
        return {
            "tools": entries,
            "tool_choice": choice,
            "parallel_tool_calls": request.parallel_tool_calls,
            **theirs.fields,
        }

    def _collect_hosted_tools(
        self, model: str, tools: Sequence[Mapping[str, Any]]
    ) -> HostedToolFields:
        """Raises BadRequest for a tool that the host does not have."""
        collected = HostedToolFields(self.hosted_tools, model)
        for tool in filter(is_hosted, tools):
            collected.add(tool)
        return collected

    def _tool(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        names = ["name", "description", "parameters", "format"]
        names += ["strict"] if self.strict_tools else []
        fields = {name: tool[name] for name in names if tool.get(name) is not None}
        if tool["type"] == "custom":
            return {"type": "custom", "custom": _custom_format(fields)}
        fields.setdefault("parameters", {"type": "object", "properties": {}})
        return {"type": "function", "function": self.fit_schema(fields)}

    @property
    def strict_formats(self) -> bool:
        """Whether the host is known to take `strict` with an answer's schema."""
        return self.strict_tools

    def _convert_allowed_tools(
        self, choice: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[Any, list[Any]]:
        """A choice among some tools; hosts without such a choice get only those
        tools."""
        mode = choice.get("mode", "auto")
        names = [tool["name"] for tool in choice["tools"] if "name" in tool]
        if not self.allowed_tools:
            kinds = [tool["type"] for tool in choice["tools"] if "name" not in tool]
            return mode, [
                tool
                for tool in tools
                if tool.get("name") in names or tool["type"] in kinds
            ]
        allowed = {
            "mode": mode,
            "tools": [_choice_by_name(tool) for tool in choice["tools"]],
        }
        return {"type": "allowed_tools", "allowed_tools": allowed}, list(tools)


def _choice_by_name(choice: Mapping[str, Any]) -> dict[str, Any]:
    kind = choice.get("type")
    if kind not in ("function", "custom"):
        raise BadRequest(
            "With this provider 'tool_choice' cannot name a tool of the type"
            f" {kind!r}.",
            param="tool_choice",
        )
    return {"type": kind, kind: {"name": choice["name"]}}


def _custom_format(tool: dict[str, Any]) -> dict[str, Any]:
    """A grammar is nested here; in the Responses API it is flat."""
    form = tool.get("format") or {}
    if form.get("type") != "grammar" or "grammar" in form:
        return tool
    grammar = {name: form[name] for name in ("syntax", "definition")}
    return {**tool, "format": {"type": "grammar", "grammar": grammar}}


def _response_format(form: Mapping[str, Any]) -> dict[str, Any] | None:
    match form.get("type"):
        case "json_schema":
            schema = {
                name: form[name]
                for name in ("name", "description", "schema", "strict")
                if form.get(name) is not None
            }
            return {"type": "json_schema", "json_schema": schema}
        case "json_object":
            return {"type": "json_object"}
        case _:
            return None
