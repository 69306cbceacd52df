"""Whether the sandbox starts is asked until it does once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tools.errors import ToolError
from tools.python import sandbox
from tools.python.isolated_call import IsolatedCall
from tools.python.sandbox import REFUSAL_COUNTS, SandboxProbe
from tools.runtime_tool import Context

REFUSED = SimpleNamespace(returncode=1, stderr=b"unshare: fork failed\n")
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
    now = [0.0]
    probe = SandboxProbe(lambda: now[0])
    attempts += [failure, STARTED]
    assert not probe.ask()
    now[0] = REFUSAL_COUNTS
    assert probe.ask()
    assert "run in the sandbox from now on" in caplog.text
    assert probe.ask()  # without a further attempt


def test_a_refusal_counts_for_a_while(attempts):
    now = [0.0]
    probe = SandboxProbe(lambda: now[0])
    attempts += [REFUSED, STARTED]
    assert not probe.ask()
    now[0] = REFUSAL_COUNTS - 1
    assert not probe.ask()
    assert attempts == [STARTED]


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (subprocess.TimeoutExpired("unshare", 20), "TimeoutExpired"),
        (REFUSED, "exit status 1, 'unshare: fork failed'"),
    ],
    ids=["timeout", "refused"],
)
def test_the_first_refusal_is_logged_with_its_cause(attempts, failure, text, caplog):
    now = [0.0]
    probe = SandboxProbe(lambda: now[0])
    attempts += [failure, failure]
    assert not probe.ask()
    now[0] = REFUSAL_COUNTS
    assert not probe.ask()
    assert [each.message for each in caplog.records] == [
        f"the sandbox of isolated tools does not start: {text}"
    ]


def test_a_missing_program_is_named(attempts, monkeypatch, caplog):
    monkeypatch.setattr(sandbox, "which", lambda program: program != "setpriv")
    assert not SandboxProbe().ask()
    assert "there is no setpriv" in caplog.text


async def test_the_time_of_a_call_stands_still_during_an_attempt(monkeypatch, settings):
    is_paused, found = False, []

    @contextmanager
    def pause() -> Iterator[None]:
        nonlocal is_paused
        is_paused = True
        yield
        is_paused = False

    def refuse() -> bool:
        found.append(is_paused)
        return False

    settings.ISOLATED_REQUIRE_SANDBOX = True
    monkeypatch.setattr(sandbox, "is_available", refuse)
    with pytest.raises(ToolError):
        await IsolatedCall("module", "name")(Context(pause_timer=pause), {})
    assert found == [True]


@pytest.mark.parametrize("is_demanded", [True, False])
def test_staff_read_what_a_missing_sandbox_means(monkeypatch, settings, is_demanded):
    settings.ISOLATED_REQUIRE_SANDBOX = is_demanded
    monkeypatch.setattr(sandbox, "is_available", lambda: False)
    assert ("all calls fail" in sandbox.describe()) is is_demanded
    assert ("within reach" in sandbox.describe()) is not is_demanded
