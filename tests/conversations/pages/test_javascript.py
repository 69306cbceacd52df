"""Runs tests/js, the tests of the browser modules that need no browser."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.programs import need_program

JS = Path(__file__).parents[2] / "js"


@pytest.mark.parametrize("path", sorted(JS.rglob("*.test.mjs")), ids=lambda p: p.name)
def test_the_javascript_modules_pass_their_tests(path: Path):
    node = need_program("node")
    done = subprocess.run(
        [node, "--test", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
