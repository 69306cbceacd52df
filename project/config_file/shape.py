"""A file's tables taken apart; a value of the wrong shape is a problem told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from llm.encrypted import EncryptedTextField
from project.config_file.tables import Kind, WrongValue, value_from

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """`place` is always where a value stands, as in `providers[acme].keys[main]`."""

    problems: list[str]

    def tables(
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

    def check_fields(self, place: str, table: Table, known: Sequence[str]) -> None:
        for name in table:
            if name in known:
                continue
            near = get_close_matches(name, known, n=1)
            mend = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}."
            self.problems.append(f"{place}: unknown field {name!r}; {mend}")

    def values(self, place: str, table: Table, kind: Kind) -> Iterator[tuple[str, Any]]:
        """What each column is to hold; a secret that is not named stays."""
        for name, column in kind.columns.items():
            if name in table:
                try:
                    yield name, value_from(column, table[name])
                except WrongValue as exc:
                    self.problems.append(f"{place}.{name}: {exc}")
            elif name != kind.identity and not isinstance(column, EncryptedTextField):
                yield name, column.get_default()

    def text(self, place: str, told: Any) -> str | None:
        if isinstance(told, str):
            return told
        self.problems.append(f"{place}: write a text.")
        return None

    def names(self, place: str, told: Any) -> list[str]:
        """Each once; none where a problem is told."""
        if isinstance(told, list) and all(isinstance(each, str) for each in told):
            return list(dict.fromkeys(told))
        self.problems.append(f"{place}: write a list of names.")
        return []
