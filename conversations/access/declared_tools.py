"""Permission checks for the non-function tools that a request's options declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conversations.models.access_token import AccessToken
from tools.hosted.declared_kinds import kinds_of_tools
from tools.models.declared_tool import DeclaredTool, check_declared


def check_declared_kinds(
    options: Mapping[str, Any], user: Any, token: AccessToken | None = None
) -> None:
    """Raises ToolNotAllowed. `token` is the request's access token, if it has one."""
    declared = list(kinds_of_tools(options.get("tools"), "options.tools"))
    if declared and not (token and token.declares_any_tool):
        check_declared(declared, DeclaredTool.objects.kinds_for(user))
