from __future__ import annotations

import sys

# httpx brings a command line along that nobody here has a use for, and with it `click`
# and, where it is installed, `rich`: 4 MB of every server. It can do without.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
