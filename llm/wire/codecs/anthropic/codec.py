"""The Messages API: Anthropic's own, and that of hosts that copied it.

In: a `Request` becomes the JSON body of `POST {base}/v1/messages`; `messages` encodes
the conversation, and `tools` the tools. Out: the answer, streamed or complete, becomes
deltas (`decoder`). `model_capabilities` has the differences between models.

Two versions of the API are published, and a request names the one it uses. Since
2026-10-21 no model takes sampling parameters; the earlier version still accepts them
for models up to version 4.6. The other differences concern what we never send:
documents in assistant messages, citations in a user's text.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import or_
from typing import Any, ClassVar

import orjson

from llm.errors import LLMError
from llm.wire.body_parser import parse_object
from llm.wire.classify_errors import classify
from llm.wire.codecs.anthropic.content_parts import text_block
from llm.wire.codecs.anthropic.decoder import AnthropicDecoder
from llm.wire.codecs.anthropic.forwarding import (
    MIN_BUDGET,
    fit_body,
    fit_default_thinking,
)
from llm.wire.codecs.anthropic.messages import (
    CACHED,
    MessagesInput,
    encode_messages_prefix,
)
from llm.wire.codecs.anthropic.model_capabilities import Traits, traits_of
from llm.wire.codecs.anthropic.schema import UNENFORCED, to_grammar_schema
from llm.wire.codecs.anthropic.tools import Tools, convert_choice, renamed_tools
from llm.wire.deltas import Delta
from llm.wire.forwarding.codec import add_to_body, body_of
from llm.wire.item_prefix_cache import (
    EncodedPrefix,
    encode_prefix,
    fold_items,
    proof_issuer,
    without_prefix,
)
from llm.wire.items import Item, proof_for
from llm.wire.request import Request
from llm.wire.usage_numbers import count

VERSION = "2026-10-21"
VERSION_WITH_SAMPLING = "2023-06-01"

#: A longer answer must be streamed, or the connection times out before it arrives.
MAX_UNSTREAMED = 21_333  # tokens
_BUDGETS = {"minimal": MIN_BUDGET, "low": 2048, "medium": 8192}  # every other effort:
_LARGEST_BUDGET = 16_384
_TIERS = {"auto": "auto", "priority": "auto"}  # others use the standard tier

_MCP = "mcp-client-2025-11-20"
_COMPACTION = "compact-2026-01-12"
_FALLBACK = "server-side-fallback-2026-07-01"
#: Betas by what requires them: a field of the body, a tool's type, a block that is sent
#: back.
_BETAS: dict[Any, str] = {
    "compaction": _COMPACTION,
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
    "context_management": "context-management-2025-06-27",
    "fallback": _FALLBACK,
    "fallbacks": _FALLBACK,
    "mcp": _MCP,
    "mcp_servers": _MCP,
    "mcp_tool_listing": _MCP,
    "mcp_tool_result": _MCP,
    "mcp_tool_use": _MCP,
    "mcp_toolset": _MCP,
}
#: Options that this API does not have.
_UNSUPPORTED = (
    "frequency_penalty",
    "metadata",
    "presence_penalty",
    "seed",
    "top_logprobs",
)
#: Fields of https://platform.claude.com/docs/en/api/messages-count-tokens
_COUNTED = ("model", "messages", "system", "tools", "tool_choice", "thinking")
#: Those that clients of this API may send besides.
_COUNTED_OF_CLIENTS = (
    "cache_control",
    "compaction",
    "context_management",
    "mcp_servers",
    "output_config",
    "speed",
)
_JSON_ONLY = "Answer with one JSON object and nothing else."
_JSON_BY_SCHEMA = "Answer with JSON and nothing else. It must match this JSON Schema:\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicCodec:
    name: str = "anthropic"
    version: str = VERSION
    caches: bool = True  # mark the prefix that the next request will repeat for caching
    takes_one_sampling_option: ClassVar[bool] = True  # not `temperature` with `top_p`
    unenforced_keywords: ClassVar[frozenset[str]] = UNENFORCED  # of an answer's schema

    def path(self, request: Request) -> str:
        return "/v1/messages"

    def headers(self, request: Request) -> dict[str, str]:
        """Request headers besides the API key's.

        `extra["betas"]` names betas that cannot be derived from the rest of the
        request.
        """
        betas = sorted({*_betas(request), *request.extra.get("betas", ())})
        headers = {"anthropic-version": self.version}
        return {**headers, "anthropic-beta": ",".join(betas)} if betas else headers

    def encode(self, request: Request) -> dict[str, Any]:
        body = _Body(request, self).fields
        extra = {name: v for name, v in request.extra.items() if name != "betas"}
        return {name: v for name, v in body.items() if v is not None} | extra

    def count_path(self, request: Request) -> str:
        return "/v1/messages/count_tokens"

    def encode_count(self, request: Request) -> dict[str, Any]:
        counted: Sequence[str] = _COUNTED
        if request.forwarded is None:
            body = _Body(request, self).fields
        else:
            body, counted = self.forward(request), (*_COUNTED, *_COUNTED_OF_CLIENTS)
        return {name: body[name] for name in counted if body.get(name) is not None}

    def decode_count(self, body: bytes) -> int | None:
        return count(parse_object(body), "input_tokens")

    def forward(self, request: Request) -> dict[str, Any]:
        """The client's own body."""
        unmarked = replace(self, caches=False)
        body = add_to_body(body_of(request), request, unmarked, "messages")
        body = fit_body(body)
        if request.forwarded is None or "thinking" in request.forwarded.fields:
            return body
        allowance = traits_of(request.model).forced_tools
        return fit_default_thinking(body, can_force=allowance == "always")

    def degraded(self, request: Request) -> list[str]:
        """The options that are only approximated or cannot be expressed."""
        return sorted(set(_Body(request, self).degraded))

    def renamed_tools(self, request: Request) -> Mapping[str, str]:
        return renamed_tools(request.tools)

    def decoder(self) -> AnthropicDecoder:
        return AnthropicDecoder()

    def decode(self, body: bytes) -> Iterator[Delta]:
        return AnthropicDecoder().answer(parse_object(body))

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> LLMError:
        return classify(status, headers, body)

    def fetches(self, part: Mapping[str, Any], url: str) -> bool:
        """Anthropic fetches images and PDF files, over https."""
        is_pdf = url.partition("?")[0].lower().endswith(".pdf")
        return url.startswith("https://") and (is_pdf or part["type"] == "input_image")


