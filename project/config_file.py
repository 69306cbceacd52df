"""A deployment as a file: providers with their keys and models, tools, sources of
context and presets, in TOML.

`load` makes the rows that the file names as the file says: a field that it leaves out
gets its default, a row that it leaves out stays as it is. `dump` gives the file that,
loaded, changes nothing. A key's text is never in it, only the name of an environment
variable, as in `secret = "env:OPENAI_API_KEY"`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models, transaction

from conversations.presets import ContextSource, Preset, PresetSource
from llm.encrypted import EncryptedTextField
from llm.models import ApiKey, LanguageModel, Provider
from project.config_tables import (
    KEY,
    MODEL,
    PRESET,
    PROVIDER,
    SOURCE,
    TOOL,
    Kind,
    WrongValue,
    differences,
    table_of,
    texts_of,
    value_from,
)
from tools.http.checks import header_problems
from tools.mcp.rows import McpServer
from tools.models import Tool, ToolVersion
from tools.versions import Snapshot, snapshot_of

Table = Mapping[str, Any]

_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")


class ConfigError(Exception):
    """The file cannot be loaded; each problem names its table and field."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Report:
    """What a load did, a line each; notes are no changes."""

    changes: Sequence[str]
    notes: Sequence[str]


def load(
    document: Table,
    environment: Mapping[str, str],
    *,
    allow_literal_keys: bool = False,
    dry_run: bool = False,
) -> Report:
    """Do what the file says, or nothing at all. Raises ConfigError."""
    loader = _Loader(environment, allow_literal_keys)
    with transaction.atomic():
        loader.load(document)
        if dry_run or loader.problems:
            transaction.set_rollback(True)
    if loader.problems:
        raise ConfigError(loader.problems)
    return Report(loader.changes, loader.notes)


def dump() -> dict[str, Any]:
    """The file of all rows."""
    providers = Provider.objects.prefetch_related(
        "keys", "models__groups", "models__fallbacks__provider"
    )
    # What an HTTP tool asks is no part of the file, so neither is the tool; that of an
    # MCP server comes with the server.
    kept = Tool.objects.filter(
        kind__in=[Tool.Kind.PYTHON, Tool.Kind.HOSTED], mcp_server=None
    )
    tools = kept.select_related("approvers").prefetch_related("groups")
    sources = ContextSource.objects.select_related("mcp_server")
    presets = Preset.objects.select_related("language_model__provider")
    presets = presets.prefetch_related("tools", "groups", "links__source")
    variables = _Variables()
    document = {
        "providers": [_provider_table(row, variables) for row in providers],
        "tools": [_tool_table(row) for row in tools],
        "sources": [_source_table(row, variables) for row in sources],
        "presets": [_preset_table(row) for row in presets],
    }
    return {name: tables for name, tables in document.items() if tables}


# Rows to tables


