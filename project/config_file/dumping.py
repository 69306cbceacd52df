"""Export of rows to the configuration file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import tomli_w
from django.contrib.auth.models import Group
from django.db import models

from conversations.models.preset import ContextSource, Preset
from llm.db.secret_headers import SecretHeaders
from llm.models import ApiKey, LanguageModel, Provider
from project.accounts.models import IdentityProvider
from project.config_file.dated_prices import build_price_tables
from project.config_file.identities import build_identity_table
from project.config_file.pools import build_pool_tables
from project.config_file.tables import (
    DECLARED_TOOL,
    HTTP,
    KEY,
    MODEL,
    PRESET,
    PROVIDER,
    SOURCE,
    TOOL,
    Kind,
    build_table,
)
from project.config_file.usage_limits import build_limit_tables
from project.config_file.variables import VariableNames
from tools.models import DeclaredTool, Tool

_HEAD = """\
# Parley's configuration, for the command load_config. Fields at their default are
# left out. Keys are left out: set the environment variables that `secret` names, or
# rename them.

"""


def dump_text(without: Collection[str] = ()) -> str:
    """Return the document as TOML, without these of its lists."""
    return _HEAD + tomli_w.dumps(dump(without))


def dump(without: Collection[str] = ()) -> dict[str, Any]:
    """Return the document of all rows but those of these lists."""
    providers = Provider.objects.prefetch_related(
        "keys",
        "models__groups",
        "models__fallbacks__provider",
        "models__replacement__provider",
        "models__dated_prices",
    )
    # Tools of MCP servers are synchronized from the server.
    configured = Tool.objects.exclude(kind=Tool.Kind.MCP).filter(mcp_server=None)
    tools = configured.select_related("approvers", "http").prefetch_related("groups")
    sources = ContextSource.objects.select_related("mcp_server").prefetch_related(
        "groups"
    )
    related = ("language_model__provider", "owner_group")
    presets = Preset.objects.select_related(*related).prefetch_related(
        "tools", "groups", "links__source", "allowed_models__provider"
    )
    variables = VariableNames()
    fallbacks = LanguageModel.objects.all().fallback_keys()
    document = {
        "providers": [_provider_table(row, variables, fallbacks) for row in providers],
        "model_pools": build_pool_tables(),
        "tools": [_tool_table(row, variables) for row in tools],
        "declared_tools": [
            build_table(row, DECLARED_TOOL) | _link_names(row, DECLARED_TOOL)
            for row in DeclaredTool.objects.prefetch_related("groups")
        ],
        "sources": [_source_table(row, variables) for row in sources],
        "presets": [_preset_table(row) for row in presets],
        "usage_limits": build_limit_tables(),
        "identity_providers": [
            build_identity_table(row, variables)
            for row in IdentityProvider.objects.select_related("default_group")
        ],
    }
    return {
        name: tables
        for name, tables in document.items()
        if tables and name not in without
    }


def _provider_table(
    provider: Provider, variables: VariableNames, fallbacks: Mapping[int, list[int]]
) -> dict[str, Any]:
    table = build_table(provider, PROVIDER)
    keys = [
        _key_table(key, provider, variables)
        for key in provider.keys.all()
        if not provider.is_own_server  # the demo, whose key is generated
    ]
    rows = [_model_table(row, fallbacks) for row in provider.models.all()]
    return table | {n: t for n, t in (("keys", keys), ("models", rows)) if t}


def _model_table(
    model: LanguageModel, fallbacks: Mapping[int, list[int]]
) -> dict[str, Any]:
    table = build_table(model, MODEL) | _link_names(model, MODEL)
    if keys := fallbacks.get(model.pk):  # in the order in which calls try them
        names = {each.pk: each.full_name for each in model.fallbacks.all()}
        table["fallbacks"] = [names[key] for key in keys]
    if model.replacement:
        table["replacement"] = model.replacement.full_name
    prices = build_price_tables(model)
    return table | ({"dated_prices": prices} if prices else {})


def _key_table(
    key: ApiKey, provider: Provider, variables: VariableNames
) -> dict[str, Any]:
    table = build_table(key, KEY)
    if key.state == ApiKey.State.RESTING or key.is_disabled_automatically:
        table.pop("state", None)  # a state that Parley set, not staff
    if key.group:
        table["group"] = key.group.name
    name = variables.name_for(f"{provider.name} {key.label}")
    return table | {"secret": f"env:{name}"}


def _tool_table(tool: Tool, variables: VariableNames) -> dict[str, Any]:
    table = build_table(tool, TOOL) | _link_names(tool, TOOL)
    if tool.approvers:
        table["approvers"] = tool.approvers.name
    if http := getattr(tool, "http", None):
        table["http"] = build_table(http, HTTP) | _header_table(
            http, tool.name, variables
        )
    return table


def _header_table(
    row: SecretHeaders, name: str, variables: VariableNames
) -> dict[str, Any]:
    """Secret headers, with names of variables instead of their values."""
    headers = {
        header: f"env:{variables.name_for(f'{name} {header}', '')}"
        for header in row.secret_names
    }
    return {"secret_headers": headers} if headers else {}


def _source_table(source: ContextSource, variables: VariableNames) -> dict[str, Any]:
    table = build_table(source, SOURCE) | _link_names(source, SOURCE)
    if source.mcp_server:
        table["mcp_server"] = source.mcp_server.name
    return table | _header_table(source, source.name, variables)


def _preset_table(preset: Preset) -> dict[str, Any]:
    table = build_table(preset, PRESET)
    if preset.language_model:
        table["language_model"] = preset.language_model.full_name
    if preset.owner_group:
        table["owner_group"] = preset.owner_group.name
    links = {
        "tools": sorted(tool.name for tool in preset.tools.all()),
        "sources": [link.source.name for link in preset.links.all()],
        "groups": sorted(group.name for group in preset.groups.all()),
        "allowed_models": sorted(m.full_name for m in preset.allowed_models.all()),
    }
    return table | {name: names for name, names in links.items() if names}


def _link_names(row: models.Model, kind: Kind) -> dict[str, Any]:
    links = {
        name: sorted(map(_name_of, getattr(row, name).all())) for name in kind.links
    }
    return {name: names for name, names in links.items() if names}


def _name_of(row: Group | LanguageModel) -> str:
    return row.full_name if isinstance(row, LanguageModel) else row.name
