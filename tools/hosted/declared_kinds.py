"""Kinds of tools that a request can declare, apart from client functions. Pure.

In: a body of Responses, Chat Completions or Messages, or one tool. Out: the kinds that
it declares, each with its path in the request. Parley's own spelling counts, a
provider's (`code_execution_20250825`), and fields beside `tools` (`mcp_servers`).

A kind is `only_reads` if its use changes nothing and runs no code. A type that is not
listed here has the kind `other`.

Source: https://platform.openai.com/docs/guides/tools
Source: https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview
Source: https://ai.google.dev/gemini-api/docs/tools
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from llm.adaptation.hosted_tools import LABELS, kind_of


@dataclass(frozen=True, slots=True)
class DeclaredKind:
    name: str
    label: str | Promise
    only_reads: bool
    #: Values of a tool's `type` that mean this kind, without a date at their end;
    #: beside those in `llm.adaptation.hosted_tools`.
    types: frozenset[str] = frozenset()


def _kind(
    name: str, label: Any, types: str = "", *, only_reads: bool = False
) -> DeclaredKind:
    return DeclaredKind(name, label, only_reads, frozenset(types.split()))


OTHER = "other"
KINDS = (
    _kind(
        "web_search",
        LABELS["web_search"],
        "web_search_premium google_search google_search_retrieval browser_search"
        " live_search",
        only_reads=True,
    ),
    _kind("web_fetch", _("Web pages"), "url_context visit_website", only_reads=True),
    _kind("x_search", LABELS["x_search"], only_reads=True),
    _kind("maps", _("Maps"), "google_maps", only_reads=True),
    _kind(
        "file_search",
        LABELS["file_search"],
        "collections_search document_library",
        only_reads=True,
    ),
    _kind(
        "tool_search",
        _("Tool search"),
        "tool_search_tool_bm25 tool_search_tool_regex",
        only_reads=True,
    ),
    _kind("image_generation", LABELS["image_generation"]),
    _kind("code_interpreter", LABELS["code_interpreter"], "code_execution"),
    _kind("computer_use", LABELS["computer_use"], "computer computer_toolset"),
    _kind("shell", _("Shell"), "bash local_shell"),
    _kind("text_editor", _("File changes"), "apply_patch memory"),
    _kind("mcp", _("MCP server that the client names"), "mcp_toolset"),
    _kind(OTHER, _("Other tools of providers")),
)
ONLY_READING = frozenset(kind.name for kind in KINDS if kind.only_reads)

_NAMES = {type: kind.name for kind in KINDS for type in (kind.name, *kind.types)}
_FUNCTIONS = (None, "function", "custom")
_PARLEY_TYPE = "parley:tools"  # names Parley's tools, whose rows have their own groups
_DATE = re.compile(r"_20\d\d_?\d\d_?\d\d\Z")
_VENDOR = "openrouter:"
#: Fields beside `tools` that declare a tool.
_FIELDS = {"mcp_servers": "mcp", "web_search_options": "web_search"}
#: Fields of a body that declare tools, in any API; items of its input may, too.
DECLARING_FIELDS = frozenset({"tools", *_FIELDS})


def get_declared_kind(tool: Mapping[str, Any]) -> str | None:
    """The kind of a declared tool; None for a function and for Parley's own tools."""
    type = tool.get("type")
    if type in _FUNCTIONS or type == _PARLEY_TYPE:
        return None
    bare = str(type).removeprefix(_VENDOR)
    name = _DATE.sub("", bare)
    return _NAMES.get(name) or kind_of({"type": bare}) or OTHER


def kinds_of_tools(tools: Any, prefix: str = "tools") -> Iterator[tuple[str, str]]:
    """Yield the kind and the path of each tool, also of those inside a namespace."""
    for number, tool in enumerate(tools if isinstance(tools, list | tuple) else ()):
        if not isinstance(tool, Mapping):
            continue
        path = f"{prefix}[{number}]"
        if tool.get("type") == "namespace":
            yield from kinds_of_tools(tool.get("tools"), f"{path}.tools")
        elif kind := get_declared_kind(tool):
            yield kind, path


def kinds_of_body(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the kind and the path of each tool that a gateway request declares outside
    its input items, for which there is `kinds_of_items`."""
    yield from kinds_of_tools(body.get("tools"))
    for field, kind in _FIELDS.items():
        if body.get(field) is not None and body[field] != []:
            yield kind, field


def kinds_of_items(items: Any) -> Iterator[tuple[str, str]]:
    """Yield the kinds that input items declare, with paths.

    Items of any type count (`additional_tools`, `tool_search_output`, unknown ones),
    because providers of the Responses format receive the items unchanged.
    """
    for number, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, Mapping):
            yield from kinds_of_tools(item.get("tools"), f"input[{number}].tools")
