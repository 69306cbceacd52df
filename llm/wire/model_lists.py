"""Parsing of the model lists that hosts serve, in all their shapes.

In: the body of `GET {base}/models`. Out: a `ModelInfo` for each entry, in order, with
as much as the host reports: limits, prices, a date of retirement, capabilities under
the names of `llm.capabilities.Capabilities`, and whether the model answers in text at
all. Most hosts copy OpenAI's `{"data": [{"id"}]}` and add fields of their own, no two
of which contradict each other; so an entry is read by the fields it has, not by its
host. An openai_compatible address may be any of them.

Source: https://platform.openai.com/docs/api-reference/models/list
https://platform.claude.com/docs/en/api/models/list
https://ai.google.dev/api/models
https://openrouter.ai/docs/api-reference/list-available-models
https://docs.mistral.ai/api
https://docs.together.ai/reference/models-1
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson

from llm.errors import BadResponse
from llm.wire import bounded_json
from llm.wire.sanitize import sanitize_json

Entry = Mapping[str, Any]

#: Names of OpenAI's models that answer in something else than text. Its list, and the
#: many copies of it, give nothing but names.
_NO_CHAT = re.compile(
    r"(^|[/_-])(embed|embedding|moderation|rerank|whisper|tts|dall-e|sora|veo|imagen"
    r"|transcribe|realtime|davinci|babbage)([/_.-]|\d|$)"
    r"|gpt-(image|audio)|gpt-3\.5-turbo-instruct"
)
_CHAT_TYPES = ("chat", "code", "language")  # Together's and Copilot's

#: Fields in which hosts put a limit; the first that is present counts.
_WINDOW = (
    ("context_window",),  # Groq
    ("context_length",),  # OpenRouter, Together
    ("max_context_length",),  # Mistral
    ("max_model_len",),  # vLLM
    ("max_input_tokens",),  # Anthropic
    ("inputTokenLimit",),  # Gemini
    ("meta", "n_ctx"),  # llama.cpp; `n_ctx_train` is a maximum, not what is served
    ("capabilities", "limits", "max_context_window_tokens"),  # Copilot
)
_OUTPUT = (
    ("max_completion_tokens",),
    ("max_tokens",),
    ("outputTokenLimit",),
    ("top_provider", "max_completion_tokens"),
    ("capabilities", "limits", "max_output_tokens"),
)

#: Our names of prices, each with those of hosts: OpenRouter and Groq, then Together and
#: Vercel.
_PRICES = {
    "input": ("prompt", "input"),
    "cached_input": ("input_cache_read", "cached_input"),
    "cache_write": ("input_cache_write",),
    "output": ("completion", "output"),
}
_PER_TOKEN = ("prompt", "completion", "input_cache_read", "input_cache_write")
_MILLION = 1_000_000
#: USD per million tokens. More is a mistake of the list: texts for a million tokens
#: instead of one.
_MAX_PRICE = 1_000
_EXACT = Decimal("0.000001")
_POSSIBLE_YEARS = range(2021, 2100)
_RETIREMENT = ("deprecation", "expiration_date")  # Mistral, OpenRouter


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """One entry. `capabilities` holds only what the list reports."""

    id: str  # as spelled in the list
    label: str = ""
    chats: bool = True  # False if it answers in something else than text
    context_window: int | None = None  # tokens
    max_output_tokens: int | None = None
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    #: USD per million tokens, with those of input and output or none at all.
    prices: Mapping[str, Decimal] = field(default_factory=dict)
    retires_at: datetime | None = None

    @property
    def name(self) -> str:
        """The name as requests spell it: Gemini's list has "models/" before each."""
        return self.id.removeprefix("models/")

    @property
    def capabilities_and_limits(self) -> dict[str, Any]:
        """The capabilities together with the limits."""
        limits = {
            "context_window": self.context_window,
            "max_output_tokens": self.max_output_tokens,
        }
        return {
            **self.capabilities,
            **{name: limit for name, limit in limits.items() if limit is not None},
        }


def parse_models(body: bytes) -> list[ModelInfo]:
    """Raises BadResponse if it is not a list of models."""
    return [_model(entry) for entry in _entries(_parse(body))]


