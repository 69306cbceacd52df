"""A request as any provider can be sent it, whatever API it was written for.

In: what a reader made of a body, whose `extra` holds fields that only one API has. Out:
the same in words that all codecs know, and the names of what was lost. A request that
stays with the API it was written for needs none of this.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Any

from llm.wire.request import Request

#: What the gateway itself serves, or what is no loss: how an answer is delivered.
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
_BUDGETS = ((4096, "low"), (12_288, "medium"))  # tokens, up to; beyond: "high"


def portable(
    request: Request, *, hosted_tools: Container[str] = ()
) -> tuple[Request, list[str]]:
    """`hosted_tools` are the types of the provider's own that it may be asked for."""
    tools = [told for tool in request.tools for told in _tool(tool, hosted_tools)]
    lost = [name for name in request.extra if name not in _SERVED | _THOUGHT]
    if len(tools) < len(request.tools):
        lost.append("tools")
    user = request.extra.get("user")
    plain = replace(
        request,
        tools=tools,
        tool_choice=request.tool_choice if tools else None,
        reasoning=_reasoning(request),
        text=_text(request),
        safety_identifier=request.safety_identifier
        or (user if isinstance(user, str) else None),
        extra={},
    )
    return plain, lost


def _tool(
    tool: Mapping[str, Any], hosted_tools: Container[str]
) -> Iterator[dict[str, Any]]:
    if tool["type"] == "custom" and "input_schema" in tool:  # Anthropic's functions
        told = {"type": "function", "name": tool["name"]}
        told |= {n: tool[n] for n in ("description", "strict") if tool.get(n)}
        yield {**told, "parameters": tool["input_schema"]}
    elif tool["type"] in ("custom", "function") or tool["type"] in hosted_tools:
        yield dict(tool)


def _reasoning(request: Request) -> Mapping[str, Any] | None:
    """How hard to think, in whichever of four ways it was said."""
    extra = request.extra
    thinking = _object(extra.get("thinking"))
    effort = (
        (request.reasoning or {}).get("effort")
        or _object(extra.get("output_config")).get("effort")
        or _object(extra.get("reasoning")).get("effort")  # OpenRouter's, in Chat
        or _effort_of(thinking)
    )
    told = {**(request.reasoning or {}), "effort": effort}
    thinks = thinking.get("type") in ("enabled", "adaptive")
    if thinks and thinking.get("display") != "omitted":
        told.setdefault("summary", "auto")  # whoever asks for it wants to see it
    return {name: v for name, v in told.items() if v is not None} or None


def _effort_of(thinking: Mapping[str, Any]) -> str | None:
    match thinking.get("type"):
        case "disabled":
            return "none"
        case "enabled":
            budget = thinking.get("budget_tokens") or 0
            fitting = (effort for most, effort in _BUDGETS if budget <= most)
            return next(fitting, "high")
    return None


def _text(request: Request) -> Mapping[str, Any] | None:
    """Anthropic's wish for JSON is ours, but for a name."""
    config = _object(request.extra.get("output_config"))
    form = _object(config.get("format") or request.extra.get("output_format"))
    if form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict):
        return request.text
    named = {"type": "json_schema", "name": "answer", "schema": form["schema"]}
    return {**(request.text or {}), "format": {**named, "strict": True}}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
