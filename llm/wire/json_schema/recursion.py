"""An estimate of the work of validating a value against a recursive JSON Schema. Pure.

A validator follows every branch that applies to a value. A schema that refers to itself
in several branches for the same member multiplies the work with each level of the
value. This module counts how often schemas are applied to a value at each depth,
assuming that no branch is left early.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from llm.wire.json_pointer import is_index, steps_of

_MAX_LEVELS = 300  # of a value; deeper values are never accepted
_MAX_VISITS = 300_000  # of schemas, while they are counted: some 200 ms
_MANY = 10**9  # applications to one value; larger numbers count as this

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_SAME = ("not", "if", "then", "else")
_SAME_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_MAPS = ("dependentSchemas", "dependencies")
_ITEMS = ("items", "contains", "unevaluatedItems", "additionalItems")
_MEMBERS = ("additionalProperties", "unevaluatedProperties")

_Slots = Sequence[Sequence[int]]  # for each member or item, the schemas applied to it


def applications(root: Any) -> list[int]:
    """An upper bound on the schemas applied to a value, for each depth.

    Deeper values have the bound of the last depth. Raises ValueError for a schema that
    is too complex to count.
    """
    graph = _Graph(root)
    start = graph.add(root)
    graph.explore()
    counts = dict(graph.sizes)
    levels = [counts[start]]
    edges = 1 + sum(len(slot) for slots in graph.slots.values() for slot in slots)
    for _ in range(min(_MAX_LEVELS, _MAX_VISITS // edges + 10)):
        following = {
            key: min(_MANY, max((sum(counts[k] for k in s) for s in slots), default=0))
            for key, slots in graph.slots.items()
        }
        levels.append(following[start])
        if following == counts or levels[-1] in (0, _MANY):
            break
        counts = following
    return levels


def work(levels: Sequence[int], value: Any, most: int) -> int:
    """How often schemas are applied within `value`; stops counting beyond `most`."""
    total, waiting = 0, [(value, 0)]
    while waiting and total <= most:
        each, depth = waiting.pop()
        total += levels[min(depth, len(levels) - 1)]
        match each:
            case dict():
                waiting += [(v, depth + 1) for v in each.values()]
            case list():
                waiting += [(v, depth + 1) for v in each]
    return total


class _Graph:
    """Schemas by their `id()`; `root` keeps all of them alive."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._nodes: dict[int, Any] = {}
        self._waiting: list[int] = []
        self._visits = 0
        self._references = References(root)
        self.sizes: dict[int, int] = {}  # schemas applied to the same value
        self.slots: dict[int, _Slots] = {}

    def add(self, node: Any) -> int:
        key = id(node)
        if key not in self._nodes:
            self._nodes[key] = node
            self._waiting.append(key)
        return key

    def explore(self) -> None:
        while self._waiting:
            key = self._waiting.pop()
            same = list(self._same(self._nodes[key]))
            self.sizes[key] = len(same)
            self.slots[key] = [*self._members(same), *self._items(same)]

    def _visit(self, schemas: int) -> None:
        self._visits += schemas
        if self._visits > _MAX_VISITS:
            raise ValueError("it is too large: its references lead to too many schemas")

    def _same(self, start: Any) -> Iterator[dict[str, Any]]:
        """Yield all schemas that apply to the same value as `start`."""
        waiting: list[tuple[Any, tuple[int, ...]]] = [(start, ())]
        while waiting:
            node, path = waiting.pop()
            if not isinstance(node, dict) or id(node) in path:
                continue
            self._visit(1)
            yield node
            path = (*path, id(node))
            waiting += [(each, path) for each in self._references.targets(node)]
            waiting += [(each, path) for each in _inner(node)]

    def _members(self, same: list[dict[str, Any]]) -> Iterator[Sequence[int]]:
        named: dict[str, list[Any]] = {}
        others = [s for s in same if any(isinstance(s.get(n), dict) for n in _MEMBERS)]
        always: list[Any] = []  # a pattern may fit every name
        for schema in same:
            for key, each in _mapping(schema.get("properties")).items():
                named.setdefault(key, []).append(each)
            always += _mapping(schema.get("patternProperties")).values()
        for name in (*named, None):
            self._visit(len(others))
            unnamed = [
                schema[each]
                for schema in others
                if name is None or name not in _mapping(schema.get("properties"))
                for each in _MEMBERS
                if each in schema
            ]
            first = [] if name is None else named[name]
            yield self._schemas([*first, *unnamed, *always])

    def _items(self, same: list[dict[str, Any]]) -> Iterator[Sequence[int]]:
        first = [found for schema in same if (found := _first_items(schema))]
        always = [schema[each] for schema in same for each in _ITEMS if each in schema]
        for position in range(max(map(len, first), default=0) + 1):
            self._visit(len(first))
            own = [each[position] for each in first if position < len(each)]
            yield self._schemas([*own, *always])

    def _schemas(self, found: list[Any]) -> list[int]:
        self._visit(len(found))
        return [self.add(each) for each in found if isinstance(each, dict)]


class References:
    """The targets of the references within a schema."""

    def __init__(self, root: Any) -> None:
        self._root = root

    @cached_property
    def _anchors(self) -> dict[str, Any]:
        return dict(_anchors(self._root))

    def targets(self, node: Mapping[str, Any]) -> list[Any]:
        """The targets of the references of one schema."""
        found = (node.get(name) for name in _REFERENCES)
        return [self.target(ref) for ref in found if isinstance(ref, str)]

    def target(self, ref: str) -> Any:
        if ref.startswith("https://json-schema.org/"):
            return None
        found: Any = None
        _, _, fragment = ref.partition("#")
        if not ref.startswith("#/"):
            found = self._anchors.get(fragment or ref)
        if found is None and (not fragment or fragment.startswith("/")):
            found = at(self._root, f"#{fragment}")
        return self._root if found is None else found


def at(root: Any, ref: str) -> Any:
    """The target of a reference within the schema; None for any other reference."""
    found = root if ref.startswith("#") else None
    for step in steps_of(ref):
        match found:
            case dict():
                found = found.get(step)
            case list() if is_index(step, found):
                found = found[int(step)]
            case _:
                return None
    return found


def _anchors(node: Any) -> Iterator[tuple[str, Any]]:
    match node:
        case dict():
            for name in ("$anchor", "$dynamicAnchor", "$id"):
                if isinstance(anchor := node.get(name), str):
                    yield anchor, node
            for each in node.values():
                yield from _anchors(each)
        case list():
            for each in node:
                yield from _anchors(each)


def _inner(schema: dict[str, Any]) -> Iterator[Any]:
    for name in _SAME:
        yield schema.get(name)
    for name in _SAME_LISTS:
        if isinstance(branches := schema.get(name), list):
            yield from branches
    for name in _SAME_MAPS:
        yield from _mapping(schema.get(name)).values()


def _first_items(schema: dict[str, Any]) -> list[Any]:
    for name in ("prefixItems", "items"):  # a list of `items` is an older draft's
        if isinstance(first := schema.get(name), list):
            return first
    return []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
