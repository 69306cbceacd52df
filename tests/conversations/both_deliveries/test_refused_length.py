"""What a host itself finds too long, in each wire format, in both deliveries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import respx

from benchmarks import streams
from conversations.models import Turn
from llm.models import Provider
from tests.conversations.both_deliveries.test_engine import answer

HOST = "https://models.example"
#: Kind, codec, model, a body that the host refuses with, and its stream of an answer.
WIRES: list[tuple[str, str, str, dict[str, Any], Callable[[int], Iterator[bytes]]]] = [
    (
        "openai",
        "openai_responses",
        "gpt-4.1-mini",
        {
            "error": {
                "message": "Your input exceeds the context window of this model.",
                "type": "invalid_request_error",
                "param": "input",
                "code": "context_length_exceeded",
            }
        },
        streams.openai_responses,
    ),
    (
        "openai_compatible",
        "openai_chat",
        "qwen3-32b",
        {
            "object": "error",
            "message": "This model's maximum context length is 40960 tokens. However,"
            " you requested 52000 tokens. Please reduce the length of the messages.",
            "type": "BadRequestError",
            "code": 400,
        },
        streams.openai_chat,
    ),
    (
        "anthropic",
        "anthropic",
        "claude-sonnet-4-5",
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 201234 tokens > 200000 maximum",
            },
        },
        streams.anthropic,
    ),
    (
        "gemini",
        "gemini",
        "gemini-2.5-flash",
        {
            "error": {
                "code": 400,
                "message": "The input token count (1200000) exceeds the maximum number"
                " of tokens allowed (1048576).",
                "status": "INVALID_ARGUMENT",
            }
        },
        streams.gemini,
    ),
]


@pytest.fixture
def host() -> Iterator[respx.Route]:
    with respx.mock(using="parley", assert_all_called=False) as web:
        yield web.post(url__startswith=HOST)


def summaries_in(entries: Any) -> list[Any]:
    """Compactions that the events show, of a turn that is over too: then they come from
    its rows, without those that say how it went."""
    items = (each.event.get("item") for each in entries)
    return list(
        {item["id"]: item for item in items if item and item["type"] == "compaction"}
    )


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire[1])
async def test_a_refusal_of_the_host_is_answered_by_a_summary_once(
    conversation, running, host: respx.Route, wire: Any
):
    """The window is not in the model's row: nothing is refused before the host does."""
    kind, codec, model, refusal, stream = wire
    provider = await Provider.objects.acreate(
        name="Host", kind=kind, codec=codec, base_url=HOST
    )
    await provider.keys.acreate(secret="sk-of-the-test")
    conversation.language_model = await provider.models.acreate(name=model)
    await conversation.asave()

    def respond(request: httpx.Request) -> httpx.Response:
        text = request.content.decode()
        if "3: All about" in text or ("0: All about" in text and "2: All" in text):
            return httpx.Response(400, json=refusal)
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, content=b"".join(stream(9)), headers=headers)

    text = "All about tea. " * 700
    host.side_effect = respond
    for number in range(3):
        turn, entries = await answer(conversation, text=f"{number}: {text}")
        assert turn.status == Turn.Status.COMPLETED, turn.error
    assert len(summaries_in(entries)) == 1
    sent = host.calls.last.request.content.decode()
    assert "The quick brown fox" in sent  # the summary
    assert "0: All about tea." not in sent
    # Refused again after the summary, the turn fails with the host's reason.
    turn, entries = await answer(conversation, text=f"3: {text}")
    assert turn.error["code"] == "E_LLM_CONTEXT_TOO_LARGE"
    assert len(summaries_in(entries)) == 1
