"""Every recorded 400: what its sender has to change reaches the sender."""

from __future__ import annotations

from typing import Any

import pytest

from llm.errors import InvalidKey, LLMError, QuotaExhausted
from llm.management.commands.replay_recordings import body_of as bytes_of
from llm.management.commands.replay_recordings import endpoint_of
from llm.wire.error_reports import parse_body, parse_report
from llm.wire.facades.errors import (
    anthropic_error_of,
    body_of,
    error_to_store,
    openai_error_of,
    restore_error,
)
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.response_builder import ResponseBuilder
from tests.llm.wire.test_recordings import RECORDINGS

REFUSALS = [
    recording
    for recording in RECORDINGS.values()
    if recording["response"]["status"] in (400, 404, 413, 422)
]
pytestmark = pytest.mark.skipif(
    not REFUSALS, reason="no recordings here; set RECORDINGS_DIR"
)
each_refusal = pytest.mark.parametrize("recording", REFUSALS, ids=lambda r: r["id"])


def refusal_of(recording: dict[str, Any]) -> LLMError:
    endpoint, response = endpoint_of(recording), recording["response"]
    assert endpoint
    return endpoint.codec.error(
        response["status"], response["headers"], bytes_of(recording)
    )


@each_refusal
def test_the_host_s_message_reaches_the_caller_of_each_api(recording: dict[str, Any]):
    error = refusal_of(recording)
    said = parse_report(parse_body(bytes_of(recording))).message
    bodies = [body_of(error, "openai")["error"], body_of(error, "anthropic")["error"]]
    if isinstance(error, InvalidKey | QuotaExhausted):
        # The staff's account: nothing that a client could mend.
        assert all("host" not in body for body in bodies)
        return
    for body in bodies:
        assert said in body["message"]
        assert body["host"]["message"] == said
        assert body["host"]["status"] == recording["response"]["status"]
        assert body["host"].get("request_id") == error.request_id
        assert body["host"].get("code") == error.upstream_code
    assert bodies[0]["param"] == error.param


@each_refusal
def test_it_is_the_same_inside_a_stream_and_from_the_database(
    recording: dict[str, Any],
):
    error = refusal_of(recording)
    plain = body_of(error, "openai")["error"]
    events = ResponseBuilder(id="resp_1", model="m").fail(error)
    stored = error_to_store(events)
    assert stored
    restored = restore_error(
        stored["code"], stored["message"], stored.get("param"), host=stored.get("host")
    )
    assert restored.host_report == error.host_report
    shown = ResponsesWriter().feed(events)
    assert shown[0]["error"].get("host") == plain.get("host")
    for message in (
        openai_error_of(events[-1]["response"], events[0]["error"])["message"],
        anthropic_error_of(events[-1]["response"])["error"]["message"],
        shown[0]["error"]["message"],
        shown[-1]["response"]["error"]["message"],
    ):
        assert message == plain["message"]
