"""Whether the sandbox starts is asked until it does once."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from tools.python import sandbox
from tools.python.sandbox import SandboxProbe

REFUSED = SimpleNamespace(returncode=1)
STARTED = SimpleNamespace(returncode=0)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the next attempts come to."""
    following: list[Any] = []

    def run(*args: object, **kwargs: object) -> Any:
        if isinstance(result := following.pop(0), Exception):
            raise result
        return result

    monkeypatch.setattr(sandbox, "which", lambda program: f"/bin/{program}")
    monkeypatch.setattr(sandbox.sys, "platform", "linux")
    monkeypatch.setattr(sandbox.subprocess, "run", run)
    return following


@pytest.mark.parametrize(
    "failure",
    [subprocess.TimeoutExpired("unshare", 20), BlockingIOError(), REFUSED],
    ids=["timeout", "EAGAIN", "refused"],
)
def test_a_failure_to_start_it_is_not_for_the_life_of_the_process(
    attempts, failure, caplog
):
    probe = SandboxProbe()
    attempts += [failure, STARTED]
    assert not probe.ask()
    assert probe.ask()
    assert "run in the sandbox from now on" in caplog.text
    assert probe.ask()  # without a further attempt


def test_an_attempt_that_says_nothing_is_logged(attempts, caplog):
    attempts += [subprocess.TimeoutExpired("unshare", 20)]
    assert not SandboxProbe().ask()
    assert "could not be tried (TimeoutExpired)" in caplog.text
