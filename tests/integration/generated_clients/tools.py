"""The programs that make clients from API documents, and the SDKs of Node."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

from tests.programs import unavailable
from tests.serving import BASE

_INSTALL = Path(__file__).parent / "install.sh"
_FOLDER = BASE / ".tools" / "clients"
PATIENCE = 600  # seconds, for some 370 MB


def find_client_tools() -> Path:
    """The folder that API_CLIENT_TOOLS names, or one that `install.sh` has filled."""
    if folder := os.environ.get("API_CLIENT_TOOLS"):
        return Path(folder)
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["bash", str(_INSTALL), str(_FOLDER)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    if done.returncode:
        unavailable("the generators of clients cannot be installed")
    return _FOLDER
