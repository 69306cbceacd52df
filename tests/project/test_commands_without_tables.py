"""Management commands in a data folder in which no server has run yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.server
@pytest.mark.parametrize("is_there", [False, True], ids=["no folder", "empty"])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["doctor"], "Tables are missing or of an older version."),
        (["migrate", "--help"], "usage: manage.py migrate"),
        (["backup", "/nowhere"], "/secret_key is missing; name the data folder"),
    ],
)
def test_a_command_that_only_looks_or_copies_creates_nothing(
    arguments: list[str], text: str, is_there: bool, tmp_path: Path
):
    data = tmp_path / "data"
    if is_there:
        data.mkdir(mode=0o755)
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PARLEY_DATA": str(data),
            "PARLEY_READ_DOTENV": "false",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert text in done.stdout + done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["data"] * is_there


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
