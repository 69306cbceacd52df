"""Rows that a load finds by their names, read at once for all tables of a kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import models

from project.config_file.tables import KEY, PROVIDER, Kind

Owner = Mapping[str, models.Model]
_ORDERED = {"fallbacks", "sources"}  # links with an order, which no prefetch has


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A query for each of thousands of tables would take too long."""

    _read_kinds: set[Kind] = field(default_factory=set)
    _rows: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)

    def find(self, kind: Kind, name: Any, owner: Owner) -> Any:
        """The row of this name, or a new one."""
        row = self._named(kind, owner).get(name)
        if row is None:
            return kind.model(**{kind.identity: name, **owner})
        return _set_owner(row, owner)

    def list_all(self, kind: Kind, owner: Owner) -> list[Any]:
        return [_set_owner(row, owner) for row in self._named(kind, owner).values()]

    def note_new(self, kind: Kind, row: models.Model) -> None:
        """A provider that the load created has no keys yet."""
        if kind is PROVIDER:
            self._rows[KEY, row.pk] = {}

    def _named(self, kind: Kind, owner: Owner) -> dict[str, Any]:
        key = (kind, *(row.pk for row in owner.values()))
        if kind is KEY and key not in self._rows:
            # Not before the provider is saved, which may bind its keys anew.
            self._add(kind, owner, kind.model._default_manager.filter(**owner))
        elif kind is not KEY and kind not in self._read_kinds:
            self._read_kinds.add(kind)
            self._add(kind, owner, kind.model._default_manager.all())
        return self._rows.setdefault(key, {})

    def _add(self, kind: Kind, owner: Owner, stored: models.QuerySet[Any]) -> None:
        links = [name for name in kind.links if name not in _ORDERED]
        for row in stored.prefetch_related(*links):
            key = (kind, *(getattr(row, f"{name}_id") for name in owner))
            self._rows.setdefault(key, {})[getattr(row, kind.identity)] = row


def _set_owner(row: Any, owner: Owner) -> Any:
    """Without its owner the row would read it by a query."""
    for relation, value in owner.items():
        setattr(row, relation, value)
    return row
