"""Tables to rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models, transaction

from conversations.presets import ContextSource
from llm.encrypted import SecretUnavailable
from llm.models import ApiKey, Provider
from project.config_file.findings import ConfigError, Findings, Report
from project.config_file.links import Links
from project.config_file.shape import Shape, Table
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
    differences,
    texts_of,
)
from project.config_file.variables import Secrets
from tools.declared_tools import ALL_KINDS
from tools.http.checks import header_problems
from tools.mcp.rows import McpServer
from tools.models import DeclaredTool, HttpTool, Tool, ToolVersion
from tools.secret_headers import SecretHeaders
from tools.versions import Snapshot, snapshot_of


def load(
    document: Table,
    environment: Mapping[str, str],
    *,
    allow_literal_keys: bool = False,
    dry_run: bool = False,
) -> Report:
    """Do what the file says, or nothing at all. Raises ConfigError."""
    findings = Findings()
    secrets = Secrets(environment, allow_literal_keys, findings)
    loader = _Loader(findings, secrets, Shape(findings.problems), Links(findings))
    with transaction.atomic():
        loader.load(document)
        if dry_run or findings.problems:
            transaction.set_rollback(True)
    if findings.problems:
        raise ConfigError(findings.problems)
    return Report(findings.changes, findings.notes)


@dataclass(frozen=True, slots=True)
class _Loader:
    findings: Findings
    secrets: Secrets
    shape: Shape
    links: Links
    _defaults: list[str] = field(default_factory=list)  # places of default models
    #: Tools of the file, and what they were before; None of a new one.
    _tools: list[tuple[Tool, Snapshot | None]] = field(default_factory=list)

    def load(self, document: Table) -> None:
        known = ["providers", "tools", "declared_tools", "sources", "presets"]
        self.shape.check_fields("the file", document, known)
        for place, table in self.shape.tables(document, "providers", PROVIDER):
            self._provider(place, table)
        for place, table in self.shape.tables(document, "tools", TOOL):
            self._tool(place, table)
        for place, table in self.shape.tables(
            document, "declared_tools", DECLARED_TOOL
        ):
            self._declared_tool(place, table)
        for place, table in self.shape.tables(document, "sources", SOURCE):
            self._source(place, table)
        presets = []
        for place, table in self.shape.tables(document, "presets", PRESET):
            if table.get("is_default") is True:
                presets.append(f"{place}.is_default")
            self._preset(place, table)
        self._check_defaults(self._defaults, "model")
        self._check_defaults(presets, "preset")
        if not self.findings.problems:
            self.links.make()
            for tool, before in self._tools:
                note = "Configuration file"
                ToolVersion.objects.record(tool, note=note, before=before)

    def _check_defaults(self, places: Sequence[str], what: str) -> None:
        if len(places) > 1:
            told = " and ".join(places)
            self._problem(f"{told}: only one {what} can be the default.")

    # Providers

    def _provider(self, place: str, table: Table) -> None:
        provider = self._row(place, table, PROVIDER, {})
        if provider:
            assert isinstance(provider, Provider)
            _take_keys_along(provider)
        # One that could not be saved still has its inner tables looked through.
        owner = {"provider": provider or Provider(name=table["name"])}
        for inner, key in self.shape.tables(table, "keys", KEY, place):
            self._key(inner, key, owner)
        for inner, model in self.shape.tables(table, "models", MODEL, place):
            if model.get("is_default") is True:
                self._defaults.append(f"{inner}.is_default")
            self._row(inner, model, MODEL, owner)

    def _key(self, place: str, table: Table, owner: Mapping[str, models.Model]) -> None:
        known = owner["provider"].pk is not None
        key = KEY.find(KEY.name_of(table), owner) if known else ApiKey()
        told = dict(table)
        secret = self._secret(f"{place}.secret", told.pop("secret", ""), key)
        if secret:
            told["secret"] = secret
        if secret:
            key.forget_refusals()  # they were another key's
        elif key.state == ApiKey.State.RESTING or key.is_disabled_automatically:
            told.setdefault("state", key.state)  # what happened stays so
        if secret or key.secret:
            self._row(place, told, KEY, owner)
        else:  # the problem is told; are there more?
            self.shape.check_fields(place, told, KEY.fields)
            dict(self.shape.values(place, told, KEY))

    def _secret(self, place: str, told: Any, key: ApiKey) -> str:
        """The text to be stored, "" where what is stored stays or a problem is told."""
        text = self.secrets.text(place, told, "key", bool(key.secret))
        return "" if not text or key.holds(text) else text

    # Tools

    def _tool(self, place: str, table: Table) -> None:
        told = dict(table)
        approvers = self.shape.text(f"{place}.approvers", told.pop("approvers", ""))
        http = told.pop("http", None)
        row: Tool = TOOL.find(table["name"], {})
        before = snapshot_of(row) if row.pk else None
        if approvers is None:
            return
        if self._row(place, told, TOOL, {}, found=row):
            self.links.add_one(place, row, "approvers", approvers, nothing="nobody")
            self._http(place, http, row)
            self._tools.append((row, before))

    def _http(self, place: str, told: Any, tool: Tool) -> None:
        """What an HTTP tool asks; what is known of it stays where nothing is told."""
        inner, is_http = f"{place}.http", tool.kind == Tool.Kind.HTTP
        row = HttpTool.objects.filter(tool=tool).first()
        if told is None:
            if is_http and row is None:
                self._problem(f'{inner}: missing; a tool of kind "http" needs it.')
        elif not is_http:
            self._problem(f'{inner}: only a tool of kind "http" has one.')
        elif not isinstance(told, dict):
            self._problem(f"{inner}: write a table.")
        else:
            row, values = row or HttpTool(tool=tool), dict(told)
            headers = values.pop("secret_headers", {})
            beside = [*self._headers(f"{inner}.secret_headers", headers, row)]
            self._row(inner, values, HTTP, {}, found=row, beside=beside)

    def _declared_tool(self, place: str, table: Table) -> None:
        if table["kind"] not in ALL_KINDS:
            known = ", ".join(sorted(ALL_KINDS))
            self._problem(f"{place}: there is no such kind; known: {known}.")
            return
        row = self._row(place, table, DECLARED_TOOL, {})
        if row is None:
            return
        wants_groups = table.get("allowed_for") == DeclaredTool.AllowedFor.GROUPS
        if wants_groups and not table.get("groups"):
            self._problem(f"{place}.groups: name at least one group.")
        if table.get("groups") and not wants_groups:
            self._problem(f'{place}.groups: they need allowed_for = "groups".')

    # Sources of context

    def _source(self, place: str, table: Table) -> None:
        told = dict(table)
        row: ContextSource = SOURCE.find(table["name"], {})
        server = told.pop("mcp_server", "")
        headers = told.pop("secret_headers", {})
        beside = [
            *self._server(f"{place}.mcp_server", server, row),
            *self._headers(f"{place}.secret_headers", headers, row),
        ]
        self._row(place, told, SOURCE, {}, found=row, beside=beside)

    def _server(self, place: str, told: Any, row: ContextSource) -> Iterator[str]:
        """Sets it; what has changed by that."""
        name = self.shape.text(place, told)
        if name is None:
            return
        server = McpServer.objects.filter(name=name).first() if name else None
        if name and server is None:
            self._problem(f"{place}: there is no MCP server {name!r}.")
        elif server != row.mcp_server:
            row.mcp_server = server
            yield f"mcp_server: now {name or 'none'}"

    def _headers(self, place: str, told: Any, row: SecretHeaders) -> Iterator[str]:
        """Sets those that are new; what has changed by that."""
        if not isinstance(told, dict):
            self._problem(f"{place}: write a table of names.")
            return
        stored = row.revealed_headers()
        # The file says where they are sent to: they are bound to its address.
        if stored:
            row.set_secret_headers({})
        for name, value in told.items():
            text = self.secrets.text(f"{place}.{name}", value, "header", name in stored)
            problems = list(header_problems({name: text}))
            self.findings.problems.extend(f"{place}: {each}" for each in problems)
            if text and not problems and stored.get(name) != text:
                row.set_secret_headers({name: text})
                yield f"secret_headers.{name}: replaced"

    # Presets

    def _preset(self, place: str, table: Table) -> None:
        told = dict(table)
        if told.get("tools"):  # to name some is to mean these alone
            told["only_named_tools"] = True
        name = self.shape.text(
            f"{place}.language_model", told.pop("language_model", "")
        )
        if name is not None and (row := self._row(place, told, PRESET, {})):
            self.links.add_one(place, row, "language_model", name)

    # A row of any kind

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
        told = len(self.findings.problems)
        self.shape.check_fields(place, table, kind.fields)
        values = dict(self.shape.values(place, table, kind))
        links = {
            name: self.shape.names(f"{place}.{name}", table.get(name, []))
            for name in kind.links
        }
        is_bad = len(self.findings.problems) > told
        if is_bad or any(row.pk is None for row in owner.values()):
            return None
        row: models.Model = found or kind.find(kind.name_of(table), owner)
        if not self._save(place, row, values, kind, beside):
            return None
        for name, names in links.items():
            self.links.add(place, row, name, names)
        return row

    def _save(
        self,
        place: str,
        row: models.Model,
        values: Table,
        kind: Kind,
        beside: Sequence[str],
    ) -> bool:
        """False where the row would not be valid, which is told."""
        is_new, before = row.pk is None, texts_of(row, kind)
        for name, value in values.items():
            setattr(row, name, value)
        if not (is_new or beside) and texts_of(row, kind) == before:
            return True
        try:
            row.full_clean()
        except ValidationError as exc:
            self.findings.problems.extend(_problems(place, exc))
            return False
        changes = [*differences(before, texts_of(row, kind), kind), *beside]
        if is_new or changes:
            row.save()
        if is_new:
            self.findings.changes.append(f"{place}: created")
        else:
            self.findings.changes.extend(f"{place}.{change}" for change in changes)
        return True

    def _problem(self, problem: str) -> None:
        self.findings.problems.append(problem)


def _take_keys_along(provider: Provider) -> None:
    """Who may load a file has the right to keys: those of a provider whose address the
    file changes are sent to the new one."""
    for key in provider.keys.all():
        entered_for = key.entered_for
        if entered_for in (None, provider.secret_origin):
            continue
        # One that cannot be decrypted stays; the admin and `check` name it.
        with suppress(SecretUnavailable):
            key.enter(key.secret.reveal_for(entered_for), provider.secret_origin)
            key.save(update_fields=["secret"])


def _problems(place: str, exc: ValidationError) -> Iterator[str]:
    for name, messages in exc.message_dict.items():
        where = place if name == NON_FIELD_ERRORS else f"{place}.{name}"
        yield f"{where}: {' '.join(messages)}"
