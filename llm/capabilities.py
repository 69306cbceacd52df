"""The capabilities of a model: one typed object, merged from several layers.

Later layers override earlier ones, field by field:

1. the host's models in general (`hosts` in `data/models.json`),
2. the model family, recognised by name (`models` in that file, in order),
3. limits of the wire format (`wires` in that file),
4. what a probe of this model found (`llm.probing`),
5. what the staff entered for this model.

None means unknown. An unknown capability is never refused here: the provider decides.
Nothing is fetched and no row is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from django.utils.translation import gettext as _

from llm.wire.hosted_tools import NAMES as HOSTED_TOOLS

DATA = Path(__file__).parent / "data" / "models.json"

#: All known efforts, lowest first. "default" is used by Qwen on Groq.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "default")

Sampling = Literal["always", "without_reasoning", "never"]
_SAMPLING_VALUES = ("always", "without_reasoning", "never")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a model accepts and supports; None means unknown."""

    tools: bool | None = None
    parallel_tools: bool | None = None  # several calls in one answer
    forced_tools: bool | None = None  # `tool_choice` required, or one tool
    forced_while_reasoning: bool | None = None
    hosted_tools: tuple[str, ...] | None = None  # the provider's own; () for none
    vision: bool | None = None  # images
    files: bool | None = None  # PDF and the like; plain text goes everywhere
    json_mode: bool | None = None
    json_schema: bool | None = None
    reasoning: bool | None = None
    # The legal values; () if the parameter is not accepted.
    efforts: tuple[str, ...] | None = None
    # Used if none is requested; "none" does not reason.
    default_effort: str | None = None
    sampling: Sampling | None = None  # temperature, top_p, penalties, logprobs
    stop: bool | None = None
    seed: bool | None = None
    penalties: bool | None = None
    logprobs: bool | None = None
    verbosity: bool | None = None
    prefill: bool | None = None  # continues an answer that has begun
    background_resume: bool | None = None  # stores responses; only staff enable it
    max_temperature: float | None = None
    context_window: int | None = None  # tokens of prompt and answer together
    max_output_tokens: int | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Parse the output of `to_dict`; invalid values are ignored."""
        return cls(**_read_fields(data))

    def to_dict(self) -> dict[str, Any]:
        """The known capabilities, as JSON."""
        values = ((name, getattr(self, name)) for name in FIELD_NAMES)
        known = {name: value for name, value in values if value is not None}
        lists = {name: known[name] for name in _LIST_VALUES if name in known}
        return {**known, **{name: list(value) for name, value in lists.items()}}

    def reasons(self, effort: str | None) -> bool | None:
        """Whether the model reasons at `effort`, or at its default effort."""
        if self.reasoning is False:
            return False
        effort = effort or self.default_effort
        return None if effort is None else effort != "none"

    def samples(self, effort: str | None) -> bool:
        """Whether the model may support temperature and the like at `effort`."""
        if self.sampling == "without_reasoning":
            return not self.reasons(effort)
        return self.sampling != "never"


#: Those of a model that nothing is known about.
UNKNOWN = Capabilities()
#: The fields that staff can override.
FIELD_NAMES = tuple(field.name for field in fields(Capabilities))


def capabilities_of(
    kind: str,
    model_name: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    wire: str = "",
) -> Capabilities:
    """The capabilities of this model at a provider of this kind, in this wire format.

    `overrides` are the values entered by staff; null resets a field to unknown.
    """
    return Capabilities(
        **{**_load_bundled(kind, model_name, wire), **_read_fields(overrides)}
    )


def problems(overrides: Any) -> list[str]:
    """Validation errors of the overrides entered by staff, a sentence each."""
    if not isinstance(overrides, Mapping):
        return [_("Capabilities must be an object of names and values.")]
    found = []
    for name, value in overrides.items():
        if name not in FIELD_NAMES:
            values = {"name": repr(name), "names": ", ".join(FIELD_NAMES)}
            found.append(_("%(name)s is unknown; use %(names)s.") % values)
        elif value is not None and _read_value(name, value) is None:
            values = {
                "name": repr(name),
                "value": repr(value),
                "instead": _describe_valid(name),
            }
            found.append(_("%(name)s cannot be %(value)s; %(instead)s.") % values)
    return found


def bundled_date() -> str:
    """The day of the bundled data, as YYYY-MM-DD."""
    return _load_data().as_of


# One value

#: Fields that have columns of their own in a model's row.
LIMITS = ("context_window", "max_output_tokens")
#: The legal members of a list, in the order in which they are stored.
_LIST_VALUES: Mapping[str, Sequence[str]] = {
    "efforts": EFFORTS,
    "hosted_tools": HOSTED_TOOLS,
}


def _read_fields(data: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields with a valid value or null."""
    fields_read = {
        name: _read_value(name, value)
        for name, value in (data or {}).items()
        if name in FIELD_NAMES
    }
    return {
        name: value
        for name, value in fields_read.items()
        if value is not None or (data or {})[name] is None
    }


