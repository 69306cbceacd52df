"""Hosted tools: which model may use which tool of its provider, and why not. No IO.

The tools of a host are in `data/models.json` (`hosted_tools` of Capabilities); how a
tool is encoded there, and which of its options cannot be, is decided by its codec. Both
are checked here, so that a refusal comes before anything is sent.
`docs/hosted-tools.md` has the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llm.capabilities import Capabilities
from llm.errors import BadRequest
from llm.provider import Route
from llm.wire.codec import Codec
from llm.wire.hosted_tools import NAMES, SPELLINGS, is_hosted, kind_of
from llm.wire.items import user_message
from llm.wire.request import Request

__all__ = [
    "CLIENT_FUNCTIONS",
    "LABELS",
    "NAMES",
    "SPELLINGS",
    "client_functions",
    "is_hosted",
    "kind_of",
    "needs_client",
    "why_route_refuses",
    "why_unsupported",
]

Tool = Mapping[str, Any]

#: Labels for users, by capability name.
LABELS: Mapping[str, str] = {
    "web_search": "Web search",
    "x_search": "Search on X",
    "file_search": "File search",
    "code_interpreter": "Code interpreter",
    "image_generation": "Image generation",
    "computer_use": "Computer use",
    "mcp": "MCP server",
}
#: Gemini controls a screen by calls of these functions, which no request declares.
CLIENT_FUNCTIONS = frozenset(
    {
        "click_at",
        "drag_and_drop",
        "go_back",
        "go_forward",
        "hover_at",
        "key_combination",
        "navigate",
        "open_web_browser",
        "scroll_at",
        "scroll_document",
        "search",
        "type_text_at",
        "wait_5_seconds",
    }
)


def why_unsupported(
    codec: Codec | None,
    can: Capabilities,
    tool: Tool,
    *,
    model: str = "",
    beside: Sequence[dict[str, Any]] = (),
) -> str | None:
    """Why this tool cannot be used with the model; None if it can or that is unknown.

    One or two sentences. `model` is the provider's model name, `beside` are the
    functions declared in the same request.
    """
    if is_lacking(can, tool):
        return _list_supported(can.hosted_tools or ())
    if codec is None:
        return None
    alone = _encoding_error(codec, model, [dict(tool)])
    if alone or not beside:
        return alone
    together = _encoding_error(codec, model, [*beside, dict(tool)])
    return None if _encoding_error(codec, model, beside) else together


def is_lacking(can: Capabilities, tool: Tool) -> bool:
    """Whether the model is known to lack the tool, whatever its form."""
    kind, known = kind_of(tool), can.hosted_tools
    return kind is not None and known is not None and kind not in known


def why_route_refuses(
    route: Route, tool: Tool, *, beside: Sequence[dict[str, Any]] = ()
) -> str | None:
    """As `why_unsupported`, for the model of a route."""
    return why_unsupported(
        route.endpoint.codec,
        route.capabilities,
        tool,
        model=route.model,
        beside=beside,
    )


def needs_client(tool: Tool) -> bool:
    """Whether the client has to carry out the actions of the model: computer use."""
    return kind_of(tool) == "computer_use"


def client_functions(tools: Iterable[Tool]) -> frozenset[str]:
    """Names of functions that these tools let a model call without a declaration, and
    that the client has to answer."""
    return CLIENT_FUNCTIONS if any(map(needs_client, tools)) else frozenset()


def _list_supported(kinds: Sequence[str]) -> str:
    if not kinds:
        return "The model has no tools that its provider runs; choose another model."
    *others, last = (repr(kind) for kind in kinds)
    names = f"{', '.join(others)} and {last}" if others else last
    return f"The tools that its provider runs are {names}."


def _encoding_error(
    codec: Codec, model: str, tools: Sequence[dict[str, Any]]
) -> str | None:
    """Why the wire format cannot encode `tools`, found by encoding them."""
    try:
        codec.encode(Request(model=model, items=[user_message("?")], tools=tools))
    except BadRequest as exc:
        return str(exc)
    return None
