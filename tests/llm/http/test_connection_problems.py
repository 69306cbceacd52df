"""The server recognises its own sentences about connections, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import aiohttp
import httpx
import pytest

from llm.http import connection_problems as problems
from llm.http.connection_problems import MAX_SENTENCE, describe_connection_problem


@pytest.mark.parametrize(
    "sentence",
    [
        problems.NO_PROXY,
        problems.PROXY_REFUSES.format(status=407),
        problems.NOT_CONNECTED.format(seconds=0.25),
        problems.STALLED.format(error="ReadTimeout"),
        problems.LEFT.format(seconds=12.5),
        problems.NO_ANSWER.format(seconds=1e9),
        problems.SILENT.format(seconds=1e-7),
        problems.NOT_FINISHED.format(seconds=600.0),
        *problems.SERVER_TLS.all,
        *problems.PROXY_TLS.all,
    ],
)
def test_a_sentence_of_this_server_is_recognised_whole(sentence: str):
    assert describe_connection_problem(sentence) == sentence
    assert len(sentence) < MAX_SENTENCE
    for changed in (f"{sentence} Hi", f"Hi {sentence}", f"{sentence}\n", sentence[:-1]):
        assert describe_connection_problem(changed) == ""


def test_a_translation_with_a_wrong_place_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(problems, "gettext", lambda text: "{sekunden} s lang nichts.")
    assert describe_connection_problem("Silent for 20 s.") == "Silent for 20 s."


def network_errors() -> Iterator[type[Exception]]:
    found: list[type[Exception]] = [aiohttp.ClientConnectionError, OSError]
    found += [httpx.NetworkError, httpx.ProtocolError, httpx.TimeoutException]
    while found:
        each = found.pop()
        if each.__module__.partition(".")[0] in ("aiohttp", "httpx", "builtins"):
            yield each
        found += each.__subclasses__()


def test_the_name_of_each_network_error_may_be_in_a_sentence():
    names = {each.__name__ for each in network_errors()}
    names -= {aiohttp.ServerFingerprintMismatch.__name__}  # no fingerprint is pinned
    assert len(names) > 20
    for template in (problems.NOT_REACHED, problems.CUT_OFF):
        for name in names:
            assert describe_connection_problem(template.format(error=name))
    assert not describe_connection_problem(problems.CUT_OFF.format(error="Diary"))
