"""Repair of requests that a provider refused because of what this program added. No IO.

An addition of this program can make a request invalid: a proof that its provider does
not recognise any more, a field that this model does not have, a role with another name,
a picture of an earlier message.
The error message identifies it, and the request is sent once more without it: as a call
of its own, before any output, and reported as degraded. What the caller asked for is
never removed here; that is refused, or left out if the caller chose so
(`ignore_invalid`).

Source: the sheets of the providers, "auto-repair" in their mapping
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from llm.adaptation.input_modalities import MODALITIES, replace_parts
from llm.errors import BadRequest, ContextTooLarge, LLMError
from llm.provider import Route
from llm.wire.classify_errors import TOO_LARGE_PICTURE
from llm.wire.codec import Codec
from llm.wire.codecs.anthropic.forwarding import without_thinking
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.items import CALL_OUTPUTS, Item, proof_for
from llm.wire.request import Request

Change = Callable[[Request], Request]


@dataclass(frozen=True, slots=True)
class Repair:
    """What changes in the next request: the request itself or its codec."""

    degraded: str
    change: Change = lambda request: request
    codec: Codec | None = None


def find(
    error: LLMError, request: Request, codec: Codec, *, ignore_invalid: bool = False
) -> Repair | None:
    """The repair for `error`; None if there is none."""
    for rule in _rules_for(error):
        for repair in rule(_Refusal(error, request, codec, ignore_invalid)):
            return repair
    return None


def _rules_for(error: LLMError) -> Sequence[Rule]:
    if type(error) is BadRequest:
        return _RULES
    if error.upstream_code == _UNSIGNED:
        return (_repair_proofs,)
    if error.upstream_status == _BODY_TOO_LARGE:
        return (_repair_body,)
    # A hint that is too long is classified as a prompt that is.
    return (_repair_option,) if isinstance(error, ContextTooLarge) else ()


def repaired_route(route: Route, request: Request, error: LLMError) -> Route | None:
    """The route in this host's dialect, if it refused a field that only the codec
    wrote: for tests of a host, whose requests have nothing else to repair."""
    repair = find(error, request, route.endpoint.codec)
    if repair is None or repair.codec is None:
        return None
    return replace(route, endpoint=replace(route.endpoint, codec=repair.codec))


def find_in_body(
    error: LLMError, request: Request, *, is_first: bool = True
) -> Repair | None:
    """The repair of a client's own body: without the thinking of the turn that the
    host names, which another of its models has written. If that was not the only one,
    without that of the turns after it too: each would cost a call."""
    body = request.forwarded
    found = _REFUSED_MESSAGE.search(error.detail)
    if body is None or body.api != "anthropic" or found is None:
        return None
    fields = without_thinking(body.fields, int(found[1]), and_later=not is_first)
    if fields is None:
        return None
    less = replace(request, forwarded=replace(body, fields=fields))
    is_off = "thinking" in body.fields and "thinking" not in fields
    return Repair(_OFF if is_off else _UNTHOUGHT, lambda request: less)


def concerns_proofs(error: LLMError) -> bool:
    """Whether a host has refused the proofs of a conversation."""
    if type(error) is not BadRequest:
        return False
    text = f"{(error.upstream_code or '').lower()} {error.detail}"
    return any(p.search(text) for p in (_THINKING, _SIGNATURES, _REASONING))


class _Refusal:
    """A request and the error that refused it."""

    def __init__(
        self, error: LLMError, request: Request, codec: Codec, ignore_invalid: bool
    ) -> None:
        self.request = request
        self.codec = codec
        self.ignore_invalid = ignore_invalid
        self.code = (error.upstream_code or "").lower()
        self.param = (error.param or "").lower()
        self.text = f"{self.code} {self.param} {error.detail}"

    def matches(self, pattern: re.Pattern[str]) -> bool:
        return pattern.search(self.text) is not None


Rule = Callable[[_Refusal], Iterator[Repair]]

# Proofs

#: Gemini's finish reason if the history lacks a signature.
_UNSIGNED = "MISSING_THOUGHT_SIGNATURE"
_SIGNATURES = re.compile(r"thought.?signature", re.IGNORECASE)
_THINKING = re.compile(
    r"bound to a different conversation"
    r"|thinking.{0,80}cannot be modified|signature.{0,40}thinking",
    re.IGNORECASE | re.DOTALL,
)
_REASONING = re.compile(
    r"without its required|invalid_encrypted_content|are not persisted"
    r"|encrypted content.{0,80}could not be",
    re.IGNORECASE | re.DOTALL,
)
_REFUSED_MESSAGE = re.compile(r"messages\.(\d{1,6})\.content\.")
_UNTHOUGHT = "input (without reasoning)"
_OFF = "thinking (another model began the turn)"
#: How the losses begin that follow from proofs that a host has refused.
REFUSED_PROOFS = ("input (", _OFF)
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})


def _repair_proofs(refusal: _Refusal) -> Iterator[Repair]:
    request = refusal.request
    if not any(proof_for(request.issuer, item) is not None for item in request.items):
        return
    if refusal.matches(_THINKING) and _without_thinking(request) != request:
        yield Repair(_UNTHOUGHT, _without_thinking)
    elif refusal.matches(_SIGNATURES) or refusal.matches(_REASONING):
        yield Repair("input (without proofs)", _without_proofs)


def _without_proofs(request: Request) -> Request:
    return replace(request, issuer=None)


def _without_thinking(request: Request) -> Request:
    """The rest of Claude's answer is sent back unchanged."""
    return replace(request, items=[_remove_thoughts(item) for item in request.items])


