"""System check that loads the tools of all apps and reports invalid ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks

from tools.errors import InvalidTool
from tools.registry import python_tools


def check_tools(
    app_configs: Sequence[AppConfig] | None, **kwargs: Any
) -> list[checks.CheckMessage]:
    try:
        python_tools()
    except InvalidTool as exc:
        return [checks.Error(str(exc), hint="See docs/tools.md.", id="tools.E001")]
    return []
