from __future__ import annotations

import hashlib
import re
from pathlib import Path

VENDOR = Path(__file__).parents[3] / "static" / "vendor"


def test_vendored_files_are_as_they_were_published():
    noted = {
        name: digest
        for digest, name in re.findall(
            r"^([0-9a-f]{64})  (\S+)$", (VENDOR / "README.md").read_text(), re.MULTILINE
        )
    }
    found = {
        str(path.relative_to(VENDOR)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.glob("*/**/*")
        if path.is_file()
    }
    assert found == noted