def next_page(body: bytes) -> dict[str, str]:
    """The query of the next page; {} if this is the last one."""
    answer = _parse(body)
    if not isinstance(answer, Mapping):
        return {}
    if token := answer.get("nextPageToken"):  # Gemini
        return {"pageToken": str(token)}
    if answer.get("has_more") and (last := answer.get("last_id")):  # Anthropic
        return {"after_id": str(last)}
    return {}


def _parse(body: bytes) -> Any:
    try:
        return sanitize_json(bounded_json.loads(body))
    except orjson.JSONDecodeError as exc:
        raise BadResponse from exc


def _entries(answer: Any) -> Iterable[Entry]:
    if isinstance(answer, Mapping):
        # llama.cpp sends both; "data" is in OpenAI's shape.
        answer = answer["data"] if "data" in answer else answer.get("models")
    if not isinstance(answer, list):  # Together's list has no envelope
        raise BadResponse
    return [entry for entry in answer if isinstance(entry, Mapping) and _id(entry)]


def _id(entry: Entry) -> str:
    return str(entry.get("id") or entry.get("name") or "")


def _model(entry: Entry) -> ModelInfo:
    label = entry.get("display_name") or entry.get("displayName") or entry.get("name")
    return ModelInfo(
        id=_id(entry),
        label=label if isinstance(label, str) and label != _id(entry) else "",
        chats=_chats(entry),
        context_window=_limit(entry, _WINDOW),
        max_output_tokens=_limit(entry, _OUTPUT),
        capabilities=_capabilities(entry),
        prices=_prices(entry),
        retires_at=_retirement(entry),
    )


def _limit(entry: Entry, paths: Iterable[tuple[str, ...]]) -> int | None:
    for path in paths:
        value = _at(entry, *path)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _prices(entry: Entry) -> dict[str, Decimal]:
    """{} where a price is unknown, depends on the request (-1), or is for an hour."""
    listed = entry.get("pricing")
    if not isinstance(listed, Mapping) or _amount(listed.get("hourly")):
        return {}
    if "hourly" in listed and not any(_amount(each) for each in listed.values()):
        return {}  # Together's form of a model without a price
    found = {
        ours: price
        for ours, names in _PRICES.items()
        if (price := _price(listed, names)) is not None
    }
    return found if {"input", "output"} <= found.keys() else {}


def _price(listed: Entry, names: Iterable[str]) -> Decimal | None:
    """USD per million tokens. Texts are USD per token, as in OpenRouter's list and in
    Vercel's; Together's numbers are for a million."""
    name = next((each for each in names if each in listed), "")
    value = listed.get(name)
    if (amount := _amount(value)) is None:
        return None
    is_per_token = isinstance(value, str) or name in _PER_TOKEN
    price = amount * _MILLION if is_per_token else amount
    return price.quantize(_EXACT).normalize() if price <= _MAX_PRICE else None