class _Variables:
    """Names of environment variables for keys, each given once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def name_for(self, words: str, ending: str = "_KEY") -> str:
        base = re.sub(r"[^A-Z0-9]+", "_", words.upper()).strip("_") or "PROVIDER"
        base = f"_{base}{ending}" if base[0].isdigit() else f"{base}{ending}"
        name, number = base, 2
        while name in self._given:
            name, number = f"{base}_{number}", number + 1
        self._given.add(name)
        return name


def _provider_table(provider: Provider, variables: _Variables) -> dict[str, Any]:
    table = table_of(provider, PROVIDER)
    keys = [
        _key_table(key, provider, variables)
        for key in provider.keys.all()
        if not provider.is_ourselves  # it makes its own
    ]
    rows = [
        table_of(row, MODEL) | _links_of(row, MODEL) for row in provider.models.all()
    ]
    return table | {n: t for n, t in (("keys", keys), ("models", rows)) if t}


def _key_table(
    key: ApiKey, provider: Provider, variables: _Variables
) -> dict[str, Any]:
    table = table_of(key, KEY)
    if table.get("state") == ApiKey.State.RESTING:
        del table["state"]  # that will pass
    name = variables.name_for(f"{provider.name} {key.label}")
    return table | {"secret": f"env:{name}"}


def _tool_table(tool: Tool) -> dict[str, Any]:
    table = table_of(tool, TOOL) | _links_of(tool, TOOL)
    return table | ({"approvers": tool.approvers.name} if tool.approvers else {})


def _source_table(source: ContextSource, variables: _Variables) -> dict[str, Any]:
    table = table_of(source, SOURCE)
    if source.mcp_server:
        table["mcp_server"] = source.mcp_server.name
    if source.secret_names:
        table["secret_headers"] = {
            name: f"env:{variables.name_for(f'{source.name} {name}', '')}"
            for name in source.secret_names
        }
    return table


def _preset_table(preset: Preset) -> dict[str, Any]:
    table = table_of(preset, PRESET)
    if preset.language_model:
        table["language_model"] = preset.language_model.full_name
    links = {
        "tools": sorted(tool.name for tool in preset.tools.all()),
        "sources": [link.source.name for link in preset.links.all()],
        "groups": sorted(group.name for group in preset.groups.all()),
    }
    return table | {name: names for name, names in links.items() if names}


def _links_of(row: models.Model, kind: Kind) -> dict[str, Any]:
    links = {
        name: sorted(map(_name_of, getattr(row, name).all())) for name in kind.links
    }
    return {name: names for name, names in links.items() if names}


def _name_of(row: Group | LanguageModel) -> str:
    return row.full_name if isinstance(row, LanguageModel) else row.name


# Tables to rows


@dataclass(slots=True)
class _Loader:
    environment: Mapping[str, str]
    allow_literal_keys: bool
    changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    #: Links are made last, when every row is there that they may name.
    _links: list[Callable[[], None]] = field(default_factory=list)
    _defaults: list[str] = field(default_factory=list)  # places of default models
    #: Tools of the file, and what they were before; None of a new one.
    _tools: list[tuple[Tool, Snapshot | None]] = field(default_factory=list)

    def load(self, document: Table) -> None:
        known = ["providers", "tools", "sources", "presets"]
        self._check_fields("the file", document, known)
        for place, table in self._tables(document, "providers", PROVIDER):
            self._provider(place, table)
        for place, table in self._tables(document, "tools", TOOL):
            self._tool_row(place, table)
        for place, table in self._tables(document, "sources", SOURCE):
            self._source(place, table)
        presets = []
        for place, table in self._tables(document, "presets", PRESET):
            if table.get("is_default") is True:
                presets.append(f"{place}.is_default")
            self._preset(place, table)
        self._check_defaults(self._defaults, "model")
        self._check_defaults(presets, "preset")
        if not self.problems:
            for link in self._links:
                link()
            for tool, before in self._tools:
                note = "Configuration file"
                ToolVersion.objects.record(tool, note=note, before=before)

    def _check_defaults(self, places: Sequence[str], what: str) -> None:
        if len(places) > 1:
            told = " and ".join(places)
            self.problems.append(f"{told}: only one {what} can be the default.")

    def _provider(self, place: str, table: Table) -> None:
        provider = self._row(place, table, PROVIDER, {})
        # One that could not be saved still has its inner tables looked through.
        owner = {"provider": provider or Provider(name=table["name"])}
        for inner, key in self._tables(table, "keys", KEY, place):
            self._key(inner, key, owner)
        for inner, model in self._tables(table, "models", MODEL, place):
            if model.get("is_default") is True:
                self._defaults.append(f"{inner}.is_default")
            self._row(inner, model, MODEL, owner)

    def _tool_row(self, place: str, table: Table) -> None:
        told = dict(table)
        name = told.pop("approvers", "")
        row: Tool = TOOL.find(table["name"], {})
        before = snapshot_of(row) if row.pk else None
        if not isinstance(name, str):
            self.problems.append(f"{place}.approvers: write a text.")
        elif self._row(place, told, TOOL, {}, found=row):
            self._links.append(partial(self._link_approvers, place, row, name))
            self._tools.append((row, before))

    def _link_approvers(self, place: str, row: Tool, name: str) -> None:
        group = self._group(f"{place}.approvers", name) if name else None
        if group != row.approvers:
            row.approvers = group
            row.save(update_fields=["approvers"])
            self.changes.append(f"{place}.approvers: now {name or 'nobody'}")

    def _source(self, place: str, table: Table) -> None:
        told = dict(table)
        row: ContextSource = SOURCE.find(table["name"], {})
        beside = [
            *self._server(f"{place}.mcp_server", told.pop("mcp_server", ""), row),
            *self._headers(
                f"{place}.secret_headers", told.pop("secret_headers", {}), row
            ),
        ]
        self._row(place, told, SOURCE, {}, found=row, beside=beside)

    def _server(self, place: str, name: Any, row: ContextSource) -> Iterator[str]:
        """Sets it; what has changed by that."""
        if not isinstance(name, str):
            self.problems.append(f"{place}: write a text.")
            return
        server = McpServer.objects.filter(name=name).first() if name else None
        if name and server is None:
            self.problems.append(f"{place}: there is no MCP server {name!r}.")
        elif server != row.mcp_server:
            row.mcp_server = server
            yield f"mcp_server: now {name or 'none'}"

    def _headers(self, place: str, told: Any, row: ContextSource) -> Iterator[str]:
        """Sets those that are new; what has changed by that."""
        if not isinstance(told, dict):
            self.problems.append(f"{place}: write a table of names.")
            return
        stored = row.revealed_headers()
        for name, value in told.items():
            text = self._secret_text(f"{place}.{name}", value, "header", name in stored)
            problems = list(header_problems({name: text}))
            self.problems += [f"{place}: {problem}" for problem in problems]
            if text and not problems and stored.get(name) != text:
                row.set_secret_headers({name: text})
                yield f"secret_headers.{name}: replaced"

    def _preset(self, place: str, table: Table) -> None:
        told = dict(table)
        name = told.pop("language_model", "")
        if not isinstance(name, str):
            self.problems.append(f"{place}.language_model: write a text.")
        elif row := self._row(place, told, PRESET, {}):
            self._links.append(partial(self._link_model, place, row, name))

    def _row(
        self,
        place: str,
        table: Table,
        kind: Kind,
        owner: Mapping[str, models.Model],
        *,
        found: models.Model | None = None,
        beside: Sequence[str] = (),
    ) -> models.Model | None:
        """The row as the table says, saved; None where a problem is told. `beside` is
        what has changed in the row that was `found`, apart from its table."""
        told = len(self.problems)
        self._check_fields(place, table, kind.fields)
        values = dict(self._values(place, table, kind))
        links = {name: self._names(place, table, name) for name in kind.links}
        if len(self.problems) > told or any(row.pk is None for row in owner.values()):
            return None
        row: models.Model = found or kind.find(kind.name_of(table), owner)
        if not self._save(place, row, values, kind, beside):
            return None
        for name, names in links.items():
            self._links.append(partial(self._link, place, row, name, names))
        return row

    def _save(
        self,
        place: str,
        row: models.Model,
        values: Table,
        kind: Kind,
        beside: Sequence[str],
    ) -> bool:
        is_new, before = row.pk is None, texts_of(row, kind)
        for name, value in values.items():
            setattr(row, name, value)
        if not (is_new or beside) and texts_of(row, kind) == before:
            return True
        try:
            row.full_clean()
        except ValidationError as exc:
            self.problems += _problems(place, exc)
            return False
        changes = [*differences(before, texts_of(row, kind), kind), *beside]
        if is_new or changes:
            row.save()
        if is_new:
            self.changes.append(f"{place}: created")
        else:
            self.changes += [f"{place}.{change}" for change in changes]
        return True

    def _values(
        self, place: str, table: Table, kind: Kind
    ) -> Iterator[tuple[str, Any]]:
        for name, column in kind.columns.items():
            if name in table:
                try:
                    yield name, value_from(column, table[name])
                except WrongValue as exc:
                    self.problems.append(f"{place}.{name}: {exc}")
            elif name != kind.identity and not isinstance(column, EncryptedTextField):
                yield name, column.get_default()

    # Keys

    def _key(self, place: str, table: Table, owner: Mapping[str, models.Model]) -> None:
        known = owner["provider"].pk is not None
        key = KEY.find(KEY.name_of(table), owner) if known else ApiKey()
        told = dict(table)
        secret = self._secret(f"{place}.secret", told.pop("secret", ""), key)
        if secret:
            told["secret"] = secret
        if key.state == ApiKey.State.RESTING:
            told.setdefault("state", key.state)  # a pause that will pass
        if secret or key.secret:
            self._row(place, told, KEY, owner)
        else:  # the problem is told; are there more?
            self._check_fields(place, told, KEY.fields)
            dict(self._values(place, told, KEY))

    def _secret(self, place: str, told: Any, key: ApiKey) -> str:
        """The text to be stored, "" where what is stored stays or a problem is told."""
        text = self._secret_text(place, told, "key", bool(key.secret))
        return "" if not text or key.holds(text) else text

    def _secret_text(self, place: str, told: Any, what: str, is_stored: bool) -> str:
        """ "" where there is none, which is told."""
        if not isinstance(told, str):
            self.problems.append(f'{place}: write a text, "env:NAME".')
            return ""
        variable = _VARIABLE.fullmatch(told)
        if told and not variable and not self.allow_literal_keys:
            self.problems.append(
                f'{place}: a {what} does not belong in a file; write "env:NAME" and set'
                " NAME in the environment (or pass --allow-literal-keys)."
            )
            return ""
        text = self.environment.get(variable[1], "").strip() if variable else told
        if not text:
            missing = f"{variable[1]} is not set" if variable else "there is none"
            if is_stored:
                self.notes.append(f"{place}: {missing}; the stored {what} stays.")
            else:
                self.problems.append(
                    f"{place}: {missing}, and no {what} is stored yet."
                )
        return text

    # Links

    def _names(self, place: str, table: Table, name: str) -> list[str]:
        names = table.get(name, [])
        if isinstance(names, list) and all(isinstance(each, str) for each in names):
            return list(dict.fromkeys(names))
        self.problems.append(f"{place}.{name}: write a list of names.")
        return []

    def _link(self, place: str, row: Any, name: str, names: Sequence[str]) -> None:
        find = {
            "groups": self._group,
            "fallbacks": self._model,
            "tools": self._tool,
            "sources": self._source_named,
        }[name]
        found = [find(f"{place}.{name}", each) for each in names]
        wanted = [each for each in found if each is not None]
        if name == "sources":
            changed = _set_sources(row, wanted)
        else:
            links = getattr(row, name)
            if changed := set(wanted) != set(links.all()):
                links.set(wanted)
        if changed:
            self.changes.append(f"{place}.{name}: now {', '.join(names) or 'none'}")

    def _link_model(self, place: str, row: Any, name: str) -> None:
        model = self._model(f"{place}.language_model", name) if name else None
        if model != row.language_model:
            row.language_model = model
            row.save(update_fields=["language_model"])
            self.changes.append(f"{place}.language_model: now {name or 'none'}")

    def _tool(self, place: str, name: str) -> models.Model | None:
        if (row := Tool.objects.filter(name=name).first()) is None:
            self.problems.append(f"{place}: there is no tool {name!r}.")
        return row

    def _source_named(self, place: str, name: str) -> models.Model | None:
        if (row := ContextSource.objects.filter(name=name).first()) is None:
            self.problems.append(f"{place}: there is no source {name!r}.")
        return row

    def _group(self, place: str, name: str) -> Group:
        group, is_new = Group.objects.get_or_create(name=name)
        if is_new:
            self.changes.append(f"group {name!r}: created, with nobody in it")
        return group

    def _model(self, place: str, full_name: str) -> models.Model | None:
        provider, _, name = full_name.partition("/")
        rows = LanguageModel.objects.filter(provider__name=provider, name=name)
        if (row := rows.first()) is None:
            self.problems.append(f"{place}: there is no model {full_name!r}.")
        return row

    # The shape of the file

    def _tables(
        self, table: Table, name: str, kind: Kind, within: str = ""
    ) -> Iterator[tuple[str, Table]]:
        """The tables of this name and their places, as far as they can be named."""
        place = f"{within}.{name}" if within else name
        tables = table.get(name, [])
        if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
            self.problems.append(f"{place}: write a list of tables.")
            return
        seen = set()
        for number, each in enumerate(tables, 1):
            who = kind.name_of(each)
            if not isinstance(who, str) or not who:
                self.problems.append(
                    f"{place}[{number}].{kind.identity}: write a text."
                )
            elif who in seen:
                self.problems.append(f"{place}[{who}]: it comes twice.")
            else:
                seen.add(who)
                yield f"{place}[{who}]", each

    def _check_fields(self, place: str, table: Table, known: Sequence[str]) -> None:
        for name in table:
            if name in known:
                continue
            near = get_close_matches(name, known, n=1)
            mend = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}."
            self.problems.append(f"{place}: unknown field {name!r}; {mend}")


def _set_sources(preset: Preset, wanted: Sequence[Any]) -> bool:
    """In this order. False where they are so already."""
    if [link.source for link in preset.links.select_related("source")] == wanted:
        return False
    preset.links.all().delete()
    PresetSource.objects.bulk_create(
        PresetSource(preset=preset, source=source, position=position)
        for position, source in enumerate(wanted)
    )
    return True


def _problems(place: str, exc: ValidationError) -> Iterator[str]:
    for name, messages in exc.message_dict.items():
        where = place if name == NON_FIELD_ERRORS else f"{place}.{name}"
        yield f"{where}: {' '.join(messages)}"
