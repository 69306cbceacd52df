"""What a probe finds: one finding for each feature, in words that can be translated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

Feature = Literal[
    "text",
    "stream",
    "usage",
    "tool",
    "parallel_tools",
    "json_schema",
    "image",
    "reasoning_replay",
    "cancel",
]
#: "unclear": asked, but the reply proves neither. "untested": not asked.
Outcome = Literal["works", "fails", "unclear", "untested"]

#: In the order in which they are tried.
FEATURES: Mapping[Feature, Any] = {
    "text": gettext_lazy("Text"),
    "stream": gettext_lazy("Stream"),
    "usage": gettext_lazy("Usage"),
    "tool": gettext_lazy("Tool"),
    "parallel_tools": gettext_lazy("Parallel tools"),
    "json_schema": gettext_lazy("JSON schema"),
    "image": gettext_lazy("Image"),
    "reasoning_replay": gettext_lazy("Reasoning sent back"),
    "cancel": gettext_lazy("Cancel"),
}
OUTCOMES: Mapping[Outcome, Any] = {
    "works": gettext_lazy("works"),
    "fails": gettext_lazy("does not work"),
    "unclear": gettext_lazy("unclear"),
    "untested": gettext_lazy("not tested"),
}
OUTDATED = gettext_lazy(
    "The provider or the model's name has changed since this probe: it asked another"
    " address, or in another way. Its findings do not count; probe again."
)
#: The capability that a feature decides. Text, stream, usage and cancel have none.
CAPABILITIES: Mapping[Feature, str] = {
    "tool": "tools",
    "parallel_tools": "parallel_tools",
    "json_schema": "json_schema",
    "image": "vision",
}


@dataclass(frozen=True, slots=True)
class Finding:
    feature: Feature
    outcome: Outcome
    message: str  # untranslated, with names of `values`
    values: Mapping[str, Any] = field(default_factory=dict)
    capabilities: Mapping[str, bool] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return str(FEATURES[self.feature])

    @property
    def outcome_label(self) -> str:
        return str(OUTCOMES[self.outcome])

    @property
    def text(self) -> str:
        return _(self.message) % self.values if self.message else ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def works(feature: Feature, message: str, **values: Any) -> Finding:
    return Finding(feature, "works", message, values, _flag(feature, True))


def fails(feature: Feature, message: str, **values: Any) -> Finding:
    return Finding(feature, "fails", message, values, _flag(feature, False))


def unclear(feature: Feature, message: str, **values: Any) -> Finding:
    return Finding(feature, "unclear", message, values)


def untested(feature: Feature, message: str, **values: Any) -> Finding:
    return Finding(feature, "untested", message, values)


def _flag(feature: Feature, value: bool) -> dict[str, bool]:
    return {CAPABILITIES[feature]: value} if feature in CAPABILITIES else {}


# Texts that several features share

NO_TEXT = gettext_noop("The answer had no text.")
CUT = gettext_noop("The answer used up its tokens before its end.")
NOT_REACHED = gettext_noop("Text does not work, so nothing else was tried.")
NO_KEY = gettext_noop("The host accepted no key, so nothing else was tried.")
TIME_IS_UP = gettext_noop("The probe ran out of time.")
