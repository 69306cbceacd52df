"""Checks of the tables and values in the file against the expected types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from llm.db.encrypted_field import EncryptedTextField
from project.config_file.tables import Kind, WrongValue, convert_value

Table = Mapping[str, Any]
_MAX_PATH = 200  # characters


def find_nul(document: Table) -> Iterator[str]:
    """A problem for each text with a NUL, which PostgreSQL does not store."""
    values: list[tuple[str, Any]] = [("", document)]  # a stack: they nest deeply
    while values:
        path, value = values.pop()
        if isinstance(value, Mapping):
            inner = (
                (f"{path}.{name}"[:_MAX_PATH], each) for name, each in value.items()
            )
            values += [*inner, *((path, name) for name in value)]
        elif isinstance(value, list):
            values += ((f"{path}[{n}]", each) for n, each in enumerate(value, 1))
        elif isinstance(value, str) and "\0" in value:
            yield f"{path.strip('.')}: this has a NUL, which cannot be stored."


@dataclass(frozen=True, slots=True)
class Shape:
    """Readers that add a problem for each invalid value.

    `path` is the location of a value, as in `providers[acme].keys[main]`.
    """

    problems: list[str]

    def tables(
        self, table: Table, name: str, kind: Kind, parent: str = ""
    ) -> Iterator[tuple[str, Table]]:
        """Iterate over the valid tables in the field `name`, with their paths."""
        path = f"{parent}.{name}" if parent else name
        tables = table.get(name, [])
        if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
            self.problems.append(f"{path}: write a list of tables.")
            return
        seen = set()
        for number, each in enumerate(tables, 1):
            identity = kind.name_of(each)
            if not isinstance(identity, str) or not identity:
                self.problems.append(
                    f"{path}[{number}].{kind.identity}: write a string."
                )
            elif identity in seen:
                self.problems.append(f"{path}[{identity}]: this name occurs twice.")
            else:
                seen.add(identity)
                yield f"{path}[{identity}]", each

    def check_fields(self, path: str, table: Table, known: Sequence[str]) -> None:
        for name in table:
            if name in known:
                continue
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}."
            self.problems.append(f"{path}: unknown field {name!r}; {hint}")

    def values(self, path: str, table: Table, kind: Kind) -> Iterator[tuple[str, Any]]:
        """Names and new values of the columns. An omitted secret is not changed."""
        for name, column in kind.columns.items():
            if name in table:
                try:
                    yield name, convert_value(column, table[name])
                except WrongValue as exc:
                    self.problems.append(f"{path}.{name}: {exc}")
            elif name != kind.identity and not isinstance(column, EncryptedTextField):
                yield name, column.get_default()

    def text(self, path: str, value: Any) -> str | None:
        """The text, or None after a problem."""
        if isinstance(value, str):
            return value
        self.problems.append(f"{path}: write a string.")
        return None

    def filled_text(self, path: str, value: Any) -> str:
        """The text; "" after a problem."""
        if value == "" or not isinstance(value, str):
            self.problems.append(f"{path}: write a string.")
            return ""
        return value

    def names(self, path: str, value: Any) -> list[str]:
        """The names without duplicates; [] after a problem."""
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return list(dict.fromkeys(value))
        self.problems.append(f"{path}: write a list of names.")
        return []
