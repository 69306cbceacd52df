from __future__ import annotations

from pathlib import Path

import pytest

from tests.migrated import fingerprint


@pytest.mark.parametrize(
    "name",
    [
        "llm/migrations/0001_initial.py",
        "conversations/models/webhooks/endpoint.py",
        "conversations/audit/models.py",
        "requirements-dev.txt",
    ],
)
def test_tables_are_made_anew_after_a_change_of(name: str, tmp_path: Path):
    (tmp_path / "requirements-dev.txt").touch()
    (changed := tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    changed.write_text("a = 1")
    (tmp_path / "llm").mkdir(exist_ok=True)
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    (tmp_path / "llm" / "api.py").touch()
    assert fingerprint(tmp_path) == before
    changed.write_text("a = 2")
    assert fingerprint(tmp_path) != before
