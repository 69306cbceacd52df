"""Reader of OpenAPI documents, as JSON or YAML, that strangers may have written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from llm.wire.bounded_json import MAX_VALUES, TooManyValues, check_values
from llm.wire.sanitize import sanitize_json
from tools.errors import InvalidDocument

MAX_DOCUMENT = 5 * 1024 * 1024  # bytes
MAX_DEPTH = 200  # levels


def read_document(text: str) -> dict[str, Any]:
    """Raises InvalidDocument."""
    try:
        document = _parse_json(text) if text.lstrip()[:1] == "{" else _parse_yaml(text)
        # Half a surrogate pair cannot be shown, and PostgreSQL stores no NUL.
        document = sanitize_json(document)
    except (ValueError, RecursionError) as exc:
        raise InvalidDocument(f"The document cannot be read: {exc}.") from exc
    if not isinstance(document, dict):
        raise InvalidDocument("This is not an OpenAPI document.")
    if "swagger" in document:
        raise InvalidDocument("This is Swagger 2; convert it to OpenAPI 3 first.")
    if not str(document.get("openapi", "")).startswith("3."):
        raise InvalidDocument(
            "This is not an OpenAPI 3 document: 'openapi' is missing."
        )
    if not isinstance(document.get("paths"), dict):
        raise InvalidDocument("The document has no paths.")
    return document


def _parse_json(text: str) -> Any:
    """Raises ValueError."""
    try:
        check_values(text.encode(errors="replace"))
    except TooManyValues as exc:
        raise ValueError(exc.msg) from exc
    return json.loads(text)


def _check_nodes(events: Iterable[Any]) -> None:
    """Raises ValueError for too many levels or values. The library's C loader recurses
    at each level: a million levels crash the process."""
    from yaml.events import CollectionEndEvent, CollectionStartEvent

    depth = 0
    for number, event in enumerate(events):
        if isinstance(event, CollectionStartEvent):
            depth += 1
        elif isinstance(event, CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        if number > MAX_VALUES:
            raise ValueError(f"it has more than {MAX_VALUES:,} values")


def _check_size(document: Any) -> None:
    """Raises ValueError if there are too many values once each alias is written out: a
    line may double the document."""
    if _size(document, {}) > MAX_VALUES:
        raise ValueError(f"it has more than {MAX_VALUES:,} values")


def _size(value: Any, sizes: dict[int, int]) -> int:
    if not isinstance(value, list | dict):
        return 1
    key = id(value)
    if key not in sizes:
        sizes[key] = MAX_VALUES + 1  # while it is counted: here it contains itself
        inner = value.values() if isinstance(value, dict) else value
        sizes[key] = 1 + sum(_size(each, sizes) for each in inner)
    return sizes[key]


def _parse_yaml(text: str) -> Any:
    """Raises ValueError."""
    try:
        import yaml
    except ImportError as exc:
        raise ValueError("YAML is not installed here, write JSON") from exc

    fastest: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(fastest):
        """Loader with the types of YAML 1.2: dates and "on" are texts."""

        yaml_implicit_resolvers = {
            first: [
                (tag, pattern) for tag, pattern in rules if tag not in _YAML_1_1_TAGS
            ]
            for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
        merged = 0

        def flatten_mapping(self, node: Any) -> None:
            """Merge keys (`<<`) copy the members of mappings that copy others."""
            super().flatten_mapping(node)
            self.merged += len(node.value)
            if self.merged > 2 * MAX_VALUES:
                raise ValueError(f"it has more than {MAX_VALUES:,} values")

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool",
        re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"),
        list("tTfF"),
    )
    try:
        _check_nodes(yaml.parse(text, Loader))
        document = yaml.load(text, Loader)
        _check_size(document)
        return document
    except yaml.YAMLError as exc:
        raise ValueError(str(exc).partition("\n")[0]) from exc


_YAML_1_1_TAGS = frozenset({"tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"})
