"""Reader of OpenAPI documents, as JSON or YAML, that strangers may have written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from llm.wire.bounded_json import MAX_VALUES, TooManyValues, check_values
from tools.errors import InvalidDocument

MAX_DOCUMENT = 5 * 1024 * 1024  # bytes
MAX_DEPTH = 200  # levels


def read_document(text: str) -> dict[str, Any]:
    """Raises InvalidDocument."""
    try:
        document = _parse_json(text) if text.lstrip()[:1] == "{" else _parse_yaml(text)
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

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool",
        re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"),
        list("tTfF"),
    )
    try:
        _check_nodes(yaml.parse(text, Loader))
        return yaml.load(text, Loader)
    except yaml.YAMLError as exc:
        raise ValueError(str(exc).partition("\n")[0]) from exc


_YAML_1_1_TAGS = frozenset({"tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"})
