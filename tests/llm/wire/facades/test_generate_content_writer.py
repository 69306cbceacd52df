from __future__ import annotations

from llm.wire.deltas import ItemDelta
from llm.wire.facades.generate_content_writer import (
    GenerateContentWriter,
    generate_content_of,
)
from tests.llm.answers import Answer


def test_a_drawn_picture_is_inline_data():
    drawn = {"type": "image_generation_call", "result": "AAA"}
    answer = Answer().say(ItemDelta("h", drawn, done=True)).end()
    part = {"inlineData": {"mimeType": "image/png", "data": "AAA"}}
    writer = GenerateContentWriter(model="m", id="r")
    sent = [
        part
        for chunk in writer.feed(answer.events)
        for part in chunk["candidates"][0]["content"]["parts"]
    ]
    assert sent == [part, {"text": ""}]
    [candidate] = generate_content_of(answer.response)["candidates"]
    assert candidate["content"]["parts"] == [part]