def _read_value(name: str, value: Any) -> Any:
    """`value` converted to the type of the field; None if it is invalid."""
    match name:
        case "efforts" | "hosted_tools":
            return _read_list(_LIST_VALUES[name], value)
        case "default_effort":
            return value if value in EFFORTS else None
        case "sampling":
            if isinstance(value, bool):
                return "always" if value else "never"
            return value if value in _SAMPLING_VALUES else None
        case "max_temperature":
            return value if _is_number(value) else None
        case "context_window" | "max_output_tokens":
            return value if _is_number(value) and isinstance(value, int) else None
    return value if isinstance(value, bool) else None


def _read_list(known: Sequence[str], value: Any) -> tuple[str, ...] | None:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    if not all(each in known for each in value):
        return None
    return tuple(sorted(set(value), key=known.index))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _describe_valid(name: str) -> str:
    match name:
        case "efforts" | "hosted_tools":
            names = ", ".join(_LIST_VALUES[name])
            return _("write a list of %(names)s") % {"names": names}
        case "default_effort":
            return _("use one of %(names)s") % {"names": ", ".join(EFFORTS)}
        case "sampling":
            return _("use one of %(names)s") % {"names": ", ".join(_SAMPLING_VALUES)}
        case "max_temperature":
            return _("use a number above 0")
    if name in LIMITS:
        return _("use a whole number above 0")
    return _("use true or false")


# The bundled data


@dataclass(frozen=True, slots=True)
class _Rule:
    match: re.Pattern[str]
    kinds: Sequence[str]
    wires: Sequence[re.Pattern[str]]
    says: Mapping[str, Any]

    def matches(self, kind: str, bare_name: str, wire: str) -> bool:
        if self.kinds and kind not in self.kinds:
            return False
        if self.wires and not any(w.fullmatch(wire) for w in self.wires):
            return False
        return self.match.match(bare_name) is not None


@dataclass(frozen=True, slots=True)
class _Data:
    hosts: Mapping[str, Mapping[str, Any]]
    rules: Sequence[_Rule]
    wires: Mapping[re.Pattern[str], Mapping[str, Any]]
    as_of: str


@lru_cache(maxsize=4096)
def _load_bundled(kind: str, model_name: str, wire: str) -> Mapping[str, Any]:
    data, bare_name = _load_data(), _strip_prefix(model_name)
    known = dict(data.hosts.get(kind, {}))
    for rule in data.rules:
        if rule.matches(kind, bare_name, wire):
            known |= rule.says
    for pattern, says in data.wires.items():
        if pattern.fullmatch(wire):
            known |= says
    return known


def _strip_prefix(model_name: str) -> str:
    """The name without the path that hosts put before the name, and without "ft:"."""
    return model_name.lower().rpartition("/")[2].removeprefix("ft:")


@cache
def _load_data() -> _Data:
    """Raises KeyError or ValueError if the file has another format than README.md."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    return _Data(
        hosts={kind: _read_strict(says) for kind, says in data["hosts"].items()},
        rules=[
            _Rule(
                re.compile(rule["match"]),
                rule.get("kinds", ()),
                [re.compile(wire) for wire in rule.get("wires", ())],
                _read_strict(rule["says"]),
            )
            for rule in data["models"]
        ],
        wires={re.compile(w): _read_strict(says) for w, says in data["wires"].items()},
        as_of=data["as_of"],
    )


def _read_strict(says: Mapping[str, Any]) -> Mapping[str, Any]:
    if errors := problems(says):
        raise ValueError(" ".join(errors))
    return _read_fields(says)
