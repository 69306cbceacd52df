"""Django settings of the app `tools`, with defaults for projects that do not set them.

docs/library.md lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm.conf import SettingsWithDefaults

DEFAULTS: Mapping[str, Any] = {
    "TOOL_TIMEOUT": 30,  # seconds
    "BACKGROUND_TOOL_TIMEOUT": 24 * 3600,  # seconds
    "MCP_STDIO_SERVERS": {},
    "PUBLIC_URL": "",
    #: Files and folders that isolated tools must not see.
    "ISOLATED_HIDDEN_PATHS": [],
    #: Isolated tools fail where the system does not start their sandbox.
    "ISOLATED_REQUIRE_SANDBOX": False,
}

settings = SettingsWithDefaults(DEFAULTS)
