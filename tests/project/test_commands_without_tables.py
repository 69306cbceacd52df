"""Management commands in a data folder in which no server has run yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.server
@pytest.mark.parametrize("command", ["clean_up", "rotate_keys", "engine_status"])
def test_a_command_before_the_first_start_says_what_to_do(command: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PARLEY_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("CommandError: The database ")
