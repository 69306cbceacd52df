"""Import of the configuration file into rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models, transaction

from conversations.audit.watch import one_event
from conversations.models.preset import ContextSource, Preset
from conversations.models.staff.versions import PresetVersion
from llm.db.encrypted_field import SecretUnavailable
from llm.db.secret_headers import SecretHeaders
from llm.models import ApiKey, LanguageModel, ModelPool, Provider
from project.accounts.models import IdentityProvider
from project.config_file.dated_prices import load_prices
from project.config_file.drafts import NOTE, hold_back
from project.config_file.findings import ConfigError, Findings, Report
from project.config_file.identities import find_secret, read_mappings, set_mappings
from project.config_file.links import Links
from project.config_file.pools import Hosts, read_hosts, set_hosts
from project.config_file.shape import Shape, Table, find_nul
from project.config_file.stored_rows import StoredRows
from project.config_file.tables import (
    DECLARED_TOOL,
    HTTP,
    IDENTITY_PROVIDER,
    KEY,
    MODEL,
    MODEL_POOL,
    PRESET,
    PROVIDER,
    SOURCE,
    TOOL,
    USAGE_LIMIT,
    Kind,
    column_texts,
    differences,
)
from project.config_file.usage_limits import find_limit, limit_tables
from project.config_file.variables import Secrets
from tools.http.validation import header_problems
from tools.models import DeclaredTool, HttpTool, Tool, ToolVersion
from tools.models.declared_tool import ALL_KINDS
from tools.models.mcp_server import McpServer
from tools.models.tool_version import Snapshot


def load(
    document: Table,
    environment: Mapping[str, str],
    *,
    allow_literal_keys: bool = False,
    dry_run: bool = False,
    from_admin: bool = False,
    may_add_groups: bool = True,
    look: Callable[[], None] | None = None,
    without: Collection[str] = (),
) -> Report:
    """Create and update the rows of the file in one transaction. Raises ConfigError.

    `from_admin`: keys are write-only for the user who loads the file, so none is sent
    to another address than it was entered for, and rows of unknown keys are left out.
    `without` names the lists of the file that this user may not change; without
    `may_add_groups` a group that the file names must exist.
    `look` is called when the rows are as they will be, before a dry run takes it back.
    """
    if problems := sorted(find_nul(document)):
        raise ConfigError(problems)
    findings = Findings()
    secrets = Secrets(environment, allow_literal_keys, from_admin, findings)
    links = Links(findings, may_add_groups)
    loader = _Loader(findings, secrets, Shape(findings.problems), links)
    findings.problems.extend(
        f"{name}: you may not change these." for name in without if name in document
    )
    with transaction.atomic():
        with one_event("config.load"):
            loader.load(document)
        if look and not findings.problems:
            look()
        if dry_run or findings.problems:
            transaction.set_rollback(True)
    if findings.problems:
        raise ConfigError(findings.problems)
    return Report(findings.changes, findings.notes)


_LISTS = [
    *("providers", "model_pools", "tools", "declared_tools", "sources", "presets"),
    *("usage_limits", "identity_providers"),
]


@dataclass(frozen=True, slots=True)
class _Loader:
    findings: Findings
    secrets: Secrets
    shape: Shape
    links: Links
    _stored: StoredRows = field(default_factory=StoredRows)
    _defaults: list[str] = field(default_factory=list)  # paths of default models
    #: Tools of the file, each with its snapshot before the load; None for a new tool.
    _tools: list[tuple[Tool, Snapshot | None]] = field(default_factory=list)
    #: Pools of the file with their paths.
    _pools: list[tuple[str, ModelPool, Hosts]] = field(default_factory=list)
    #: Presets of the file with their paths, and their contents before the load.
    _presets: list[tuple[str, Preset, Snapshot | None]] = field(default_factory=list)

    def load(self, document: Table) -> None:
        self.shape.check_fields("the file", document, _LISTS)
        for path, table in self.shape.tables(document, "providers", PROVIDER):
            self._load_provider(path, table)
        for path, table in self.shape.tables(document, "model_pools", MODEL_POOL):
            self._load_pool(path, table)
        for path, table in self.shape.tables(document, "tools", TOOL):
            self._load_tool(path, table)
        for path, table in self.shape.tables(document, "declared_tools", DECLARED_TOOL):
            self._load_declared_tool(path, table)
        for path, table in self.shape.tables(document, "sources", SOURCE):
            self._load_source(path, table)
        presets = []
        for path, table in self.shape.tables(document, "presets", PRESET):
            if table.get("is_default") is True:
                presets.append(f"{path}.is_default")
            self._load_preset(path, table)
        for path, table in limit_tables(document, self.shape):
            self._load_limit(path, table)
        lists = self.shape.tables(document, "identity_providers", IDENTITY_PROVIDER)
        for path, table in lists:
            self._load_identity_provider(path, table)
        self._check_defaults(self._defaults, "model")
        self._check_defaults(presets, "preset")
        if not self.findings.problems:
            self.links.save()
            for path, pool, hosts in self._pools:
                set_hosts(f"{path}.hosts", pool, hosts, self.findings)
            for tool, before in self._tools:
                ToolVersion.objects.record(tool, note=NOTE, before=before)
            for path, preset, before in self._presets:
                if before is not None:
                    hold_back(path, preset, before, self.findings)
                PresetVersion.objects.record(preset, note=NOTE, before=before)

    def _check_defaults(self, paths: Sequence[str], noun: str) -> None:
        if len(paths) > 1:
            joined = " and ".join(paths)
            self._add_problem(f"{joined}: only one {noun} can be the default.")

    # Providers

    def _load_provider(self, path: str, table: Table) -> None:
        provider = self._load_row(path, table, PROVIDER, {})
        if provider:
            assert isinstance(provider, Provider)
            if not self.secrets.are_write_only:
                _rebind_keys(
                    provider, self._stored.list_all(KEY, {"provider": provider})
                )
        # The inner tables of an invalid provider are checked, too.
        owner = {"provider": provider or Provider(name=table["name"])}
        for inner, key in self.shape.tables(table, "keys", KEY, path):
            self._load_key(inner, key, owner)
        for inner, model in self.shape.tables(table, "models", MODEL, path):
            if model.get("is_default") is True:
                self._defaults.append(f"{inner}.is_default")
            self._load_model(inner, model, owner)

    def _load_key(
        self, path: str, table: Table, owner: Mapping[str, models.Model]
    ) -> None:
        known = owner["provider"].pk is not None
        key = self._stored.find(KEY, KEY.name_of(table), owner) if known else ApiKey()
        values = dict(table)
        group = self.shape.text(f"{path}.group", values.pop("group", ""))
        secret = self._find_new_secret(f"{path}.secret", values.pop("secret", ""), key)
        if secret:
            values["secret"] = secret
        if secret:
            state = key.state
            key.forget_refusals()  # those of the old key
            key.state = state  # the table sets it, which is reported
        elif key.state == ApiKey.State.RESTING or key.is_disabled_automatically:
            values.setdefault("state", key.state)  # keep a state that Parley set
        if secret or key.secret:
            found = key if known else None
            row = self._load_row(path, values, KEY, owner, found=found)
            if row is not None and group is not None:
                self.links.add_one(path, row, "group", group, nothing="everybody")
        else:  # `_find_new_secret` added a problem or a note; look for more
            self.shape.check_fields(path, values, KEY.fields)
            dict(self.shape.values(path, values, KEY))

    def _load_model(
        self, path: str, table: Table, owner: Mapping[str, models.Model]
    ) -> None:
        values = dict(table)
        replacement = self.shape.text(
            f"{path}.replacement", values.pop("replacement", "")
        )
        prices = values.pop("dated_prices", [])
        known = owner["provider"].pk is not None
        name = MODEL.name_of(values)
        found = self._stored.find(MODEL, name, owner) if known else None
        changes = []
        if found and replacement == "" and found.replacement_id:
            found.replacement = None  # before the row is checked
            changes.append("replacement: now none")
        row = self._load_row(
            path, values, MODEL, owner, found=found, other_changes=changes
        )
        if not isinstance(row, LanguageModel):
            return
        if replacement:
            self.links.add_one(path, row, "replacement", replacement)
        load_prices(f"{path}.dated_prices", prices, row, self.findings)

    def _load_pool(self, path: str, table: Table) -> None:
        values = dict(table)
        hosts = read_hosts(f"{path}.hosts", values.pop("hosts", []), self.shape)
        row = self._load_row(path, values, MODEL_POOL, {})
        if isinstance(row, ModelPool) and hosts is not None:
            self._pools.append((path, row, hosts))

    def _find_new_secret(self, path: str, value: Any, key: ApiKey) -> str:
        """Return the text to store, or "" if it is unchanged or after a problem."""
        text = self.secrets.text(path, value, "key", bool(key.secret))
        return "" if not text or key.is_current_key(text) else text

    # Tools

    def _load_tool(self, path: str, table: Table) -> None:
        values = dict(table)
        approvers = self.shape.text(f"{path}.approvers", values.pop("approvers", ""))
        http = values.pop("http", None)
        row: Tool = self._stored.find(TOOL, table["name"], {})
        before = ToolVersion.take_snapshot(row) if row.pk else None
        if approvers is None:
            return
        if self._load_row(path, values, TOOL, {}, found=row):
            self.links.add_one(path, row, "approvers", approvers, nothing="nobody")
            self._load_http(path, http, row)
            self._tools.append((row, before))

    def _load_http(self, path: str, values: Any, tool: Tool) -> None:
        """Load the request of an HTTP tool; without a table it is not changed."""
        inner, is_http = f"{path}.http", tool.kind == Tool.Kind.HTTP
        row = HttpTool.objects.filter(tool=tool).first()
        if values is None:
            if is_http and row is None:
                self._add_problem(f'{inner}: missing; a tool of kind "http" needs it.')
        elif not is_http:
            self._add_problem(f'{inner}: only a tool of kind "http" has one.')
        elif not isinstance(values, dict):
            self._add_problem(f"{inner}: write a table.")
        else:
            row, values = row or HttpTool(tool=tool), dict(values)
            headers = values.pop("secret_headers", {})
            other_changes = [
                *self._set_headers(f"{inner}.secret_headers", headers, row)
            ]
            self._load_row(
                inner, values, HTTP, {}, found=row, other_changes=other_changes
            )

    def _load_declared_tool(self, path: str, table: Table) -> None:
        if table["kind"] not in ALL_KINDS:
            known = ", ".join(sorted(ALL_KINDS))
            self._add_problem(f"{path}: there is no such kind; use {known}.")
            return
        row = self._load_row(path, table, DECLARED_TOOL, {})
        if row is None:
            return
        wants_groups = table.get("allowed_for") == DeclaredTool.AllowedFor.GROUPS
        if wants_groups and not table.get("groups"):
            self._add_problem(f"{path}.groups: name at least one group.")
        if table.get("groups") and not wants_groups:
            self._add_problem(f'{path}.groups: set allowed_for = "groups" as well.')

    # Sources of context

    def _load_source(self, path: str, table: Table) -> None:
        values = dict(table)
        row: ContextSource = self._stored.find(SOURCE, table["name"], {})
        server = values.pop("mcp_server", "")
        headers = values.pop("secret_headers", {})
        other_changes = [
            *self._set_server(f"{path}.mcp_server", server, row),
            *self._set_headers(f"{path}.secret_headers", headers, row),
        ]
        self._load_row(path, values, SOURCE, {}, found=row, other_changes=other_changes)

    def _set_server(self, path: str, value: Any, row: ContextSource) -> Iterator[str]:
        """Set the MCP server; yield the change."""
        name = self.shape.text(path, value)
        if name is None:
            return
        server = McpServer.objects.filter(name=name).first() if name else None
        if name and server is None:
            self._add_problem(f"{path}: there is no MCP server {name!r}.")
        elif server != row.mcp_server:
            row.mcp_server = server
            yield f"mcp_server: now {name or 'none'}"

    def _set_headers(
        self, path: str, headers: Any, row: SecretHeaders
    ) -> Iterator[str]:
        """Set new and changed headers; yield the changes."""
        if not isinstance(headers, dict):
            self._add_problem(f"{path}: write a table of names.")
            return
        stored = row.get_secret_headers()
        # Rebind the headers: the file may change the address that they are sent to.
        if stored and not self.secrets.are_write_only:
            row.set_secret_headers({})
        for name, value in headers.items():
            text = self.secrets.text(f"{path}.{name}", value, "header", name in stored)
            problems = list(header_problems({name: text}))
            self.findings.problems.extend(f"{path}: {each}" for each in problems)
            if text and not problems and stored.get(name) != text:
                row.set_secret_headers({name: text})
                yield f"secret_headers.{name}: replaced"

    # Presets

    def _load_preset(self, path: str, table: Table) -> None:
        values = dict(table)
        if values.get("tools"):  # a list of tools is the complete list
            values["only_named_tools"] = True
        name = self.shape.text(
            f"{path}.language_model", values.pop("language_model", "")
        )
        owner = self.shape.text(f"{path}.owner_group", values.pop("owner_group", ""))
        found = self._stored.find(PRESET, PRESET.name_of(values), {})
        before = PresetVersion.take_snapshot(found) if found.pk else None
        row = self._load_row(path, values, PRESET, {}, found=found)
        if not isinstance(row, Preset) or name is None or owner is None:
            return
        self.links.add_one(path, row, "language_model", name)
        self.links.add_one(path, row, "owner_group", owner)
        self._presets.append((path, row, before))

    # Limits and identities

    def _load_limit(self, path: str, table: Table) -> None:
        if row := find_limit(path, table, self.shape, self.links):
            subject = ("user", "group", "model")
            values = {n: value for n, value in table.items() if n not in subject}
            self._load_row(path, values, USAGE_LIMIT, {}, found=row)

    def _load_identity_provider(self, path: str, table: Table) -> None:
        row: IdentityProvider = self._stored.find(IDENTITY_PROVIDER, table["slug"], {})
        values = dict(table)
        group = self.shape.text(
            f"{path}.default_group", values.pop("default_group", "")
        )
        mappings = read_mappings(
            f"{path}.group_mappings", values.pop("group_mappings", []), self.shape
        )
        secret = find_secret(f"{path}.secret", table, row, self.secrets)
        values.pop("secret", None)
        if secret:
            values["secret"] = secret
        saved = self._load_row(path, values, IDENTITY_PROVIDER, {}, found=row)
        if saved is None or group is None or mappings is None:
            return
        self.links.add_one(path, row, "default_group", group)
        changes = set_mappings(row, mappings, self.links)
        self.findings.changes.extend(f"{path}.{change}" for change in changes)

    # Rows of any kind

    def _load_row(
        self,
        path: str,
        table: Table,
        kind: Kind,
        owner: Mapping[str, models.Model],
        *,
        found: models.Model | None = None,
        other_changes: Sequence[str] = (),
    ) -> models.Model | None:
        """Save the row with the values of the table; return None after a problem.

        `found` is the row, if the caller has it, and `other_changes` are the changes
        that the caller made in it.
        """
        count = len(self.findings.problems)
        self.shape.check_fields(path, table, kind.fields)
        values = dict(self.shape.values(path, table, kind))
        links = {
            name: self.shape.names(f"{path}.{name}", table.get(name, []))
            for name in kind.links
        }
        is_bad = len(self.findings.problems) > count
        if is_bad or any(row.pk is None for row in owner.values()):
            return None
        row: models.Model = found or self._stored.find(kind, kind.name_of(table), owner)
        is_new = row.pk is None
        if not self._save(path, row, values, kind, other_changes):
            return None
        for name, names in links.items():
            if names or not is_new:
                self.links.add(path, row, name, names)
        return row

    def _save(
        self,
        path: str,
        row: models.Model,
        values: Table,
        kind: Kind,
        other_changes: Sequence[str],
    ) -> bool:
        """Save the row if it changes; return False, with problems, if it is invalid."""
        is_new, before = row.pk is None, column_texts(row, kind)
        for name, value in values.items():
            setattr(row, name, value)
        if not (is_new or other_changes) and column_texts(row, kind) == before:
            return True
        try:
            row.full_clean()
        except ValidationError as exc:
            self.findings.problems.extend(_problems(path, exc))
            return False
        changes = [*differences(before, column_texts(row, kind), kind), *other_changes]
        if is_new or changes:
            row.save()
        if is_new:
            self._stored.note_new(kind, row)
            self.findings.changes.append(f"{path}: created")
        else:
            self.findings.changes.extend(f"{path}.{change}" for change in changes)
        return True

    def _add_problem(self, problem: str) -> None:
        self.findings.problems.append(problem)


def _rebind_keys(provider: Provider, keys: Sequence[ApiKey]) -> None:
    """Allow the provider's keys to be sent to the address that the file sets.

    Users who may load a file may also read and set keys.
    """
    for key in keys:
        entered_for = key.entered_for
        if entered_for in (None, provider.origin):
            continue
        # A key that cannot be decrypted stays; the admin and `check` report it.
        with suppress(SecretUnavailable):
            key.enter(key.secret.reveal_for(entered_for), provider.origin)
            key.save(update_fields=["secret"])


def _problems(path: str, exc: ValidationError) -> Iterator[str]:
    for name, messages in exc.message_dict.items():
        location = path if name == NON_FIELD_ERRORS else f"{path}.{name}"
        yield f"{location}: {' '.join(messages)}"
