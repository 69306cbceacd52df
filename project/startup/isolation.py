"""Tells at the start which isolation isolated tools have on this system."""

from __future__ import annotations

import logging

from tools.errors import InvalidTool
from tools.python import sandbox
from tools.python.isolated_call import IsolatedCall
from tools.registry import python_tools

logger = logging.getLogger(__name__)


def log_isolation() -> None:
    """Logs nothing if no tool is isolated."""
    try:
        found = python_tools().values()
    except InvalidTool:  # a check of Django reports it
        return
    names = sorted(each.name for each in found if isinstance(each.call, IsolatedCall))
    if not names:
        return
    level = logging.INFO if sandbox.is_available() else logging.WARNING
    logger.log(level, "isolated tools (%s): %s", ", ".join(names), sandbox.describe())
