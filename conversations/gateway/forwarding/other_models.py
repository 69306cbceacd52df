"""The models that a body names besides `model`, which its host may call.

Sources: https://openrouter.ai/docs/features/model-routing,
https://platform.claude.com/docs/en/build-with-claude/refusals-and-fallback,
https://docs.litellm.ai/docs/proxy/reliability,
https://console.groq.com/docs/compound
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llm.errors import BadRequest

MAX_NAME = 300  # characters; no model's name is longer
MAX_NAMES = 50

#: A name, and the parameter that has it.
Named = tuple[str, str]

_FALLBACKS = ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks")
_COMPOUND = "compound_custom"  # Groq's
_DEPTH = 5  # lists and objects of `fallbacks` inside each other
#: Fields with models of which a host calls one instead of `model`.
FIELDS = frozenset({"models", _COMPOUND, *_FALLBACKS})


def find_alternatives(body: Mapping[str, Any]) -> Sequence[Named]:
    """The models that may answer instead of `model`. Raises BadRequest."""
    found: list[tuple[str, Any]] = []
    if (models := body.get("models")) is not None:
        if not isinstance(models, list) or len(models) > MAX_NAMES:
            text = f"models: expected a list of at most {MAX_NAMES} names."
            raise BadRequest(text, param="models")
        found += _of_list("models", models)
    for field in _FALLBACKS:
        found += _of_fallbacks(field, body.get(field))
    custom = body.get(_COMPOUND)
    roles = custom.get("models") if isinstance(custom, dict) else None
    if isinstance(roles, dict):
        found += [
            (f"{_COMPOUND}.models.{role}", name)
            for role, name in roles.items()
            if name is not None
        ]
    return _check(found)


def find_advisors(tools: Any) -> Sequence[Named]:
    """The models that Anthropic's tool asks for advice. Raises BadRequest."""
    entries = tools if isinstance(tools, list) else []
    return _check(
        [
            (f"tools[{index}].model", tool["model"])
            for index, tool in enumerate(entries)
            if isinstance(tool, dict)
            and str(tool.get("type", "")).startswith("advisor_")
            and "model" in tool
        ]
    )


def highest_output_limit(body: Mapping[str, Any]) -> tuple[str, Any] | None:
    """The entry of `fallbacks` with the highest `max_tokens`, or with one that is no
    number: its parameter and the value."""
    entries = body.get("fallbacks")
    found = [
        (f"fallbacks[{index}].max_tokens", entry["max_tokens"])
        for index, entry in enumerate(entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and entry.get("max_tokens") is not None
    ]
    return max(found, key=lambda each: _number(each[1]), default=None)


def _number(value: Any) -> float:
    return value if isinstance(value, int) else float("inf")


def _of_list(where: str, names: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for index, name in enumerate(names):
        yield f"{where}[{index}]", name


def _of_fallbacks(
    where: str, value: Any, depth: int = _DEPTH
) -> Iterator[tuple[str, Any]]:
    """Names, objects with a `model` (Anthropic), or objects with a list of names for
    each model (LiteLLM)."""
    if not depth:
        return
    if isinstance(value, str):  # "default": those that the host chooses
        yield where, value
    elif isinstance(value, dict) and "model" in value:
        yield f"{where}.model", value["model"]
    elif isinstance(value, dict):
        for model, names in value.items():
            yield from _of_fallbacks(f"{where}.{model[:64]}", names, depth - 1)
    elif isinstance(value, list):
        for index, entry in enumerate(value[: MAX_NAMES + 1]):
            yield from _of_fallbacks(f"{where}[{index}]", entry, depth - 1)


def _check(found: Sequence[tuple[str, Any]]) -> Sequence[Named]:
    if len(found) > MAX_NAMES:
        where = found[MAX_NAMES][0]
        text = f"{where}: there may be {MAX_NAMES} other models at most."
        raise BadRequest(text, param=where)
    for where, name in found:
        if not isinstance(name, str) or len(name) > MAX_NAME:
            text = f"{where}: expected a string of at most {MAX_NAME} characters."
            raise BadRequest(text, param=where)
    return found
