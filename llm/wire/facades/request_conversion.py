"""Conversion of a request for a provider with another API than the client's.

In: a reader's `Request`, whose `extra` holds fields of one API. Out: the same with
fields that all codecs know, and the names of the options that were lost. A request to a
provider with the client's own API does not need this.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from llm.wire.facades.common_shape import EFFORTS
from llm.wire.facades.field_checks import integer
from llm.wire.items import Item
from llm.wire.request import Request, is_namespace, members_of

#: Fields that the gateway handles itself, or that concern only the delivery.
_SERVED = frozenset(
    {
        "background",
        "betas",
        "conversation",
        "include",
        "max_tool_calls",
        "n",
        "parley",
        "previous_response_id",
        "store",
        "stream_options",
        "truncation",
        "user",
    }
)
_THOUGHT = frozenset({"output_config", "output_format", "reasoning", "thinking"})
_ATTRIBUTION = "x-anthropic-billing-header:"
_MAX_IDENTIFIER = 64  # characters; some hosts of OpenAI's APIs take no more
_whole_number = integer()
_BUDGETS = ((4096, "low"), (12_288, "medium"))  # upper limits in tokens; beyond: "high"


def portable(
    request: Request, *, hosted_tools: Container[str] = ()
) -> tuple[Request, list[str]]:
    """`hosted_tools` are the provider's own tools that the request may use. Raises
    BadRequest."""
    tools = [
        converted for tool in request.tools for converted in _tool(tool, hosted_tools)
    ]
    lost = [name for name in request.extra if name not in _SERVED | _THOUGHT]
    if len(tools) < len(request.tools):
        lost.append("tools")
    user = request.extra.get("user")
    thinks = bool(request.reasoning) or not _THOUGHT.isdisjoint(request.extra)
    plain = replace(
        request,
        items=_without_attribution(request.items),
        tools=tools,
        tool_choice=request.tool_choice if tools else None,
        reasoning=_reasoning(request) if thinks else None,
        text=_text(request) if thinks else request.text,
        safety_identifier=_identifier(request.safety_identifier or user),
        extra={},
    )
    return plain, lost


def _without_attribution(items: Sequence[Item]) -> Sequence[Item]:
    """The items without the line that Claude Code addresses to Anthropic. It differs in
    each conversation and comes first, so no host could reuse a cached prompt."""
    for number, item in enumerate(items):
        if item.get("role") != "system":
            break
        if _text_of(item).startswith(_ATTRIBUTION):
            return [*items[:number], *items[number + 1 :]]
    return items


def _text_of(item: Item) -> str:
    match item.get("content"):
        case [{"text": str(text)}] | str(text):
            return text
    return ""


def _identifier(user: Any) -> str | None:
    """Whom the client names. A long name is hashed: the host would refuse it, and
    Claude Code's holds ids of a device and of an account at Anthropic."""
    if not isinstance(user, str):
        return None
    is_long = len(user) > _MAX_IDENTIFIER
    return sha256(user.encode(errors="replace")).hexdigest() if is_long else user


def _tool(
    tool: Mapping[str, Any], hosted_tools: Container[str]
) -> Iterator[dict[str, Any]]:
    if tool["type"] == "custom" and "input_schema" in tool:  # Anthropic's functions
        function = {"type": "function", "name": tool["name"]}
        function |= {n: tool[n] for n in ("description", "strict") if tool.get(n)}
        yield {**function, "parameters": tool["input_schema"]}
    elif is_namespace(tool):  # `llm.adaptation` sends its functions
        if members_of(tool):
            yield dict(tool)
    elif tool["type"] in ("custom", "function") or tool["type"] in hosted_tools:
        yield dict(tool)


def _reasoning(request: Request) -> Mapping[str, Any] | None:
    """Reasoning effort and summary, from any of four fields."""
    thinking = _object(request.extra.get("thinking"))
    effort = (
        (request.reasoning or {}).get("effort")
        or _named_effort(request, "output_config")
        or _named_effort(request, "reasoning")  # OpenRouter's, in Chat
        or _effort_of(thinking)
    )
    settings = {**(request.reasoning or {}), "effort": effort}
    thinks = thinking.get("type") in ("enabled", "adaptive")
    if thinks and thinking.get("display") != "omitted":
        settings.setdefault("summary", "auto")  # the client wants to see the thinking
    return {name: v for name, v in settings.items() if v is not None} or None


def _named_effort(request: Request, name: str) -> str | None:
    """The effort in a field of another API, which the client's API does not check."""
    effort = _object(request.extra.get(name)).get("effort")
    if not effort:
        return None
    EFFORTS(effort, f"{name}.effort")
    return str(effort)


def _effort_of(thinking: Mapping[str, Any]) -> str | None:
    match thinking.get("type"):
        case "disabled":
            return "none"
        case "enabled":
            budget = thinking.get("budget_tokens") or 0
            _whole_number(budget, "thinking.budget_tokens")
            fitting = (effort for most, effort in _BUDGETS if budget <= most)
            return next(fitting, "high")
    return None


def _text(request: Request) -> Mapping[str, Any] | None:
    """Anthropic's structured output, which lacks only a name."""
    config = _object(request.extra.get("output_config"))
    form = _object(config.get("format") or request.extra.get("output_format"))
    if form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict):
        return request.text
    named = {"type": "json_schema", "name": "answer", "schema": form["schema"]}
    return {**(request.text or {}), "format": {**named, "strict": True}}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
