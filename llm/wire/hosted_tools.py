"""Tools that a provider runs itself, as the Responses API declares them. Pure.

In: a tool as a request declares it, `{"type": "web_search", ...}`. Out: which of the
known tools it is and its fields as values, which each codec writes in its own format.
Restrictions (domains, allowed tools) are never dropped silently: a codec that cannot
express one raises `not_supported`.

Beyond OpenAI's fields `filters` may hold `blocked_domains`, which xAI calls
`excluded_domains`.

Source: https://platform.openai.com/docs/guides/tools
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from llm.errors import BadRequest
from llm.wire.items import SUMMARY, Item, message

Tool = Mapping[str, Any]

_DATED = r"(_preview)?(_20\d\d_\d\d_\d\d)?"
#: Spellings of `type`, by the tool's name in capabilities.
SPELLINGS: Mapping[str, re.Pattern[str]] = {
    "web_search": re.compile(rf"web_search{_DATED}"),
    "x_search": re.compile("x_search"),
    "file_search": re.compile("file_search"),
    "code_interpreter": re.compile("code_interpreter"),
    "image_generation": re.compile("image_generation"),
    "computer_use": re.compile(r"computer_use(_preview)?|computer"),
    "mcp": re.compile("mcp"),
}
NAMES = tuple(SPELLINGS)
#: Types of items that record what a provider's tool did (receipts). A wire format
#: without such tools leaves them out, and every other item that has a proof; the
#: Responses API takes those whose id its host knows. `dropped_input` names them.
RECEIPTS = frozenset(
    {
        "code_interpreter_call",
        "compaction",
        "computer_call",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "web_search_call",
    }
)


def kind_of(tool: Tool) -> str | None:
    """The tool's name in `NAMES`; None for functions and for vendor-specific types."""
    type = str(tool.get("type"))
    return next((n for n, known in SPELLINGS.items() if known.fullmatch(type)), None)


def is_hosted(tool: Tool) -> bool:
    """Whether the tool is not a client function; vendor-specific types count as
    hosted."""
    return tool.get("type") not in ("function", "custom")


# Refusals


def no_such_tool(tool: Tool) -> BadRequest:
    return BadRequest(
        f"This provider has no tool of the type {tool.get('type')!r}.", param="tools"
    )


def not_supported(tool: Tool, what: str) -> BadRequest:
    """An error; `what` completes the sentence "This provider's 'web_search' …"."""
    return BadRequest(f"This provider's {tool.get('type')!r} {what}.", param="tools")


def require_field(tool: Tool, name: str) -> Any:
    """The value of a required field. Raises BadRequest if it is missing."""
    if value := tool.get(name):
        return value
    raise BadRequest(f"The tool {tool.get('type')!r} needs {name!r}.", param="tools")


# Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSearchOptions:
    """The options of a `web_search`."""

    allowed: Sequence[str] = ()  # domains; empty for all
    blocked: Sequence[str] = ()
    location: Mapping[str, str] | None = None  # city, country, region, timezone
    size: str | None = None  # of the context: low, medium or high

    @classmethod
    def of(cls, tool: Tool) -> Self:
        """Raises BadRequest where both allowed and blocked domains are set."""
        filters = tool.get("filters") or {}
        allowed = filters.get("allowed_domains") or ()
        blocked = filters.get("blocked_domains") or filters.get("excluded_domains")
        if allowed and blocked:
            raise BadRequest(
                "A web search can have allowed domains or blocked domains, not both.",
                param="tools",
            )
        location = tool.get("user_location")
        return cls(
            allowed=tuple(allowed),
            blocked=tuple(blocked or ()),
            location=None if location is None else _location_fields(location),
            size=tool.get("search_context_size"),
        )

    def refuse_domains(self, tool: Tool) -> None:
        if self.allowed or self.blocked:
            raise not_supported(tool, "does not support 'filters'; leave them out")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServer:
    """The server that an `mcp` tool asks the provider to connect to."""

    label: str
    url: str = ""
    authorization: str = ""  # an access token
    headers: Mapping[str, str]
    allowed: Sequence[str] | None = None  # names of tools; None for all
    read_only: bool = False  # only tools that are annotated as read-only
    requires_approval: bool = True  # the client must approve each call

    @classmethod
    def of(cls, tool: Tool) -> Self:
        """Raises BadRequest if the label is missing."""
        allowed = tool.get("allowed_tools")
        filter = allowed if isinstance(allowed, Mapping) else {"tool_names": allowed}
        names = filter.get("tool_names")
        return cls(
            label=require_field(tool, "server_label"),
            url=tool.get("server_url") or "",
            authorization=tool.get("authorization") or "",
            headers=tool.get("headers") or {},
            allowed=None if names is None else tuple(names),
            read_only=bool(filter.get("read_only")),
            requires_approval=tool.get("require_approval") != "never",
        )

    def refuse_asking(self) -> None:
        """For hosts that run calls without approval. Raises BadRequest."""
        if self.requires_approval:
            raise BadRequest(
                "This provider calls MCP tools without approval; set"
                " 'require_approval' to 'never'.",
                param="tools",
            )

    def refuse_read_only(self, tool: Tool) -> None:
        if self.read_only:
            raise not_supported(
                tool, "supports 'allowed_tools' only as a list of names"
            )


def container_files(tool: Tool) -> Sequence[str]:
    """Ids of the files that a `code_interpreter` gets in its container."""
    container = tool.get("container")
    files = container.get("file_ids") if isinstance(container, Mapping) else None
    return tuple(files or ())


def refuse_container(tool: Tool) -> None:
    """For hosts that always create an empty container. Raises BadRequest."""
    if container_files(tool) or isinstance(tool.get("container"), str):
        raise not_supported(tool, "does not support 'container'; leave it out")


def _location_fields(location: Mapping[str, Any]) -> dict[str, str]:
    return {n: v for n, v in location.items() if n != "type" and v is not None}


# Compactions


def compaction_message(item: Item) -> Item | None:
    """The summary in another host's `compaction` as a user message, because it may
    repeat what a web page or a tool has said. None if only its host can read it."""
    if text := item.get(SUMMARY):
        return message("user", f"Summary of the conversation so far:\n\n{text}")
    return None


# Screens


def screenshot_of(output: Mapping[str, Any]) -> dict[str, Any]:
    """The screenshot in a `computer_call_output`, as a part of a message.

    Raises BadRequest if there is none.
    """
    shown = output.get("output")
    fields = shown if isinstance(shown, Mapping) else {}
    address = {n: fields[n] for n in ("image_url", "file_id") if fields.get(n)}
    if not address:
        raise BadRequest(
            "A 'computer_call_output' needs an 'output' with the 'image_url' of a"
            " screenshot.",
            param="input",
        )
    return {"type": "input_image", "detail": "auto", **address}


def screenshot_message(output: Mapping[str, Any]) -> dict[str, Any]:
    """The screenshot as a user message, for a model that does not get the action
    itself."""
    note = {"type": "input_text", "text": "This is what the screen shows now."}
    return {
        "type": "message",
        "role": "user",
        "content": [note, screenshot_of(output)],
    }
