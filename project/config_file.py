"""A deployment as a file: providers with their keys and models, and tools, in TOML.

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

from llm.encrypted import EncryptedTextField
from llm.models import ApiKey, LanguageModel, Provider
from project.config_tables import (
    KEY,
    MODEL,
    PROVIDER,
    TOOL,
    Kind,
    WrongValue,
    differences,
    table_of,
    texts_of,
    value_from,
)
from tools.models import Tool

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
    # What an HTTP tool asks is no part of the file, so neither is the tool.
    code = Tool.objects.filter(kind=Tool.Kind.PYTHON)
    tools = code.prefetch_related("groups")
    variables = _Variables()
    document = {
        "providers": [_provider_table(row, variables) for row in providers],
        "tools": [table_of(row, TOOL) | _links_of(row, TOOL) for row in tools],
    }
    return {name: tables for name, tables in document.items() if tables}


# Rows to tables


class _Variables:
    """Names of environment variables for keys, each given once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def name_for(self, key: ApiKey, provider: Provider) -> str:
        words = f"{provider.name} {key.label}".upper()
        base = re.sub(r"[^A-Z0-9]+", "_", words).strip("_") or "PROVIDER"
        base = f"_{base}_KEY" if base[0].isdigit() else f"{base}_KEY"
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
    return table | {"secret": f"env:{variables.name_for(key, provider)}"}


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

    def load(self, document: Table) -> None:
        self._check_fields("the file", document, ["providers", "tools"])
        for place, table in self._tables(document, "providers", PROVIDER):
            self._provider(place, table)
        for place, table in self._tables(document, "tools", TOOL):
            self._row(place, table, TOOL, {})
        if len(self._defaults) > 1:
            places = " and ".join(self._defaults)
            self.problems.append(f"{places}: only one model can be the default.")
        if not self.problems:
            for link in self._links:
                link()

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

    def _row(
        self, place: str, table: Table, kind: Kind, owner: Mapping[str, models.Model]
    ) -> models.Model | None:
        """The row as the table says, saved; None where a problem is told."""
        told = len(self.problems)
        self._check_fields(place, table, kind.fields)
        values = dict(self._values(place, table, kind))
        links = {name: self._names(place, table, name) for name in kind.links}
        if len(self.problems) > told or any(row.pk is None for row in owner.values()):
            return None
        row: models.Model = kind.find(kind.name_of(table), owner)
        if not self._save(place, row, values, kind):
            return None
        for name, names in links.items():
            self._links.append(partial(self._link, place, row, name, names))
        return row

    def _save(self, place: str, row: models.Model, values: Table, kind: Kind) -> bool:
        is_new, before = row.pk is None, texts_of(row, kind)
        for name, value in values.items():
            setattr(row, name, value)
        if not is_new and texts_of(row, kind) == before:
            return True
        try:
            row.full_clean()
        except ValidationError as exc:
            self.problems += _problems(place, exc)
            return False
        changes = list(differences(before, texts_of(row, kind), kind))
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
        if not isinstance(told, str):
            self.problems.append(f'{place}: write a text, "env:NAME".')
            return ""
        variable = _VARIABLE.fullmatch(told)
        if told and not variable and not self.allow_literal_keys:
            self.problems.append(
                f'{place}: a key does not belong in a file; write "env:NAME" and set'
                " NAME in the environment (or pass --allow-literal-keys)."
            )
            return ""
        text = self.environment.get(variable[1], "").strip() if variable else told
        if not text:
            missing = f"{variable[1]} is not set" if variable else "there is none"
            self._missing(place, missing, key)
        return "" if not text or key.holds(text) else text

    def _missing(self, place: str, why: str, key: ApiKey) -> None:
        if key.secret:
            self.notes.append(f"{place}: {why}; the stored key stays.")
        else:
            self.problems.append(f"{place}: {why}, and no key is stored yet.")

    # Links

    def _names(self, place: str, table: Table, name: str) -> list[str]:
        names = table.get(name, [])
        if isinstance(names, list) and all(isinstance(each, str) for each in names):
            return list(dict.fromkeys(names))
        self.problems.append(f"{place}.{name}: write a list of names.")
        return []

    def _link(self, place: str, row: Any, name: str, names: Sequence[str]) -> None:
        find = self._group if name == "groups" else self._model
        found = [find(f"{place}.{name}", each) for each in names]
        wanted = {each for each in found if each is not None}
        links = getattr(row, name)
        if wanted != set(links.all()):
            links.set(wanted)
            self.changes.append(f"{place}.{name}: now {', '.join(names) or 'none'}")

    def _group(self, place: str, name: str) -> models.Model:
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


def _problems(place: str, exc: ValidationError) -> Iterator[str]:
    for name, messages in exc.message_dict.items():
        where = place if name == NON_FIELD_ERRORS else f"{place}.{name}"
        yield f"{where}: {' '.join(messages)}"