def _amount(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    is_possible = amount.is_finite() and 0 <= amount <= _MAX_PRICE
    return amount if is_possible else None


def _retirement(entry: Entry) -> datetime | None:
    for name in _RETIREMENT:
        value = entry.get(name)
        if isinstance(value, str) and value:
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                return None
            if moment.year not in _POSSIBLE_YEARS:
                return None  # the zero date of the host's language
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return None


def _chats(entry: Entry) -> bool:
    match entry:
        case {"supportedGenerationMethods": list(methods)}:
            return "generateContent" in methods and not _NO_CHAT.search(_id(entry))
        case {"capabilities": {"completion_chat": bool(chats)}}:
            return chats
        case {"capabilities": {"type": str(kind)}}:
            return kind in _CHAT_TYPES
        case {"type": str(kind)} if kind not in ("base", "fine-tuned", "model"):
            return kind in _CHAT_TYPES
    if isinstance(made := _modalities(entry, "output_modalities"), list):
        return "text" in made
    return not _NO_CHAT.search(_id(entry).lower())


def _modalities(entry: Entry, name: str) -> Any:
    return entry.get(name, _at(entry, "architecture", name))


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


# What it can do


def _capabilities(entry: Entry) -> dict[str, Any]:
    """Read the capabilities; each entry uses the fields of one host only."""
    capabilities_found: dict[str, Any] = {}
    capabilities = entry.get("capabilities")
    if isinstance(capabilities, Mapping):
        capabilities_found |= _anthropic(capabilities)
        capabilities_found |= _mistral(capabilities)
        capabilities_found |= _copilot(capabilities)
    capabilities_found |= _gemini(entry)
    capabilities_found |= _parameters(entry)
    capabilities_found |= _features(entry)
    return capabilities_found


def _anthropic(capabilities: Entry) -> dict[str, Any]:
    names = {
        "vision": "image_input",
        "files": "pdf_input",
        "json_schema": "structured_outputs",
        "reasoning": "thinking",
    }
    result = {
        ours: capabilities[theirs]["supported"]
        for ours, theirs in names.items()
        if isinstance(_at(capabilities, theirs, "supported"), bool)
    }
    may_be_off = _at(capabilities, "thinking", "types", "disabled", "supported")
    if isinstance(may_be_off, bool) and _at(capabilities, "effort", "supported"):
        levels = capabilities["effort"]
        result["efforts"] = ["none"] * may_be_off + [
            level
            for level in ("low", "medium", "high", "xhigh", "max")
            if _at(levels, level, "supported")
        ]
    return result


def _mistral(capabilities: Entry) -> dict[str, Any]:
    if "completion_chat" not in capabilities:
        return {}
    return _flags(
        capabilities,
        {"tools": "function_calling", "vision": "vision", "reasoning": "reasoning"},
    )


def _copilot(capabilities: Entry) -> dict[str, Any]:
    supports = capabilities.get("supports")
    if not isinstance(supports, Mapping) or not supports:
        return {}
    result = _flags(
        supports,
        {
            "tools": "tool_calls",
            "parallel_tools": "parallel_tool_calls",
            "vision": "vision",
            "json_schema": "structured_outputs",
        },
    )
    if efforts := supports.get("reasoning_effort"):
        result |= {"reasoning": True, "efforts": list(efforts)}
    return result


def _gemini(entry: Entry) -> dict[str, Any]:
    result = _flags(entry, {"reasoning": "thinking"})
    warmest = entry.get("maxTemperature")
    if isinstance(warmest, int | float) and warmest:
        result["max_temperature"] = warmest
    return result


def _parameters(entry: Entry) -> dict[str, Any]:
    """OpenRouter: parameters that are not listed are ignored."""
    listed = entry.get("supported_parameters")
    if not isinstance(listed, list):
        return {}
    names = {
        "tools": "tools",
        "forced_tools": "tool_choice",
        "json_mode": "response_format",
        "json_schema": "structured_outputs",
        "reasoning": "reasoning",
        "stop": "stop",
        "seed": "seed",
        "penalties": "frequency_penalty",
        "logprobs": "top_logprobs",
    }
    result: dict[str, Any] = {ours: theirs in listed for ours, theirs in names.items()}
    result["sampling"] = "always" if "temperature" in listed else "never"
    result["vision"] = "image" in (_modalities(entry, "input_modalities") or ())
    reasoning = entry.get("reasoning")
    if isinstance(efforts := _at(reasoning, "supported_efforts"), list):
        off = [] if _at(reasoning, "mandatory") else ["none"]
        result["efforts"] = off + [effort for effort in efforts if effort != "none"]
    return result


def _features(entry: Entry) -> dict[str, Any]:
    """Groq's list of features."""
    listed = entry.get("supported_features")
    if not isinstance(listed, list):
        return {}
    names = {
        "tools": "tools",
        "json_mode": "json_mode",
        "json_schema": "structured_outputs",
        "reasoning": "reasoning",
    }
    result: dict[str, Any] = {ours: theirs in listed for ours, theirs in names.items()}
    result["vision"] = "image" in (entry.get("input_modalities") or ())
    return result


def _flags(fields: Entry, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        ours: fields[theirs]
        for ours, theirs in names.items()
        if isinstance(fields.get(theirs), bool)
    }
