"""Links between rows: the file names other rows, and any of them may come later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.contrib.auth.models import Group
from django.db import models

from conversations.presets import ContextSource, Preset, PresetSource
from llm.models import LanguageModel
from project.config_file.findings import Findings
from tools.models import Tool


@dataclass(frozen=True, slots=True)
class Links:
    """They are made last, when every row is there that they may name."""

    findings: Findings
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    def add(self, place: str, row: Any, field: str, names: Sequence[str]) -> None:
        """The rows of these names, and no others."""
        self._waiting.append(partial(self._link, place, row, field, names))

    def add_one(
        self, place: str, row: Any, field: str, name: str, nothing: str = "none"
    ) -> None:
        """The row of this name, or none; `nothing` is the word for that."""
        self._waiting.append(partial(self._link_one, place, row, field, name, nothing))

    def make(self) -> None:
        for link in self._waiting:
            link()

    def _link(self, place: str, row: Any, field: str, names: Sequence[str]) -> None:
        found = [self._find(f"{place}.{field}", field, each) for each in names]
        wanted = [each for each in found if each is not None]
        if field == "sources":
            changed = _set_sources(row, wanted)
        else:
            links = getattr(row, field)
            if changed := set(wanted) != set(links.all()):
                links.set(wanted)
        if changed:
            self._tell(f"{place}.{field}: now {', '.join(names) or 'none'}")

    def _link_one(
        self, place: str, row: Any, field: str, name: str, nothing: str
    ) -> None:
        wanted = self._find(f"{place}.{field}", field, name) if name else None
        if wanted != getattr(row, field):
            setattr(row, field, wanted)
            row.save(update_fields=[field])
            self._tell(f"{place}.{field}: now {name or nothing}")

    def _find(self, place: str, field: str, name: str) -> models.Model | None:
        """None where a problem is told; a group that is not there is made."""
        if field in ("groups", "approvers"):
            return self._group(name)
        what, rows = _rows_named(field, name)
        if (row := rows.first()) is None:
            self.findings.problems.append(f"{place}: there is no {what} {name!r}.")
        return row

    def _group(self, name: str) -> Group:
        group, is_new = Group.objects.get_or_create(name=name)
        if is_new:
            self._tell(f"group {name!r}: created, with nobody in it")
        return group

    def _tell(self, change: str) -> None:
        self.findings.changes.append(change)


def _rows_named(field: str, name: str) -> tuple[str, models.QuerySet[Any]]:
    """What the field's names stand for, in a word, and the row of this name."""
    match field:
        case "fallbacks" | "language_model":
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
    """In this order. False where they are so already."""
    if [link.source for link in preset.links.select_related("source")] == wanted:
        return False
    preset.links.all().delete()
    PresetSource.objects.bulk_create(
        PresetSource(preset=preset, source=source, position=position)
        for position, source in enumerate(wanted)
    )
    return True