def _remove_thoughts(item: Item) -> Item:
    data = item.get("provider_data") or {}
    raw = data.get("raw")
    content = raw.get("content") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or not isinstance(content, list):
        return item
    rest = [block for block in content if block.get("type") not in _THOUGHTS]
    return {**item, "provider_data": {**data, "raw": {**raw, "content": rest}}}


# Pictures

_BODY_TOO_LARGE = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
_MANY_PICTURES = re.compile(
    r"too many images|number of images|(at most|up to) \d{1,4} images?", re.IGNORECASE
)
_FEWER_PICTURES = "images of earlier messages"
_FEWER_RESULTS = "images of earlier results"
_PICTURE = MODALITIES[0]


def _repair_pictures(refusal: _Refusal) -> Iterator[Repair]:
    """A conversation must not fail for ever after one message with a large picture. The
    last message is sent as it is: its author can send a smaller one."""
    if refusal.matches(TOO_LARGE_PICTURE) or refusal.matches(_MANY_PICTURES):
        yield from _repair_body(refusal)


def _repair_body(refusal: _Refusal) -> Iterator[Repair]:
    """For a body with more bytes than the host takes; pictures are most of them. Those
    of the last results stay as well: the model has not seen them yet."""
    earlier = _without_earlier_pictures(refusal.request)
    fewer = _without_shown_results(earlier)
    if fewer != refusal.request:
        degraded = _FEWER_RESULTS if earlier == refusal.request else _FEWER_PICTURES
        yield Repair(
            degraded, lambda r: _without_shown_results(_without_earlier_pictures(r))
        )


def _without_earlier_pictures(request: Request) -> Request:
    items = request.items
    last = _last_question(items)
    shorter = [replace_parts(item, _PICTURE) for item in items[:last]]
    return replace(request, items=[*shorter, *items[last:]])


def _without_shown_results(request: Request) -> Request:
    """Without pictures in results of calls since the last question, but for the last
    round of calls."""
    items = request.items
    first, last = _last_question(items), len(items)
    while last > first and items[last - 1].get("type") not in CALL_OUTPUTS:
        last -= 1
    while last > first and items[last - 1].get("type") in CALL_OUTPUTS:
        last -= 1
    shorter = [
        replace_parts(item, _PICTURE) if item.get("type") in CALL_OUTPUTS else item
        for item in items[first:last]
    ]
    return replace(request, items=[*items[:first], *shorter, *items[last:]])


def _last_question(items: Sequence[Item]) -> int:
    questions = (n for n, item in enumerate(items) if item.get("role") == "user")
    return max(questions, default=0)


# Options

_UNKNOWN = re.compile(
    r"unsupported|not supported|unrecognized|unknown|extra_forbidden|not permitted"
    r"|not allowed|does not support",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(r"string_above_max_length|string too long", re.IGNORECASE)
_LENGTHS = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}


def _repair_prefill(refusal: _Refusal) -> Iterator[Repair]:
    """For a model that does not continue an answer and starts from the beginning."""
    if refusal.request.prefill:
        yield Repair("prefill", lambda request: replace(request, prefill=""))


def _repair_length(refusal: _Refusal) -> Iterator[Repair]:
    """OpenAI has two names for one limit; each model accepts one of them."""
    codec = refusal.codec
    if not isinstance(codec, OpenAIChatCodec):
        return
    name = codec.max_tokens_field
    named = refusal.param == name or re.search(rf"\b{name}\b", refusal.text)
    if refusal.request.max_output_tokens and named and refusal.matches(_UNKNOWN):
        other = replace(codec, max_tokens_field=_LENGTHS[name])
        yield Repair(f"{name} (sent as {_LENGTHS[name]})", codec=other)


def _set_fields(**fields: Any) -> Change:
    return lambda request: replace(request, **fields)


def _remove_member(field: str, name: str) -> Change:
    """Remove one member of an object."""

    def change(request: Request) -> Request:
        rest = {k: v for k, v in (getattr(request, field) or {}).items() if k != name}
        changed: dict[str, Any] = {field: rest or None}
        return replace(request, **changed)

    return change


