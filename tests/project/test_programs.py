from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import need_program


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CHROMIUM", raising=False)
    return monkeypatch


def test_a_missing_program_skips_with_its_reason(bare_machine: pytest.MonkeyPatch):
    bare_machine.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="chromium is not installed"):
        need_program("chromium")


def test_a_missing_program_fails_on_ci(bare_machine: pytest.MonkeyPatch):
    bare_machine.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="chromium is not installed"):
        need_program("chromium")


def test_a_program_is_found_by_any_of_its_names(
    bare_machine: pytest.MonkeyPatch, tmp_path: Path
):
    browser = tmp_path / "google-chrome"
    browser.touch(mode=0o755)
    bare_machine.setenv("PATH", str(tmp_path))
    assert need_program("chromium") == str(browser)


def test_a_headless_shell_comes_before_the_browser_unless_the_full_one_is_needed(
    bare_machine: pytest.MonkeyPatch, tmp_path: Path
):
    for name in ("chromium", "chromium-headless-shell"):
        (tmp_path / name).touch(mode=0o755)
    bare_machine.setenv("PATH", str(tmp_path))
    assert need_program("chromium") == str(tmp_path / "chromium-headless-shell")
    assert need_program("full_chromium") == str(tmp_path / "chromium")


def test_a_program_may_be_named_by_the_environment(
    bare_machine: pytest.MonkeyPatch, tmp_path: Path
):
    browser = tmp_path / "my-browser"
    browser.touch(mode=0o755)
    bare_machine.setenv("CHROMIUM", str(browser))
    assert need_program("chromium") == str(browser)
    assert need_program("full_chromium") == str(browser)
