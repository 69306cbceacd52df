"""System check that loads the context functions of all apps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks

from conversations.context import InvalidSource, source_functions


def check_context_sources(
    app_configs: Sequence[AppConfig] | None, **kwargs: Any
) -> list[checks.CheckMessage]:
    try:
        source_functions()
    except InvalidSource as exc:
        hint = "See docs/context.md."
        return [checks.Error(str(exc), hint=hint, id="conversations.E001")]
    return []
