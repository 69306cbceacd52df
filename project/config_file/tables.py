"""The tables of the configuration file: which rows they stand for, and their fields.

A table's fields are its model's editable columns, so that a new column needs no word
here. A column at its default is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import models

from conversations.presets import ContextSource, Preset
from llm.encrypted import EncryptedTextField
from llm.models import ApiKey, LanguageModel, Provider
from tools.models import DeclaredTool, HttpTool, Tool

_NOT_CONFIGURATION = {"rest_until"}  # columns that tell what happened
_MAX_SHOWN = 60  # characters of a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of table. `links` are lists of other rows' names, `references` the name of
    one, `inner` tables in it."""

    model: type[models.Model]
    identity: str  # the field that names a row, among its owner's
    links: Sequence[str] = ()
    references: Sequence[str] = ()
    inner: Sequence[str] = ()

    @property
    def columns(self) -> dict[str, models.Field[Any, Any]]:
        return {
            column.name: column
            for column in self.model._meta.concrete_fields
            if (column.editable or column.name == self.identity)
            and not column.is_relation
            and not column.primary_key
            and column.name not in _NOT_CONFIGURATION
        }

    @property
    def fields(self) -> list[str]:
        return [*self.columns, *self.references, *self.links, *self.inner]

    def name_of(self, table: Mapping[str, Any]) -> Any:
        """The row's name, where the table gives one that is a text."""
        return table.get(self.identity, self.columns[self.identity].get_default())

    def find(self, name: str, owner: Mapping[str, models.Model]) -> Any:
        """The row of this name, or a new one."""
        sought = {self.identity: name, **owner}
        found = self.model._default_manager.filter(**sought).first()
        return found or self.model(**sought)


PROVIDER = Kind(model=Provider, identity="name", inner=["keys", "models"])
KEY = Kind(model=ApiKey, identity="label")
MODEL = Kind(model=LanguageModel, identity="name", links=["groups", "fallbacks"])
TOOL = Kind(
    model=Tool,
    identity="name",
    links=["groups"],
    references=["approvers"],
    inner=["http"],
)
DECLARED_TOOL = Kind(model=DeclaredTool, identity="kind", links=["groups"])
HTTP = Kind(model=HttpTool, identity="url", inner=["secret_headers"])
SOURCE = Kind(
    model=ContextSource,
    identity="name",
    references=["mcp_server"],
    inner=["secret_headers"],
)
PRESET = Kind(
    model=Preset,
    identity="name",
    links=["tools", "sources", "groups"],
    references=["language_model"],
)


# A table's value to a column's


class WrongValue(Exception):
    """Its text tells what to write instead."""


def value_from(column: models.Field[Any, Any], told: Any) -> Any:
    """What the column is to hold. Raises WrongValue."""
    types, words = _types_of(column)
    # `true` is an int to Python, and no number to anybody else.
    if not isinstance(told, types) or (isinstance(told, bool) and bool not in types):
        raise WrongValue(f"write {words}.")
    if isinstance(told, float) and not math.isfinite(told):
        raise WrongValue(f"write {words}, one that ends.")
    if isinstance(column, models.JSONField) and isinstance(told, str):
        try:
            return json.loads(told)
        except ValueError as exc:
            raise WrongValue("this text is no JSON.") from exc
    return told


def _types_of(column: models.Field[Any, Any]) -> tuple[tuple[type, ...], str]:
    """What TOML must give, and the words for that."""
    match column:
        case models.BooleanField():
            return (bool,), "true or false"
        case models.IntegerField():
            return (int,), "a whole number"
        case models.FloatField() | models.DecimalField():
            return (int, float), "a number"
        case models.JSONField():
            return (dict, list, str), "a table (or a text of JSON)"
        case _:
            return (str,), "a text"


# A row's values compared


def texts_of(row: models.Model, kind: Kind) -> dict[str, str]:
    """Each column as a text to compare; Python's own == takes true for 1."""
    return {
        name: getattr(row, name) and getattr(row, name).stored
        if isinstance(column, EncryptedTextField)
        else json.dumps(
            getattr(row, name), sort_keys=True, ensure_ascii=False, default=str
        )
        for name, column in kind.columns.items()
    }


def differences(
    before: Mapping[str, str], after: Mapping[str, str], kind: Kind
) -> Iterator[str]:
    for name, column in kind.columns.items():
        if before[name] == after[name]:
            continue
        if isinstance(column, EncryptedTextField):
            yield f"{name}: replaced"
        else:
            yield f"{name}: {_short(before[name])} → {_short(after[name])}"


def _short(text: str) -> str:
    if text == "null":
        return "none"
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


# A row to a table


def table_of(row: models.Model, kind: Kind) -> dict[str, Any]:
    """The row's columns that are not at their default, but for secrets."""
    table = {kind.identity: getattr(row, kind.identity)}
    for name, column in kind.columns.items():
        value = getattr(row, name)
        if isinstance(column, EncryptedTextField) or value == column.get_default():
            continue
        if value is None:
            # Its default is something else, and TOML has no null.
            raise ValueError(f"{kind.model.__name__}.{name} of {row} is empty.")
        table[name] = _as_toml(value)
    return table


def _as_toml(value: Any) -> Any:
    """TOML has no null; a value with one inside becomes a text of JSON."""
    return json.dumps(value, ensure_ascii=False) if _holds_null(value) else value


def _holds_null(value: Any) -> bool:
    match value:
        case dict():
            return any(map(_holds_null, value.values()))
        case list():
            return any(map(_holds_null, value))
        case _:
            return value is None
