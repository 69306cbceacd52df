"""Links between rows. The file may name a row before the table that defines it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import models

from conversations.models.preset import ContextSource, Preset, PresetSource
from llm.models import LanguageModel
from project.config_file.findings import Findings
from tools.models import Tool

_FIELDS_OF_GROUPS = {"group", "groups", "approvers", "owner_group", "default_group"}


@dataclass(frozen=True, slots=True)
class Links:
    """Links that `save` creates after all rows are saved."""

    findings: Findings
    may_add_groups: bool = True
    _groups: dict[str, Group] = field(default_factory=dict)
    _fallbacks: dict[int, list[int]] = field(default_factory=dict)  # the stored ones
    _pending: list[Callable[[], None]] = field(default_factory=list)

    def add(self, path: str, row: Any, field: str, names: Sequence[str]) -> None:
        """Link `row` to exactly the rows of these names."""
        self._pending.append(partial(self._link, path, row, field, names))

    def add_one(
        self, path: str, row: Any, field: str, name: str, nothing: str = "none"
    ) -> None:
        """Link `row` to the row of this name, or to none if it is "".

        `nothing` is the word for none in the line about the change.
        """
        self._pending.append(partial(self._link_one, path, row, field, name, nothing))

    def save(self) -> None:
        self._fallbacks.update(LanguageModel.objects.all().fallback_keys())
        for link in self._pending:
            link()

    def _link(self, path: str, row: Any, field: str, names: Sequence[str]) -> None:
        rows = [self._find(f"{path}.{field}", field, each) for each in names]
        wanted = [each for each in rows if each is not None]
        if field == "sources":
            changed = _set_sources(row, wanted)
        elif field == "fallbacks":
            ordered = list(dict.fromkeys(wanted))
            is_same = self._fallbacks.get(row.pk, []) == [each.pk for each in ordered]
            changed = not is_same and row.set_fallbacks(ordered)
        else:
            links = getattr(row, field)
            if changed := set(wanted) != set(links.all()):
                links.set(wanted)
        if changed:
            self._record_change(f"{path}.{field}: now {', '.join(names) or 'none'}")

    def _link_one(
        self, path: str, row: Any, field: str, name: str, nothing: str
    ) -> None:
        wanted = self._find(f"{path}.{field}", field, name) if name else None
        if wanted != getattr(row, field):
            setattr(row, field, wanted)
            if field == "replacement" and not self._fits(f"{path}.{field}", row):
                return
            row.save(update_fields=[field])
            self._record_change(f"{path}.{field}: now {name or nothing}")

    def _fits(self, path: str, row: Any) -> bool:
        """Whether the row is valid with its new link; else there is a problem."""
        try:
            row.clean()
        except ValidationError as exc:
            self.findings.problems.append(f"{path}: {' '.join(exc.messages)}")
            return False
        return True

    def _find(self, path: str, field: str, name: str) -> models.Model | None:
        """Return None after a problem. A missing group is created."""
        if field in _FIELDS_OF_GROUPS:
            return self.ensure_group(name)
        noun, rows = _query_rows(field, name)
        if (row := rows.first()) is None:
            self.findings.problems.append(f"{path}: there is no {noun} {name!r}.")
        return row

    def ensure_group(self, name: str) -> Group:
        if name not in self._groups:
            self._groups[name], is_new = Group.objects.get_or_create(name=name)
            if is_new:
                self._record_new_group(name)
        return self._groups[name]

    def _record_new_group(self, name: str) -> None:
        """A problem takes the whole load back, and so this group."""
        if self.may_add_groups:
            self._record_change(f"group {name!r}: created without members")
        else:
            self.findings.problems.append(f"group {name!r}: you may not add groups.")

    def _record_change(self, change: str) -> None:
        self.findings.changes.append(change)


def _query_rows(field: str, name: str) -> tuple[str, models.QuerySet[Any]]:
    """A noun for the field's rows, and a query for the row of this name."""
    match field:
        case "fallbacks" | "replacement" | "language_model" | "allowed_models":
            provider, _, own = name.partition("/")
            rows = LanguageModel.objects.filter(provider__name=provider, name=own)
            return "model", rows
        case "tools":
            return "tool", Tool.objects.filter(name=name)
        case "sources":
            return "source", ContextSource.objects.filter(name=name)
        case _:
            raise ValueError(f"{field!r} is no field of links.")


def _set_sources(preset: Preset, wanted: Sequence[Any]) -> bool:
    """Set the sources in this order. Return False if nothing changes."""
    if [link.source for link in preset.links.select_related("source")] == wanted:
        return False
    preset.links.all().delete()
    PresetSource.objects.bulk_create(
        PresetSource(preset=preset, source=source, position=position)
        for position, source in enumerate(wanted)
    )
    return True
