from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from conversations.engine.event_log import TurnLog, entries_after
from conversations.engine.packed_events import Entry
from conversations.http.continued_events import ContinuedEntries
from llm.errors import CutOff
from llm.wire.deltas import Delta, FinishDelta, TextDelta
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.response_builder import ResponseBuilder
from tests.llm.answers import OURS, call

END = FinishDelta("stop")


def log_of(
    epoch: int, *deltas: Delta, done: Sequence[Any] = (), half: Any = None
) -> tuple[list[Entry], ResponseBuilder]:
    """A run that begins with what an earlier one has stored, and its answer."""
    builder = ResponseBuilder(id="resp_1", model="m", created_at=0)
    events = [*builder.start(), *builder.restore(done, None)]
    builder.begin_call()
    if half:
        events += builder.reopen("t", half)
    events += builder.feed(list(deltas))
    if END in deltas:
        events += [*builder.end_call(), *builder.complete()]
    log = TurnLog("resp_1")
    log.append(epoch, events, {})
    return list(log.entries), builder


def send(*logs: Sequence[Entry], server_tools: Sequence[str] = ()) -> list[Any]:
    """What a client gets that follows one run after the other."""
    writer = ResponsesWriter(server_tools=server_tools)
    continued, sent, after = ContinuedEntries(writer.is_shown), [], None
    for entries in logs:
        fresh = entries_after(entries, after)
        after = entries[-1].log_position
        sent += writer.feed([entry.event for entry in continued.feed(fresh)])
    return sent


def text_of(sent: Sequence[Any]) -> str:
    return "".join(e["delta"] for e in sent if e["type"].endswith("text.delta"))


def half_of(first: Sequence[Entry], text: str) -> Any:
    """The message of a run as its snapshot has it."""
    [item] = [e.event["item"] for e in first if e.type == "response.output_item.added"]
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {**item, "status": "in_progress", "content": [part]}


@pytest.mark.parametrize("stored", ["Hello", "Hello wo"])
def test_a_text_that_goes_on_is_sent_once(stored: str):
    first, _ = log_of(1, TextDelta("t", "Hello"), TextDelta("t", " wo"))
    rest = "Hello world"[len(stored) :]
    second, _ = log_of(2, TextDelta("t", rest), END, half=half_of(first, stored))
    sent = send(first, second)
    assert text_of(sent) == "Hello world"
    others = [e["type"] for e in sent if not e["type"].endswith(".delta")]
    assert len(others) == len(set(others))
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    assert {event.get("output_index", 0) for event in sent} == {0}
    assert sent[-1]["type"] == "response.completed"


def test_a_third_run_goes_on_too():
    first, _ = log_of(1, TextDelta("t", "One"))
    second, _ = log_of(2, TextDelta("t", ", two"), half=half_of(first, "One"))
    half = half_of(first, "One, two")
    third, _ = log_of(3, TextDelta("t", ", three"), END, half=half)
    assert text_of(send(first, second, third)) == "One, two, three"


def test_other_words_of_the_same_item_end_the_stream():
    first, _ = log_of(1, TextDelta("t", "Hello wo"))
    half = half_of(first, "Hello")
    second, _ = log_of(2, TextDelta("t", " there"), END, half=half)
    with pytest.raises(CutOff, match="begun this answer anew"):
        send(first, second)


def test_another_item_ends_the_stream():
    first, _ = log_of(1, TextDelta("t", "Hello wo"))
    second, _ = log_of(2, TextDelta("t", "Hello world"), END)
    with pytest.raises(CutOff, match="begun this answer anew"):
        send(first, second)


def test_less_than_was_sent_ends_the_stream():
    first, _ = log_of(1, TextDelta("t", "Hello wo"))
    second, _ = log_of(2, END, half=half_of(first, "Hello"))
    with pytest.raises(CutOff, match="begun this answer anew"):
        send(first, second)


def test_nothing_but_the_beginning_was_sent():
    first, _ = log_of(1)
    second, _ = log_of(2, TextDelta("t", "Hello"), END)
    sent = send(first, second)
    assert [e["type"] for e in sent].count("response.created") == 1
    assert text_of(sent) == "Hello"


def test_whole_items_that_were_not_stored_yet_are_sent_once():
    first, builder = log_of(1, TextDelta("t", "One."), *call("b"), END)
    first = [entry for entry in first if not entry.is_last]
    done = builder.response()["output"]
    second, _ = log_of(2, END, done=done)
    sent = send(first, second)
    added = [e["item"] for e in sent if e["type"] == "response.output_item.added"]
    assert [item["id"] for item in added] == [item["id"] for item in done]


def test_a_call_that_the_client_never_saw_may_be_another_one():
    first, _ = log_of(1, *call("a", name=OURS))
    second, _ = log_of(2, *call("b", name=OURS), TextDelta("t", "Hi"), END)
    sent = send(first, second, server_tools=[OURS])
    assert text_of(sent) == "Hi"
    assert sent[-1]["type"] == "response.completed"
    with pytest.raises(CutOff, match="begun this answer anew"):
        send(first, second)
