"""The server recognises its own sentences about connections, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import aiohttp
import httpx
import pytest

from llm.http import connection_problems as problems
from llm.http.connection_problems import MAX_SENTENCE, describe_connection_problem

CERTIFICATE = max(problems.CERTIFICATE_PROBLEMS.values(), key=len)


@pytest.mark.parametrize(
    "sentence",
    [
        problems.NO_PROXY,
        problems.PROXY_REFUSES.format(status=407),
        problems.NOT_CONNECTED.format(seconds=0.25),
        problems.STALLED.format(error="ReadTimeout"),
        problems.NO_ANSWER.format(seconds=1e9),
        problems.SILENT.format(seconds=1e-7),
        problems.NOT_FINISHED.format(seconds=600.0),
        problems.BAD_CERTIFICATE.format(peer="server", problem=CERTIFICATE),
        problems.NO_TLS.format(peer="proxy"),
        problems.HANDSHAKE_FAILED.format(peer="server"),
    ],
)
def test_a_sentence_of_this_server_is_recognised_whole(sentence: str):
    assert describe_connection_problem(sentence) == sentence
    assert len(sentence) < MAX_SENTENCE
    for changed in (f"{sentence} Hi", f"Hi {sentence}", f"{sentence}\n", sentence[:-1]):
        assert describe_connection_problem(changed) == ""


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