class _Body:
    """The fields of one request's body, and the `degraded` options."""

    def __init__(self, request: Request, codec: AnthropicCodec) -> None:
        self.degraded: list[str] = []
        self._request = request
        self._codec = codec
        self._traits: Traits = traits_of(request.model)
        self._effort = ""
        choice, offered = convert_choice(request.tool_choice, request.tools)
        self._tools = Tools.of(offered)
        self._prefix = encode_prefix(request, codec, self._encode_prefix)
        self._input = self._build_input()
        self._max_tokens = request.max_output_tokens or self._usual_length()
        self._thinking = self._think()
        self.fields = {
            "model": request.model,
            "max_tokens": self._max_tokens,
            "stream": request.stream,
            **self._prompt(),
            "tools": self._tools.tools or None,
            "tool_choice": self._choice(choice) if self._tools.tools else None,
            "mcp_servers": self._tools.servers or None,
            "container": self._input.container if self._tools.runs_code else None,
            "thinking": self._thinking,
            **self._sampling(),
            "stop_sequences": list(request.stop) or None,
            "metadata": self._metadata(),
            "service_tier": self._tier(),
        }
        self.degraded += [*self._input.degraded, *self._tools.degraded]
        self.degraded += [name for name in _UNSUPPORTED if getattr(request, name)]
        if (request.text or {}).get("verbosity") not in (None, "medium"):
            self.degraded.append("text.verbosity")

    # The conversation

    def _build_input(self) -> MessagesInput:
        whole, earlier = self._request, self._prefix
        has_notes = self._traits.system_messages
        if earlier is None:
            return MessagesInput(whole, system_messages=has_notes)
        new = MessagesInput(without_prefix(whole), system_messages=has_notes)
        if new.is_cut or not earlier.ids.isdisjoint(new.ids()):
            self._prefix = None
            return MessagesInput(whole, system_messages=has_notes)
        new.container = new.container or earlier.container or None
        new.degraded += earlier.notes
        return new

    def _encode_prefix(self, request: Request) -> EncodedPrefix | None:
        return encode_messages_prefix(
            request, system_messages=self._traits.system_messages
        )

    def _prompt(self) -> dict[str, Any]:
        prompt, output = self._input, {"effort": self._effort or None}
        form = self._form()
        if isinstance(form, str):
            prompt.system.append(text_block(form))
            self.degraded.append("text.format")
        messages = prompt.messages
        if self._codec.caches:
            prompt.cache(is_single=len(messages) == 1 and not self._prefix)
            if not prompt.system and self._tools.tools:
                self._tools.tools[-1] = {**self._tools.tools[-1], **CACHED}
        if self._request.prefill:
            begun = [text_block(self._request.prefill)]
            messages = [*messages, {"role": "assistant", "content": begun}]
        settings = {**output, "format": None if isinstance(form, str) else form}
        config = {name: value for name, value in settings.items() if value is not None}
        return {
            "system": prompt.system or None,
            "messages": self._prefix.prepend_to(messages) if self._prefix else messages,
            "output_config": config or None,
        }

    def _form(self) -> dict[str, Any] | str | None:
        """The answer's format, or, where the API cannot enforce it, a text that asks
        for it."""
        form = (self._request.text or {}).get("format") or {}
        if form.get("type") == "json_object":
            return _JSON_ONLY
        if form.get("type") != "json_schema":
            return None
        schema = to_grammar_schema(form["schema"]) if self._traits.structured else None
        if schema is None or not self._tools.allowance.try_add(schema):
            return _JSON_BY_SCHEMA + orjson.dumps(form["schema"]).decode()
        return {"type": "json_schema", "schema": schema}

    def _usual_length(self) -> int:
        longest = self._traits.max_output
        return longest if self._request.stream else min(longest, MAX_UNSTREAMED)

    # Thinking

    def _think(self) -> dict[str, Any] | None:
        reasoning, traits = self._request.reasoning or {}, self._traits
        effort = reasoning.get("effort")
        if effort == "none":
            return self._think_not()
        if effort is None:
            wants_summary = reasoning.get("summary") and traits.thinks
            return self._think_freely() if wants_summary else None
        self._effort = traits.effort(effort)
        if self._effort and self._effort != effort:
            self.degraded.append("reasoning.effort")
        if "adaptive" in traits.thinking:
            return self._think_freely()
        return self._think_within(effort)

    def _think_freely(self) -> dict[str, Any]:
        # By default the summary is omitted, and users see nothing while the model
        # thinks.
        return {"type": "adaptive", "display": "summarized"}

    def _think_not(self) -> dict[str, Any] | None:
        if not self._traits.thinks:
            return None
        if "disabled" in self._traits.thinking:
            return {"type": "disabled"}
        self.degraded.append("reasoning.effort")
        if "between_tools" in self._traits.thinking:
            return {"type": "between_tools"}
        self._effort = self._traits.effort("none")
        return None

    def _think_within(self, effort: str) -> dict[str, Any] | None:
        """Thinking with a budget of tokens, which is part of the answer's length."""
        budget = _BUDGETS.get(effort, _LARGEST_BUDGET)
        budget = min(budget, self._max_tokens - MIN_BUDGET)
        if (
            "enabled" not in self._traits.thinking
            or budget < MIN_BUDGET
            or self._is_past_thinking()
        ):
            self.degraded.append("reasoning.effort")
            return None
        return {"type": "enabled", "budget_tokens": budget}

    def _is_past_thinking(self) -> bool:
        """True if calls have been answered in a turn that began without thinking.

        With a budget, such a turn would have to begin with a thinking block, which does
        not exist.
        """
        begun: list[dict[str, Any]] = []
        for message in self._input.messages:
            if message["role"] == "assistant":
                begun = begun or message["content"]
            elif any(b["type"] != "tool_result" for b in message["content"]):
                begun = []
        return bool(begun) and "thinking" not in begun[0]["type"]

    # Options

    def _choice(self, choice: dict[str, Any] | None) -> dict[str, Any] | None:
        if choice and choice["type"] in ("any", "tool") and not self._can_force():
            choice = {"type": "auto"}
            self.degraded.append("tool_choice")
        if self._request.parallel_tool_calls is not False:
            return choice
        choice = choice or {"type": "auto"}
        if choice["type"] == "none":
            return choice
        return {**choice, "disable_parallel_tool_use": True}

    def _can_force(self) -> bool:
        match self._traits.forced_tools:
            case "unless_thinking":
                return self._thinking is None or self._thinking["type"] != "enabled"
            case rule:
                return rule == "always"

    def _sampling(self) -> dict[str, Any]:
        request = self._request
        wanted = {"temperature": request.temperature, "top_p": request.top_p}
        sampling = {name: value for name, value in wanted.items() if value is not None}
        if not self._samples():
            self.degraded += sampling
            return {}
        if len(sampling) == 2:  # the API takes one at most
            del sampling["top_p"]
            self.degraded.append("top_p")
        if sampling.get("temperature", 0) > 1:
            sampling["temperature"] = 1
            self.degraded.append("temperature")
        return sampling

    def _samples(self) -> bool:
        thinking = (self._thinking or {}).get("type", "disabled")
        return (
            self._codec.version == VERSION_WITH_SAMPLING
            and self._traits.samples
            and thinking == "disabled"
        )

    def _metadata(self) -> dict[str, Any] | None:
        user = self._request.safety_identifier
        return {"user_id": user} if user else None

    def _tier(self) -> str | None:
        tier = self._request.service_tier
        if tier is None:
            return None
        if tier not in (*_TIERS, "default", "standard_only"):
            self.degraded.append("service_tier")
        return _TIERS.get(tier, "standard_only")


def _betas(request: Request) -> Iterator[str]:
    edits = (request.extra.get("context_management") or {}).get("edits") or ()
    if any(str(edit.get("type")).startswith("compact_") for edit in edits):
        yield _COMPACTION
    for word in _beta_triggers(request):
        if beta := _BETAS.get(word):
            yield beta


def _beta_triggers(request: Request) -> Iterable[Any]:
    """The names and types in a request that may need a beta."""
    yield from request.extra
    for tool in request.tools:
        yield tool.get("type")
    yield from fold_items(
        request.items, "blocks", partial(_blocks, request), or_, proof_issuer(request)
    )


def _blocks(request: Request, items: Iterable[Item]) -> frozenset[str]:
    """The types of the blocks that are sent back unchanged."""
    proofs = [
        proof
        for item in items
        if isinstance(proof := proof_for(request.issuer, item), dict)
    ]
    return frozenset(
        block["type"] for proof in proofs for block in proof.get("content") or ()
    )
