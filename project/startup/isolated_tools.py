"""Lists the isolated tools, and logs whether they run in a sandbox."""

from __future__ import annotations

import logging

from tools.errors import InvalidTool
from tools.python import sandbox
from tools.python.isolated_call import IsolatedCall
from tools.registry import python_tools

logger = logging.getLogger(__name__)


def list_isolated_tools() -> list[str]:
    """Names of the isolated tools, sorted."""
    try:
        found = python_tools().values()
    except InvalidTool:  # a check of Django reports it
        return []
    return sorted(each.name for each in found if isinstance(each.call, IsolatedCall))


def log_isolation() -> None:
    """Logs nothing if no tool is isolated."""
    if not (names := list_isolated_tools()):
        return
    level = logging.INFO if sandbox.is_available() else logging.WARNING
    logger.log(level, "isolated tools (%s): %s", ", ".join(names), sandbox.describe())
