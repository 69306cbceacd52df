"""Frames of a stream for a client of the same API, wherever the network cuts it."""

from __future__ import annotations

import pytest

from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.deltas import FrameDelta
from llm.wire.forwarding.frame_reader import FrameReader

FRAME = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}'


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_each_frame_is_there_once_its_last_byte_has_come(end: bytes, size: int):
    reader, frame = FrameReader(OpenAIChatCodec().decoder(), hides_usage=False), b""
    whole = FRAME + end
    for number in (1, 2):
        for start in range(0, len(whole), size):
            for delta in reader.feed(whole[start : start + size]):
                frame += delta.data if isinstance(delta, FrameDelta) else b""
        assert frame == whole * number
