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


def frame(text: str, index: int = 0) -> bytes:
    return rb'data: {"choices":[{"index":%d,"delta":{"content":"%s"}}]}' % (
        index,
        text.encode(),
    )


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([R"a\ud83d", R"\udc67b"], ["a", R"\ud83d\udc67b"]),
        (
            [R"\uD83D", R"\uDC67\uD83D", R"\uDC68"],
            ["", R"\uD83D\uDC67", R"\uD83D\uDC68"],
        ),
        ([R"\ud83d", "between", R"\udc67"], ["", "between", R"\ud83d\udc67"]),
        ([R"\ud83d\udc67", R"\u00e9"], [R"\ud83d\udc67", R"\u00e9"]),
        ([R"a\udc67", R"\udc67"], [R"a\udc67", ""]),
        # Arguments are JSON inside of JSON, and a backslash may stand before an escape.
        ([R"\\ud83d", R"\\udc67"], [R"\\ud83d", R"\\udc67"]),
        ([R"\\\ud83d", R"\udc67"], [R"\\", R"\ud83d\udc67"]),
        ([R"\"\ud83d", R"\udc67\""], [R"\"", R"\ud83d\udc67\""]),
    ],
)
def test_a_surrogate_pair_in_two_frames_comes_in_one(
    texts: list[str], found: list[str]
):
    reader, frames = FrameReader(OpenAIChatCodec().decoder(), hides_usage=False), b""
    for text in texts:
        for delta in reader.feed(frame(text) + b"\n\n"):
            frames += delta.data if isinstance(delta, FrameDelta) else b""
    assert frames == b"".join(frame(text) + b"\n\n" for text in found)


def test_pairs_of_two_choices_at_once_are_not_mixed():
    reader, frames = FrameReader(OpenAIChatCodec().decoder(), hides_usage=False), b""
    halves = [(R"\ud83d", 0), (R"\ud83e", 1), (R"\udc67", 0), (R"\udd14", 1)]
    for text, index in halves:
        for delta in reader.feed(frame(text, index) + b"\n\n"):
            frames += delta.data if isinstance(delta, FrameDelta) else b""
    assert frames.count(b"content") == 4
    assert rb"\ud83d\udc67" in frames
    assert rb"\ud83e\udd14" in frames


def read(chunk: bytes, *, hides_usage: bool = False) -> tuple[bytes, FrameReader]:
    reader = FrameReader(OpenAIChatCodec().decoder(), hides_usage=hides_usage)
    frames = b""
    for delta in reader.feed(chunk):
        frames += delta.data if isinstance(delta, FrameDelta) else b""
    return frames, reader


@pytest.mark.parametrize("broken", [b"{garbled", b'"garbled', b'{"choices":5}'])
@pytest.mark.parametrize("before", [1, 3])
def test_frames_before_a_broken_one_are_sent(before: int, broken: bytes):
    good = (FRAME + b"\n\n") * before + b": heartbeat\n\n"
    frames, reader = read(good + b"data: " + broken + b"\n\n" + FRAME + b"\n\n")
    assert frames == good
    assert reader.error is not None


@pytest.mark.parametrize("head", [b"", b": x\n", b"event: message\n", b": x\r\n"])
def test_a_frame_of_usage_alone_is_left_out_whatever_its_form(head: bytes):
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'
    frames, _ = read(FRAME + b"\n\n" + head + usage, hides_usage=True)
    assert frames == FRAME + b"\n\n"


def test_bytes_of_an_open_frame_are_counted():
    reader = FrameReader(OpenAIChatCodec().decoder(), hides_usage=False)
    for count in (1, 2, 3):
        reader.feed(b"data: aaaa")
        assert reader.waiting == 10 * count
    reader.feed(b"\n\ndata")
    assert reader.waiting == 4
    reader.close()
    assert reader.waiting == 0


@pytest.mark.parametrize(
    ("delta", "index", "expected"),
    [
        (b'{"audio":{"id":"audio_1","data":"AA=="}}', 0, True),
        (b'{"content":"b"}', 1, True),
        (b'{"role":"assistant","content":"","refusal":null}', 1, False),
        (b'{"role":"assistant","content":""}', 0, False),
    ],
)
def test_content_without_a_delta_is_marked(delta: bytes, index: int, expected: bool):
    """Otherwise all frames would wait for the first text, up to the end."""
    chunk = b'data: {"choices":[{"index":%d,"delta":%b}]}\n\n' % (index, delta)
    reader = FrameReader(OpenAIChatCodec().decoder(), hides_usage=False)
    [frame] = reader.feed(chunk)
    assert isinstance(frame, FrameDelta)
    assert (frame.data, frame.has_content) == (chunk, expected)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (b'{"content":"a"}', False),
        (b'{"reasoning_content":"a"}', False),
        (b'{"refusal":"a"}', False),
        (
            b'{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]}',
            False,
        ),
        (b'{"content":""}', True),
    ],
)
def test_content_after_a_delta_is_not_parsed_for_a_mark(first: bytes, expected: bool):
    reader = FrameReader(OpenAIChatCodec().decoder(), hides_usage=False)
    reader.feed(b'data: {"choices":[{"index":0,"delta":%b}]}\n\n' % first)
    chunk = b'data: {"choices":[{"index":1,"delta":{"content":"b"}}]}\n\n'
    [marked] = [each for each in reader.feed(chunk) if isinstance(each, FrameDelta)]
    assert marked.has_content is expected


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("odd", [b"data: []", b": a comment", b""])
def test_an_odd_frame_before_a_failure_drops_none_after_it(odd: bytes, end: bytes):
    good = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}' + end
    before = good + (odd + end if odd else b"") + good
    frames, reader = read(before + b"data: {broken" + end + good)
    assert reader.error is not None
    assert frames == before
