"""`make bench-check` fails when something costs more, and its programs measure."""

from __future__ import annotations

import json
import os

import pytest

from benchmarks.native.check import COMMITTED, TOLERANCE, find_exceeded
from benchmarks.native.programs import build, load, precise_cpu_seconds, provider
from tests.programs import need_program
from tests.serving import free_port

FIGURES = {"a chunk": 4.0, "a stream": 50.0}


@pytest.mark.parametrize(
    ("measured", "exceeded"),
    [
        (FIGURES, []),
        ({"a chunk": 4.0 * TOLERANCE, "a stream": 1.0}, []),
        ({"a chunk": 6.1, "a stream": 50.0}, ["a chunk: 6.1, committed 4.0"]),
        ({"a chunk": 4.0}, ["a stream: in one table only"]),
        (FIGURES | {"a turn": 1.0}, ["a turn: in one table only"]),
    ],
)
def test_a_figure_fails_above_its_bound(measured, exceeded):
    assert find_exceeded(FIGURES, measured) == exceeded


def test_the_committed_figures_say_when_they_were_measured():
    committed = json.loads(COMMITTED.read_text())
    assert committed.keys() == {"at", "load", "figures"}
    assert all(value > 0 for value in committed["figures"].values())


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    need_program("cc")
    return build(tmp_path_factory.mktemp("programs"))


def chat(model: str) -> dict[str, object]:
    messages = [{"role": "user", "content": "Hi"}]
    return {"model": model, "stream": True, "messages": messages}


@pytest.mark.server
def test_the_client_counts_what_the_provider_streams(programs):
    port, path = free_port(), "/v1/chat/completions"
    body = chat("mock-c7-d1")
    with provider(programs, port) as pid:
        before = precise_cpu_seconds(pid)
        report = load(programs, port, path, body, connections=3, requests=6, chunks=7)
        assert (report["ok"], report["errors"], report["chunks"]) == (6, 0, 42)
        assert precise_cpu_seconds(pid) > before
        with pytest.raises(RuntimeError, match="chat/completions"):
            load(programs, port, path, body, connections=1, requests=1, chunks=8)
        failing = chat("mock-e429")
        with pytest.raises(RuntimeError, match="429"):
            load(programs, port, path, failing, connections=1, requests=1, chunks=-1)
    assert not os.path.exists(f"/proc/{pid}")
