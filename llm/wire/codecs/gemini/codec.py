"""generateContent: Gemini's own API, and the same on Vertex AI.

In: a `Request` becomes the JSON body of `POST {base}/models/{model}:generateContent`,
or of `:streamGenerateContent?alt=sse`; `contents` encodes the conversation.
Out: the answer, streamed or complete, becomes deltas (`decoder`).
`model_capabilities` has the differences between models.

Source: https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from llm.errors import BadRequest, LLMError
from llm.wire.body_parser import parse_json, parse_object
from llm.wire.classify_errors import classify
from llm.wire.codecs.feature_fallbacks import has_detail, has_late_instructions
from llm.wire.codecs.gemini import model_capabilities
from llm.wire.codecs.gemini.contents import Contents, encode_contents_prefix
from llm.wire.codecs.gemini.decoder import GeminiDecoder
from llm.wire.codecs.gemini.function_schema import (
    SCHEMA_KEYWORDS,
    UNENFORCED,
    arguments_of,
)
from llm.wire.codecs.gemini.hosted_tools import (
    convert_hosted_tool,
    is_degraded,
    runs_at_google,
)
from llm.wire.deltas import Delta
from llm.wire.item_prefix_cache import encode_prefix, without_prefix
from llm.wire.json_schema.reduction import cut_down
from llm.wire.request import Request
from llm.wire.usage_numbers import count

_MAX_STOPS = 5
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_TIERS = {"default": "standard", "flex": "flex", "priority": "priority"}

Tool = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeminiCodec:
    name: str = "gemini"
    vertex: bool = False  # models have publishers, and requests may have labels
    unenforced_keywords: ClassVar[frozenset[str]] = UNENFORCED  # of an answer's schema

    def path(self, request: Request) -> str:
        model = quote(self._model_path(request.model), safe="/:@")
        if request.stream:
            # Without `alt` the stream is one JSON array.
            return f"/{model}:streamGenerateContent?alt=sse"
        return f"/{model}:generateContent"

    def count_path(self, request: Request) -> str:
        model = quote(self._model_path(request.model), safe="/:@")
        return f"/{model}:countTokens"

    def encode_count(self, request: Request) -> dict[str, Any]:
        body = {"model": self._model_path(request.model), **self.encode(request)}
        return {"generateContentRequest": body}

    def decode_count(self, body: bytes) -> int | None:
        return count(parse_object(body), "totalTokens")

    def encode(self, request: Request) -> dict[str, Any]:
        earlier = encode_prefix(request, self, encode_contents_prefix)
        conversation = Contents(without_prefix(request) if earlier else request)
        contents, ran_there = conversation.contents, conversation.has_hosted_parts
        if earlier:
            contents = earlier.prepend_to(contents)
            ran_there = ran_there or "hosted" in earlier.notes
        tools = self._tools(request)
        body: dict[str, Any] = {
            "contents": contents,
            "systemInstruction": _instruction(conversation.system),
            "tools": tools,
            "toolConfig": self._tool_config(request, tools, ran_there),
            "generationConfig": self._generation(request, tools),
            "serviceTier": _TIERS.get(request.service_tier or ""),
            "labels": _labels(request.metadata) if self.vertex else None,
        }
        return _with_extra({k: v for k, v in body.items() if v}, request.extra)

    def degraded(self, request: Request) -> list[str]:
        """The options that are only approximated or left out."""
        model, effort = request.model, (request.reasoning or {}).get("effort")
        fixed = model_capabilities.version(model) >= model_capabilities.FIXED_SAMPLING
        lost = {
            "input": has_late_instructions(request.items) or has_detail(request.items),
            "metadata": bool(request.metadata) and not self._takes_labels(request),
            "parallel_tool_calls": request.parallel_tool_calls is False,
            "reasoning": not model_capabilities.takes_effort(model, effort),
            "service_tier": request.service_tier not in (None, "auto", *_TIERS),
            "temperature": fixed and request.temperature is not None,
            "text.verbosity": bool((request.text or {}).get("verbosity")),
            "tools": _is_mixed_in_strictness(request.tools)
            or any(map(is_degraded, request.tools)),
            "top_logprobs": bool(request.top_logprobs),
            "top_p": fixed and request.top_p is not None,
        }
        return [name for name, is_lost in lost.items() if is_lost]

    def decoder(self) -> GeminiDecoder:
        return GeminiDecoder()

    def decode(self, body: bytes) -> Iterator[Delta]:
        """Raises LLMError, as `feed` does. A list of chunks is accepted too."""
        decoder = GeminiDecoder(goes_on=False)
        yield from decoder.decode_chunks(parse_json(body))
        yield from decoder.close()

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> LLMError:
        return classify(status, headers, body)

    def fetches(self, part: Mapping[str, Any], url: str) -> bool:
        """Google fetches files by their address, including its own and YouTube's, over
        https."""
        return not url.startswith("http://")

    # The address

    def _model_path(self, model: str) -> str:
        if not self.vertex:
            known = model.startswith(("models/", "tunedModels/"))
            return model if known else f"models/{model}"
        if model.startswith(("publishers/", "endpoints/", "models/")):
            return model
        publisher, _, name = model.rpartition("/")
        return f"publishers/{publisher or 'google'}/models/{name}"

    # The body

    def _tools(self, request: Request) -> list[dict[str, Any]]:
        tools = _usable_tools(request)
        functions = [_declaration(t) for t in tools if t["type"] == "function"]
        others = [t for t in tools if t["type"] != "function"]
        theirs = [convert_hosted_tool(tool, vertex=self.vertex) for tool in others]
        if request.tool_choice == "none":
            theirs = []  # the mode NONE does not keep Google's own tools from running
        if functions and any(map(runs_at_google, theirs)) and not _mixes(request):
            raise BadRequest(
                f"The model {request.model!r} takes functions or Google's own tools,"
                " not both.",
                param="tools",
            )
        declared = [{"functionDeclarations": functions}] if functions else []
        return [*theirs, *declared]

    def _tool_config(
        self, request: Request, tools: Sequence[Tool], replayed: bool
    ) -> dict[str, Any]:
        config: dict[str, Any] = {}
        functions = any("functionDeclarations" in tool for tool in tools)
        if functions and (calling := _calling(request)):
            config["functionCallingConfig"] = calling
        mixed = functions and any(map(runs_at_google, tools))
        if not self.vertex and (replayed or mixed):
            # For Google's own tools beside functions, or for their parts in the
            # history.
            config["includeServerSideToolInvocations"] = True
        return config

    def _generation(self, request: Request, tools: Sequence[Tool]) -> dict[str, Any]:
        if len(request.stop) > _MAX_STOPS:
            raise BadRequest(f"Gemini takes {_MAX_STOPS} stops at most.", param="stop")
        config: dict[str, Any] = {
            "maxOutputTokens": request.max_output_tokens,
            "temperature": request.temperature,
            "topP": request.top_p,
            "stopSequences": list(request.stop) or None,
            "seed": request.seed,
            "presencePenalty": request.presence_penalty,
            "frequencyPenalty": request.frequency_penalty,
            "responseLogprobs": True if request.top_logprobs else None,
            "logprobs": request.top_logprobs or None,
            "thinkingConfig": _thinking(request) or None,
            **_form(request, tools),
        }
        return {name: value for name, value in config.items() if value is not None}

    def _takes_labels(self, request: Request) -> bool:
        return self.vertex and _labels(request.metadata) == dict(request.metadata or {})


def _instruction(texts: Sequence[str]) -> dict[str, Any] | None:
    parts = [{"text": text} for text in texts if text]
    return {"parts": parts} if parts else None


def _thinking(request: Request) -> dict[str, Any]:
    reasoning = request.reasoning or {}
    config = model_capabilities.thinking_of(request.model, reasoning.get("effort"))
    if reasoning.get("summary") and model_capabilities.thinks(request.model):
        config["includeThoughts"] = True
    return config


def _form(request: Request, tools: Sequence[Tool]) -> dict[str, Any]:
    form = (request.text or {}).get("format") or {}
    match form.get("type"):
        case "json_object":
            return {"responseMimeType": "application/json"}
        case "json_schema":
            if tools and not _mixes(request):
                raise BadRequest(
                    f"The model {request.model!r} takes tools or a JSON Schema of the"
                    " answer, not both.",
                    param="text.format",
                )
            return {
                "responseMimeType": "application/json",
                "responseJsonSchema": cut_down(form["schema"], SCHEMA_KEYWORDS),
            }
    return {}


def _mixes(request: Request) -> bool:
    return (
        model_capabilities.version(request.model)
        >= model_capabilities.MULTIMODAL_OUTPUTS
    )


def _labels(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """The labels that Google Cloud accepts: short, lower case, beginning with a
    letter."""
    return {
        key: value
        for key, value in (metadata or {}).items()
        if key[:1].isalpha() and _LABEL.fullmatch(key) and _LABEL.fullmatch(value)
    }


def _with_extra(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the extras into the body, also inside `generationConfig` and other
    objects."""
    for name, value in extra.items():
        match body.get(name), value:
            case dict() as ours, Mapping():
                body[name] = {**ours, **value}
            case _:
                body[name] = value
    return body