#: Hints that may be ignored without an error; by their names on the wire.
_HINTS: Mapping[str, tuple[str, Change]] = {
    "metadata": ("metadata", _set_fields(metadata=None)),
    "parallel_tool_calls": (
        "parallel_tool_calls",
        _set_fields(parallel_tool_calls=None),
    ),
    "prompt_cache_key": ("prompt_cache_key", _set_fields(prompt_cache_key=None)),
    "reasoning.summary": ("reasoning.summary", _remove_member("reasoning", "summary")),
    "safety_identifier": ("safety_identifier", _set_fields(safety_identifier=None)),
    "seed": ("seed", _set_fields(seed=None)),
    "random_seed": ("seed", _set_fields(seed=None)),
    "service_tier": ("service_tier", _set_fields(service_tier=None)),
    "text.verbosity": ("text.verbosity", _remove_member("text", "verbosity")),
    "verbosity": ("text.verbosity", _remove_member("text", "verbosity")),
}
#: Options that change the answer.
_REQUESTED_OPTIONS: Mapping[str, tuple[str, Change]] = {
    "frequency_penalty": ("frequency_penalty", _set_fields(frequency_penalty=None)),
    "logprobs": ("top_logprobs", _set_fields(top_logprobs=None)),
    "presence_penalty": ("presence_penalty", _set_fields(presence_penalty=None)),
    "reasoning": ("reasoning", _set_fields(reasoning=None)),
    "reasoning.effort": ("reasoning.effort", _remove_member("reasoning", "effort")),
    "reasoning_effort": ("reasoning.effort", _remove_member("reasoning", "effort")),
    "stop": ("stop", _set_fields(stop=())),
    "temperature": ("temperature", _set_fields(temperature=None)),
    "top_logprobs": ("top_logprobs", _set_fields(top_logprobs=None)),
    "top_p": ("top_p", _set_fields(top_p=None)),
}


def _repair_option(refusal: _Refusal) -> Iterator[Repair]:
    """Remove the field that `param` names, if the model does not have it, or if it is a
    hint that is too long."""
    if refusal.matches(_UNKNOWN):
        known = {**_HINTS, **(_REQUESTED_OPTIONS if refusal.ignore_invalid else {})}
    else:
        known = {**_HINTS} if refusal.matches(_TOO_LONG) else {}
    if refusal.param in known:
        name, change = known[refusal.param]
        if change(refusal.request) != refusal.request:
            yield Repair(name, change)


def _repair_codec_fields(refusal: _Refusal) -> Iterator[Repair]:
    """Remove fields that a codec adds."""
    codec, param = refusal.codec, refusal.param
    if isinstance(codec, OpenAIChatCodec) and param.startswith("stream_options"):
        if codec.stream_options:
            yield Repair("usage", codec=replace(codec, stream_options={}))
    elif isinstance(codec, OpenAIResponsesCodec):
        reasoning = refusal.request.reasoning
        if param.startswith("include") and codec.reasoners and not reasoning:
            without_reasoners = replace(codec, reasoners=None)
            yield Repair(
                "reasoning.encrypted_content", _without_proofs, without_reasoners
            )
        elif param.startswith("stream_options"):
            less = replace(codec, options=codec.options - {"stream_options"})
            if less != codec:
                yield Repair("stream_options", codec=less)


# Roles and schemas

_DEVELOPER = re.compile(r"\bdeveloper\b", re.IGNORECASE)
_SCHEMA = re.compile(
    r"invalid_function_parameters|invalid_json_schema|\bstrict\b|invalid schema for"
    r"|too many (strict tools|optional parameters)|schemas? (is|are) too complex"
    r"|parameters with type arrays",
    re.IGNORECASE,
)


def _repair_role(refusal: _Refusal) -> Iterator[Repair]:
    codec = refusal.codec
    if not refusal.matches(_DEVELOPER):
        return
    if isinstance(codec, OpenAIChatCodec) and codec.system_role == "developer":
        yield Repair(
            "input (developer → system)", codec=replace(codec, system_role="system")
        )
    elif isinstance(codec, OpenAIResponsesCodec) and codec.developer_role:
        yield Repair(
            "input (developer → system)", codec=replace(codec, developer_role=False)
        )


def _repair_strictness(refusal: _Refusal) -> Iterator[Repair]:
    """The result is validated against the schema here, strict or not."""
    if not refusal.matches(_SCHEMA):
        return
    loose = _without_strict(refusal.request)
    if loose != refusal.request:
        yield Repair("strict", _without_strict)


def _without_strict(request: Request) -> Request:
    tools = [{**t, "strict": False} if t.get("strict") else t for t in request.tools]
    text = dict(request.text or {})
    form = text.get("format")
    if isinstance(form, Mapping) and form.get("strict"):
        text["format"] = {**form, "strict": False}
    return replace(
        request,
        tools=tools if tools != list(request.tools) else request.tools,
        text=text if text != (request.text or {}) else request.text,
    )


_RULES: tuple[Rule, ...] = (
    _repair_prefill,
    _repair_proofs,
    _repair_pictures,
    _repair_length,
    _repair_option,
    _repair_codec_fields,
    _repair_role,
    _repair_strictness,
)
