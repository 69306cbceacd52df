"""Encoder of hosted tools for hosts of Chat Completions, each in its own format.

In: a hosted tool in the format of the Responses API. Out: entries of `tools`, or fields
of the body; `HostedToolFields` collects both.

Source: https://openrouter.ai/docs/guides/features/server-tools/web-search
Source: https://console.groq.com/docs/tool-use/built-in-tools
Source: https://docs.perplexity.ai/api-reference/chat-completions-post
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from llm.wire.hosted_tools import (
    Tool,
    WebSearchOptions,
    kind_of,
    no_such_tool,
    refuse_container,
)

#: The host's format. "options" is OpenAI's `web_search_options`, which Meta uses.
Dialect = Literal["", "groq", "openrouter", "options", "perplexity"]

_GROQ = {"web_search": "browser_search", "code_interpreter": "code_interpreter"}


@dataclass(slots=True)
class HostedToolFields:
    """The fields that a request's hosted tools add to its body."""

    dialect: Dialect
    model: str
    tools: list[dict[str, Any]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    is_degraded: bool = False  # an optional setting was ignored

    def add(self, tool: Tool) -> None:
        """Raises BadRequest for a tool that the host does not have."""
        kind, type = kind_of(tool), str(tool.get("type"))
        match self.dialect:
            case "openrouter" if type.startswith("openrouter:"):
                self.tools.append(dict(tool))
            case "openrouter" if kind == "web_search":
                self._openrouter(WebSearchOptions.of(tool))
            case "perplexity" if kind == "web_search":
                self._perplexity(WebSearchOptions.of(tool))
            case "options" if kind == "web_search":
                WebSearchOptions.of(tool).refuse_domains(tool)
                self._options(WebSearchOptions.of(tool))
            case "groq" if kind in _GROQ and "compound" in self.model:
                self._compound(kind or "", tool)
            case "groq" if kind in _GROQ or type == "browser_search":
                self._groq(kind, tool)
            case _:
                raise no_such_tool(tool)

    def _openrouter(self, search: WebSearchOptions) -> None:
        parameters: dict[str, Any] = {
            "allowed_domains": list(search.allowed) or None,
            "excluded_domains": list(search.blocked) or None,
            "search_context_size": search.size,
            "user_location": search.location
            and {"type": "approximate", **search.location},
        }
        nonempty = {name: value for name, value in parameters.items() if value}
        entry: dict[str, Any] = {"type": "openrouter:web_search"}
        self.tools.append({**entry, "parameters": nonempty} if nonempty else entry)

    def _perplexity(self, search: WebSearchOptions) -> None:
        """Perplexity always searches; only the options are sent."""
        options: dict[str, Any] = {}
        if search.size:
            options["search_context_size"] = search.size
        if search.location:
            location = {n: v for n, v in search.location.items() if n != "timezone"}
            options["user_location"] = location
        if options:
            self.fields["web_search_options"] = options
        if domains := [*search.allowed, *(f"-{each}" for each in search.blocked)]:
            self.fields["search_domain_filter"] = domains

    def _options(self, search: WebSearchOptions) -> None:
        options: dict[str, Any] = {}
        if search.size:
            options["search_context_size"] = search.size
        if search.location:
            location = {"type": "approximate", "approximate": dict(search.location)}
            options["user_location"] = location
        self.fields["web_search_options"] = options

    def _compound(self, kind: str, tool: Tool) -> None:
        """Groq's compound system, which lists its tools outside of `tools`."""
        custom = self.fields.setdefault("compound_custom", {"tools": {}})
        custom["tools"].setdefault("enabled_tools", []).append(kind)
        if kind == "code_interpreter":
            refuse_container(tool)
            return
        search = WebSearchOptions.of(tool)
        known = {
            "include_domains": list(search.allowed) or None,
            "exclude_domains": list(search.blocked) or None,
        }
        if settings := {name: value for name, value in known.items() if value}:
            self.fields["search_settings"] = settings
        self._note_ignored(search)

    def _groq(self, kind: str | None, tool: Tool) -> None:
        if kind == "web_search":
            WebSearchOptions.of(tool).refuse_domains(tool)
            self._note_ignored(WebSearchOptions.of(tool))
        elif kind:
            refuse_container(tool)
        self.tools.append({"type": _GROQ.get(kind or "", "browser_search")})

    def _note_ignored(self, search: WebSearchOptions) -> None:
        self.is_degraded |= bool(search.location or search.size not in (None, "medium"))
