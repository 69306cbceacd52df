"""MCP servers that Parley starts as programs, as the settings name them.

`settings.MCP_STDIO_SERVERS` has the form of "mcpServers" in MCP configuration files:
`{"time": {"command": "mcp-server-time", "args": [], "env": {}, "cwd": "/srv"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tools.conf import settings
from tools.mcp.server_spec import MAX_SERVER_NAME, SERVER_NAME, Program


def load_programs() -> dict[str, Program]:
    """The programs by server name. Raises ValueError if the settings are invalid."""
    return read_programs(settings.MCP_STDIO_SERVERS or {})


def parse_programs(text: str) -> dict[str, Any]:
    """Parse and check the text of a configuration file, for the settings.

    Raises ValueError; its message never has the value of a variable.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as exc:
        raise ValueError(
            f"this is not JSON (line {exc.lineno}, column {exc.colno})."
        ) from exc
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise ValueError('write {"mcpServers": {"name": {"command": "…"}}}.')
    read_programs(servers)
    return servers


def read_programs(servers: Mapping[str, Any]) -> dict[str, Program]:
    return {name: _program(name, server) for name, server in servers.items()}


def _program(name: str, server: Any) -> Program:
    if not SERVER_NAME.match(name) or len(name) > MAX_SERVER_NAME:
        raise ValueError(
            f"{name!r} is not a valid server name: use up to {MAX_SERVER_NAME}"
            " letters, digits, '-' and single '_', and begin with a letter."
        )
    match server:
        case {"command": str(command)} if command:
            arguments, variables = server.get("args", []), server.get("env", {})
            folder = server.get("cwd")
        case _:
            raise ValueError(f'{name!r}: write {{"command": "…", "args": ["…"]}}.')
    if not isinstance(arguments, list) or not all(
        isinstance(each, str) for each in arguments
    ):
        raise ValueError(f'{name!r}: "args" must be a list of strings.')
    if not isinstance(variables, dict) or not all(
        isinstance(each, str) for each in variables.values()
    ):
        raise ValueError(f'{name!r}: "env" must be an object of strings.')
    if folder is not None and not isinstance(folder, str):
        raise ValueError(f'{name!r}: "cwd" must be the path of a folder.')
    if unknown := server.keys() - {"command", "args", "env", "cwd"}:
        raise ValueError(f"{name!r}: {', '.join(sorted(unknown))} is unknown.")
    return Program(
        command=command,
        arguments=tuple(arguments),
        environment=variables,
        folder=folder,
    )
