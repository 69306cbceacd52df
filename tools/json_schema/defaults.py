"""The arguments of a call with the defaults of what the model left out. Pure.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llm.wire.json_schema.recursion import at

_MAX_DEPTH = 100  # of values and branches
_MAX_STEPS = 50_000  # schemas and values that one call visits: some 0.1 s
_BRANCHES = ("anyOf", "oneOf")
_CONDITIONS = ("then", "else")


class UnclearDefaults(ValueError):
    """Defaults depend on a branch of the schema, or it is too complex to fill them."""


def fill_defaults(
    parameters: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments with the `default` of each property that is not among them, at each
    level, also in those defaults. Raises UnclearDefaults."""
    filled: dict[str, Any] = _Defaults(parameters).fill([parameters], arguments)
    return filled


class _Defaults:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps = 0
        self._depth = 0

    def fill(self, schemas: Sequence[Any], value: Any) -> Any:
        """`value` with the defaults of all `schemas`, each of which applies to it."""
        if not isinstance(value, Mapping | list):
            return value
        if not (parts := self._include(schemas)):
            return value
        if self._depth == _MAX_DEPTH:
            raise UnclearDefaults("the arguments are nested too deeply")
        self._depth += 1
        filled = self._fill(parts, value)
        self._depth -= 1
        return filled

    def _fill(self, parts: Sequence[Mapping[str, Any]], value: Any) -> Any:
        self._count(len(value))
        if isinstance(value, list):
            items = [part["items"] for part in parts if "items" in part]
            filled: Any = [self.fill(items, each) for each in value]
        else:
            filled = self._fill_members(parts, value)
        for branch in _list_branches(parts, filled):
            if self.fill([branch], filled) != filled:
                raise UnclearDefaults("a branch has defaults of its own")
        return filled

    def _fill_members(
        self, parts: Sequence[Mapping[str, Any]], value: Mapping[str, Any]
    ) -> dict[str, Any]:
        members: dict[str, list[Any]] = {}
        for part in parts:
            for name, schema in _members(part, "properties"):
                members.setdefault(name, []).append(schema)
        self._count(len(members))
        filled = {n: self.fill(members.get(n, []), each) for n, each in value.items()}
        for name in members.keys() - value.keys():
            included = self._include(members[name])
            defaults = [each["default"] for each in included if "default" in each]
            if defaults:
                filled[name] = self.fill(included, defaults[0])
        return filled

    def _include(self, schemas: Sequence[Any]) -> list[Mapping[str, Any]]:
        """The schemas and those that they include by `$ref` and `allOf`."""
        parts: dict[int, Mapping[str, Any]] = {}
        waiting = list(schemas)
        for schema in waiting:  # which grows
            if not isinstance(schema, dict) or id(schema) in parts:
                continue
            self._count(1)
            parts[id(schema)] = schema
            if isinstance(ref := schema.get("$ref"), str):
                waiting.append(at(self._root, ref))
            if isinstance(included := schema.get("allOf"), list):
                waiting += included
        return list(parts.values())

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise UnclearDefaults("the schema is too complex")


def _list_branches(parts: Sequence[Mapping[str, Any]], value: Any) -> Iterator[Any]:
    """The schemas that apply to `value` or not, depending on what it contains."""
    for part in parts:
        for keyword in _BRANCHES:
            if isinstance(branches := part.get(keyword), list):
                yield from branches
        yield from (part[keyword] for keyword in _CONDITIONS if keyword in part)
        for name, schema in _members(part, "dependentSchemas"):
            if name in value:
                yield schema


def _members(part: Mapping[str, Any], keyword: str) -> Iterator[tuple[str, Any]]:
    if isinstance(found := part.get(keyword), dict):
        yield from found.items()
