"""Tables of the configuration file: their models, fields and conversion of values.

A table has a field for each editable column of its model, so a new column needs no
change here. `dump` omits a column at its default.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from django.db import models

from conversations.models.limits.usage_limit import UsageLimit
from conversations.models.preset import ContextSource, Preset
from llm.db.columns import list_columns
from llm.db.encrypted_field import EncryptedTextField
from llm.models import ApiKey, LanguageModel, ModelPool, Provider
from project.accounts.models import IdentityProvider
from tools.models import DeclaredTool, HttpTool, Tool

#: Editable, but state instead of configuration.
_STATE_COLUMNS = {"rest_until", "expires_at", "drains_at"}
_MAX_LENGTH = 60  # characters of a value in a line about a change


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """A kind of table, with the names of its fields that are no columns.

    A field of `links` is a list of other rows' names, one of `references` is the name
    of one row, one of `inner` contains tables.
    """

    model: type[models.Model]
    identity: str  # the field whose value is unique among the owner's rows
    links: Sequence[str] = ()
    references: Sequence[str] = ()
    inner: Sequence[str] = ()

    @property
    def columns(self) -> dict[str, models.Field[Any, Any]]:
        return _columns_of(self)

    @property
    def fields(self) -> list[str]:
        return [*self.columns, *self.references, *self.links, *self.inner]

    def name_of(self, table: Mapping[str, Any]) -> Any:
        """Value of the identity field, of any type."""
        return table.get(self.identity, self.columns[self.identity].get_default())


@cache
def _columns_of(kind: Kind) -> dict[str, models.Field[Any, Any]]:
    return {
        column.name: column
        for column in list_columns(kind.model)
        if (column.editable or column.name == kind.identity)
        and not column.is_relation
        and not column.primary_key
        and column.name not in _STATE_COLUMNS
    }


PROVIDER = Kind(model=Provider, identity="name", inner=["keys", "models"])
KEY = Kind(model=ApiKey, identity="label", references=["group"])
MODEL = Kind(
    model=LanguageModel,
    identity="name",
    links=["groups", "fallbacks"],
    references=["replacement"],
    inner=["dated_prices"],
)
MODEL_POOL = Kind(model=ModelPool, identity="name", inner=["hosts"])
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
    links=["groups"],
    references=["mcp_server"],
    inner=["secret_headers"],
)
PRESET = Kind(
    model=Preset,
    identity="name",
    links=["tools", "sources", "groups", "allowed_models"],
    references=["language_model", "owner_group"],
)
#: Found by its subject, model and period; see `usage_limits.py`.
USAGE_LIMIT = Kind(
    model=UsageLimit, identity="period", references=["user", "group", "model"]
)
IDENTITY_PROVIDER = Kind(
    model=IdentityProvider,
    identity="slug",
    references=["default_group"],
    inner=["group_mappings"],
)


# Values of the file to values of columns


class WrongValue(Exception):
    """A value of the wrong type; the text says what to write instead."""


def convert_value(column: models.Field[Any, Any], value: Any) -> Any:
    """Convert a value of the file to a value of the column. Raises WrongValue."""
    types, words = _toml_types(column)
    # In Python, `bool` is a subclass of `int`.
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise WrongValue(f"write {words}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise WrongValue(f"write {words} that is finite.")
    if isinstance(column, models.JSONField):
        return _to_json(value)
    if isinstance(column, models.DateTimeField):
        return _to_moment(value)
    return Decimal(str(value)) if isinstance(column, models.DecimalField) else value


def _to_json(value: Any) -> Any:
    """A string is parsed as JSON. Raises WrongValue for values that no database stores:
    times, numbers that are not finite, halves of surrogate pairs."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as exc:
            raise WrongValue("this text is not JSON.") from exc
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise WrongValue("this has a value that JSON does not have.") from exc
    return value


def _to_moment(value: Any) -> datetime:
    """In UTC, as the database returns it, so that equal moments are equal texts."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as exc:
            raise WrongValue("write a date and time, as 2027-01-31T00:00:00Z.") from exc
    if value.tzinfo is None:
        raise WrongValue("write the time zone too, as in 2027-01-31T00:00:00Z.")
    try:
        moment: datetime = value.astimezone(UTC)
    except OverflowError as exc:
        raise WrongValue("this moment is too far away.") from exc
    return moment


def _toml_types(column: models.Field[Any, Any]) -> tuple[tuple[type, ...], str]:
    """Types of a TOML value for the column, and their description."""
    match column:
        case models.BooleanField():
            return (bool,), "true or false"
        case models.IntegerField():
            return (int,), "a whole number"
        case models.FloatField() | models.DecimalField():
            return (int, float), "a number"
        case models.DateTimeField():
            return (datetime, str), "a date and time"
        case models.JSONField():
            return (dict, list, str), "a table (or JSON as a string)"
        case _:
            return (str,), "a text"


# Comparison of a row's values


def column_texts(row: models.Model, kind: Kind) -> dict[str, str]:
    """Each column's value as JSON, to compare; in Python True equals 1."""
    return {
        name: getattr(row, name) and getattr(row, name).stored
        if isinstance(column, EncryptedTextField)
        else json.dumps(
            getattr(row, name), sort_keys=True, ensure_ascii=False, default=_to_text
        )
        for name, column in kind.columns.items()
    }


def _to_text(value: Any) -> str:
    """The same for equal numbers."""
    return f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)


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
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"


# Rows to tables


def build_table(row: models.Model, kind: Kind) -> dict[str, Any]:
    """Return the columns that are not at their default, without secrets."""
    table = {kind.identity: getattr(row, kind.identity)}
    for name, column in kind.columns.items():
        value = getattr(row, name)
        if isinstance(column, EncryptedTextField) or value == column.get_default():
            continue
        if value is None:
            # TOML has no null, and omitting the field would mean the default.
            raise ValueError(f"{kind.model.__name__}.{name} of {row} is empty.")
        table[name] = _as_toml(value)
    return table


def _as_toml(value: Any) -> Any:
    """Convert a value that contains null, which TOML lacks, to a text of JSON."""
    return json.dumps(value, ensure_ascii=False) if _contains_null(value) else value


def _contains_null(value: Any) -> bool:
    match value:
        case dict():
            return any(map(_contains_null, value.values()))
        case list():
            return any(map(_contains_null, value))
        case _:
            return value is None
