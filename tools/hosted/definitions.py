"""Presets and validation of hosted tools, which providers run. Pure.

A definition is the tool as a request declares it, `{"type": "web_search", ...}`. Models
of several providers receive it (`tools.json_schema.provider_support.hosts_of` lists
those that accept it), so it should have no fields that only one provider knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from llm.adaptation.hosted_tools import LABELS, kind_of, needs_client

Definition = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedToolPreset:
    """Initial values of the form."""

    name: str  # of the tool's row
    label: str
    description: str
    definition: dict[str, Any]


PRESETS = (
    HostedToolPreset(
        name="web_search",
        label=LABELS["web_search"],
        description="The model searches the web and cites pages.",
        definition={"type": "web_search"},
    ),
    HostedToolPreset(
        name="file_search",
        label=LABELS["file_search"],
        description=("The model searches files that you have stored at the provider."),
        definition={"type": "file_search", "vector_store_ids": ["vs_..."]},
    ),
    HostedToolPreset(
        name="code_interpreter",
        label=LABELS["code_interpreter"],
        description="The model writes Python code and the provider runs it.",
        definition={"type": "code_interpreter", "container": {"type": "auto"}},
    ),
    HostedToolPreset(
        name="image_generation",
        label=LABELS["image_generation"],
        description="The model generates images.",
        definition={"type": "image_generation"},
    ),
    HostedToolPreset(
        name="mcp",
        label=LABELS["mcp"],
        description="The provider calls the tools of a public MCP server.",
        definition={
            "type": "mcp",
            "server_label": "docs",
            "server_url": "https://example.com/mcp",
            "require_approval": "never",
        },
    ),
)


def find_definition_problems(definition: Any) -> list[str]:
    """A sentence for each mistake in a definition; none for a valid one."""
    if not isinstance(definition, Mapping) or not definition:
        return ['Write a JSON object such as {"type": "web_search"}.']
    kind = kind_of(definition)
    if kind is None:
        known = ", ".join(preset.definition["type"] for preset in PRESETS)
        return [
            f"No provider has a tool of the type {definition.get('type')!r}; use"
            f" {known}."
        ]
    if needs_client(definition):
        return [
            "Computer use needs a program that controls a screen, and a chat has none;"
            " the program must declare the tool in its requests."
        ]
    unknown = definition.keys() - _FIELDS[kind] - {"type"}
    sentences = [
        f"{name!r} is unknown; use {', '.join(sorted(_FIELDS[kind]))}."
        for name in sorted(unknown)
    ]
    return [*sentences, *_CHECKS.get(kind, _nothing)(definition)]


_FIELDS: Mapping[str, frozenset[str]] = {
    "web_search": frozenset(
        {"filters", "user_location", "search_context_size", "external_web_access"}
    ),
    "x_search": frozenset(
        {
            "allowed_x_handles",
            "excluded_x_handles",
            "from_date",
            "to_date",
            "enable_image_understanding",
            "enable_video_understanding",
        }
    ),
    "file_search": frozenset(
        {"vector_store_ids", "max_num_results", "filters", "ranking_options"}
    ),
    "code_interpreter": frozenset({"container"}),
    "image_generation": frozenset(
        {
            "action",
            "background",
            "model",
            "moderation",
            "output_compression",
            "output_format",
            "partial_images",
            "quality",
            "size",
        }
    ),
    "mcp": frozenset(
        {
            "server_label",
            "server_url",
            "server_description",
            "authorization",
            "headers",
            "allowed_tools",
            "require_approval",
        }
    ),
}


def _nothing(definition: Definition) -> Iterator[str]:
    return iter(())


def _web_search(definition: Definition) -> Iterator[str]:
    filters = definition.get("filters")
    if filters is not None:
        yield from _domains(filters)
    location = definition.get("user_location")
    if location is not None and not isinstance(location, Mapping):
        yield (
            "'user_location' must be an object with city, country, region or timezone."
        )
    if definition.get("search_context_size", "low") not in ("low", "medium", "high"):
        yield "'search_context_size' must be low, medium or high."


def _domains(filters: Any) -> Iterator[str]:
    if not isinstance(filters, Mapping):
        yield "'filters' must be an object with allowed_domains or blocked_domains."
        return
    lists = {
        n: filters[n] for n in ("allowed_domains", "blocked_domains") if n in filters
    }
    if len(lists) == 2:
        yield "Use allowed domains or blocked domains, not both."
    for name in sorted(filters.keys() - lists.keys()):
        yield f"'filters' has no {name!r}; use allowed_domains or blocked_domains."
    for name, value in lists.items():
        if not _is_names(value) or any("/" in each for each in value):
            yield f"{name!r} must be a list of domains such as example.com, without https://."


def _file_search(definition: Definition) -> Iterator[str]:
    stores = definition.get("vector_store_ids")
    if not _is_names(stores):
        yield "Set 'vector_store_ids' to a list of the vector stores to search."
    elif any(each.endswith("...") for each in stores or ()):
        yield "Replace the example by the id of a vector store."
    limit = definition.get("max_num_results", 1)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= 50:
        yield "'max_num_results' must be a whole number from 1 to 50."


def _code(definition: Definition) -> Iterator[str]:
    container = definition.get("container", {"type": "auto"})
    if isinstance(container, str) and container:
        return
    if not isinstance(container, Mapping) or container.get("type") != "auto":
        yield """'container' is {"type": "auto"} or the id of a container."""


def _mcp(definition: Definition) -> Iterator[str]:
    if not _is_text(definition.get("server_label")):
        yield "Set 'server_label' to a short name of the server."
    yield from _address(definition.get("server_url"))
    if definition.get("require_approval") != "never":
        yield (
            "Set 'require_approval' to 'never': a provider that asks before each call"
            " would wait for an answer that a chat cannot give."
        )
    allowed = definition.get("allowed_tools", ["any"])
    by_name = allowed.get("tool_names") if isinstance(allowed, Mapping) else allowed
    if by_name not in (None, []) and not _is_names(by_name):
        yield "'allowed_tools' must be a list of names; leave it out for all tools."
    headers = definition.get("headers", {})
    if not isinstance(headers, Mapping) or not all(map(_is_text, headers.values())):
        yield "'headers' must be an object of names and strings."
    if definition.get("authorization") or headers:
        yield (
            "A definition is stored unencrypted; set up the server under MCP servers,"
            " where 'authorization' and 'headers' are stored encrypted."
        )


def _address(url: Any) -> Iterator[str]:
    if not _is_text(url):
        yield "Set 'server_url' to the URL of the server."
        return
    try:
        address = urlsplit(url)
    except ValueError:
        address = urlsplit("")
    if address.scheme != "https" or not address.hostname:
        yield "'server_url' must begin with https://, because the provider calls it."
    elif address.username or address.password:
        yield "'server_url' must not contain a password."


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


_CHECKS: Mapping[str, Callable[[Definition], Iterator[str]]] = {
    "web_search": _web_search,
    "file_search": _file_search,
    "code_interpreter": _code,
    "mcp": _mcp,
}