# Tools


def _declaration(tool: Tool) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": tool["name"]}
    if tool.get("description"):
        declared["description"] = tool["description"]
    return declared | arguments_of(tool.get("parameters") or {})


def _usable_tools(request: Request) -> Sequence[Tool]:
    """The tools to send: only the allowed ones if the model knows no such
    restriction."""
    if _names_in_choice(request) is None or _validates(request):
        return request.tools
    names, kinds = _names_in_choice(request) or [], _kinds_in_choice(request)
    return [
        tool
        for tool in request.tools
        if (tool.get("name") in names if "name" in tool else tool["type"] in kinds)
    ]


def _kinds_in_choice(request: Request) -> list[str]:
    choice = request.tool_choice
    assert isinstance(choice, Mapping)
    return [tool["type"] for tool in choice["tools"] if "name" not in tool]


def _names_in_choice(request: Request) -> list[str] | None:
    choice = request.tool_choice
    if not isinstance(choice, Mapping) or choice.get("type") != "allowed_tools":
        return None
    return [tool["name"] for tool in choice["tools"] if "name" in tool]


def _validates(request: Request) -> bool:
    return (
        model_capabilities.version(request.model) >= model_capabilities.VALIDATED_CALLS
    )


def _calling(request: Request) -> dict[str, Any]:
    """The `functionCallingConfig`; {} leaves the choice to the model."""
    choice, names = request.tool_choice, _names_in_choice(request)
    if names is not None:
        required = isinstance(choice, Mapping) and choice.get("mode") == "required"
        if required:
            return {"mode": "ANY", "allowedFunctionNames": names}
        if _validates(request):
            return {"mode": "VALIDATED", "allowedFunctionNames": names}
        return {}
    if isinstance(choice, Mapping):
        if choice.get("type") not in ("function", "custom"):
            raise BadRequest(
                "With this provider 'tool_choice' cannot name a tool of the type"
                f" {choice.get('type')!r}.",
                param="tool_choice",
            )
        return {"mode": "ANY", "allowedFunctionNames": [choice["name"]]}
    if choice in ("none", "required"):
        return {"mode": "NONE" if choice == "none" else "ANY"}
    if _is_strict(request.tools) and _validates(request):
        return {"mode": "VALIDATED"}
    return {"mode": "AUTO"} if choice == "auto" else {}


def _is_strict(tools: Sequence[Tool]) -> bool:
    """Gemini enforces the schemas of all functions or of none."""
    functions = [tool for tool in tools if tool["type"] == "function"]
    return bool(functions) and all(tool.get("strict") for tool in functions)


def _is_mixed_in_strictness(tools: Sequence[Tool]) -> bool:
    return any(tool.get("strict") for tool in tools) and not _is_strict(tools)
