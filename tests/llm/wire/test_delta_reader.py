"""Bytes to deltas in one go: the same as frame by frame, however they come."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llm.errors import LLMError
from llm.management.commands.replay_recordings import body_of, endpoint_of
from llm.wire.codec import Codec
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.delta_reader import DECODE_ERRORS, DeltaReader
from llm.wire.deltas import Delta, TextDelta, is_well_formed
from llm.wire.sse import ServerSentEvent, SSEDecoder
from tests.llm.wire.test_recordings import RECORDINGS

Heard = tuple[list[Delta], str]
CHAT, CLAUDE = OpenAIChatCodec(), AnthropicCodec()


def slowly(codec: Codec, pieces: Iterable[bytes]) -> Heard:
    """The deltas of each event, and the error that ended it."""
    frames, decoder = SSEDecoder(), codec.decoder()
    deltas: list[Delta] = []
    try:
        for piece in pieces:
            for event in frames.feed(piece):
                deltas += decoder.feed(event)
        for event in frames.close():
            deltas += decoder.feed(event)
        for delta in decoder.close():
            deltas.append(delta)
    except (LLMError, *DECODE_ERRORS) as exc:
        error = "" if isinstance(exc, LLMError) else "BadResponse"
        return deltas, error or type(exc).__name__
    return deltas, ""


def heard(codec: Codec, pieces: Iterable[bytes]) -> Heard:
    reader, deltas = DeltaReader(codec.decoder()), []
    for piece in pieces:
        deltas += reader.feed(piece)
        if reader.error:
            return deltas, type(reader.error).__name__
    deltas += reader.close()
    return deltas, type(reader.error).__name__ if reader.error else ""


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    borders = sorted({0, len(body), *(at for at in places if at < len(body))})
    return [body[start:end] for start, end in pairwise(borders)]


def frames_of(body: bytes) -> list[bytes]:
    """One frame a piece, as most streams come."""
    *frames, last = body.split(b"\n\n")
    return [*(frame + b"\n\n" for frame in frames), last]


@pytest.mark.parametrize(
    "id", [id for id, recording in RECORDINGS.items() if recording["stream"]]
)
def test_a_recorded_stream_decodes_as_its_frames(id: str):
    endpoint = endpoint_of(RECORDINGS[id])
    assert endpoint
    frames = frames_of(body_of(RECORDINGS[id]))
    expected = slowly(endpoint.codec, frames)
    if all(map(is_well_formed, expected[0])):
        assert heard(endpoint.codec, frames) == expected


# Streams that try to be taken for what they are not


def chat(delta: str, more: str = "") -> bytes:
    return b'data: {"id":"1","choices":[{"index":0,"delta":{%b}%b}]}\n\n' % (
        delta.encode(errors="surrogatepass"),
        more.encode(),
    )


def text_chunk(text: str) -> bytes:
    return chat(f'"content":{json.dumps(text, ensure_ascii=False)}')


def claude(delta: str, index: int = 0) -> bytes:
    return (
        b'event: content_block_delta\ndata: {"type":"content_block_delta",'
        b'"index":%d,"delta":{%b}}\n\n' % (index, delta.encode(errors="surrogatepass"))
    )


def block(index: int) -> bytes:
    return (
        b'data: {"type":"content_block_start","index":%d,'
        b'"content_block":{"type":"text","text":""}}\n\n' % index
    )


#: Between quotes of JSON, or what some host writes there.
INSIDES = [
    "",
    " a",
    "content",
    "index",
    ":",
    ",",
    "text_delta",
    "\\n",
    "\\u00e9",
    "é",
    "\\ud83d",
    "\\ude00",
    "\ud83d",
    '\\"',
    "\\",
    '"',
    'a","content":"b',
    'a"}}]}\n\ndata: {"choices":[{"delta":{"content":"b',
    'a","refusal":"no',
    "\n",
    "\r",
    "\u2028",
    "\x01",
]
CHAT_FRAMES = [
    *(chat(f'"content":"{inside}"') for inside in INSIDES),
    *(chat(f'"role":"assistant","content":"{inside}"') for inside in INSIDES),
    chat('"content":"a","content":"b"'),
    chat('"content" : "a"'),
    chat('"content":\n"a"'),
    chat('"content":null'),
    chat('"content":"a"', ',"finish_reason":"stop"'),
    chat('"reasoning_content":"a"'),
    chat('"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]'),
    chat('"content":"a"').replace(b'"1"', b'"2"'),
    chat('"content":"a"').replace(b"\n", b"\r\n"),
    chat('"content":"a"')[:-1],
    chat('"content":"a"')[:-2],
    chat('"content":"a"')[10:],
    b"event: error\n",
    b"id: 7\n",
    b"\n",
    b": comment\n\n",
    b'data: {"error":{"message":"no"}}\n\n',
    b"data: [DONE]\n\n",
]
CLAUDE_FRAMES = [
    *(claude(f'"type":"text_delta","text":"{inside}"') for inside in INSIDES),
    *(claude(f'"type":"text_delta","text":"{i}"', index=1) for i in INSIDES[:5]),
    block(0),
    block(1),
    claude('"type":"thinking_delta","thinking":"a"'),
    claude('"text":"a","type":"text_delta"'),
    b'data: {"type":"content_block_stop","index":0}\n\n',
    b'data: {"type":"ping"}\n\n',
    b"event: error\n",
    b"event: ",
]
CUTS = st.sets(st.integers(1, 2000), max_size=6)


@given(st.lists(st.sampled_from(CHAT_FRAMES), max_size=12))
@example(
    [
        text_chunk("a"),
        text_chunk("b"),
        text_chunk("c"),
        *CHAT_FRAMES[:2],
        text_chunk("d"),
    ]
)
def test_no_order_of_chunks_is_misread(frames: list[bytes]):
    pieces = [text_chunk("a"), text_chunk("b"), *frames, text_chunk("c")]
    assert heard(CHAT, pieces) == slowly(CHAT, pieces)


@given(st.lists(st.sampled_from(CLAUDE_FRAMES), max_size=12))
def test_no_order_of_blocks_is_misread(frames: list[bytes]):
    text = [claude(f'"type":"text_delta","text":"{word}"') for word in "ab"]
    pieces = [block(0), *text, *frames, *text]
    assert heard(CLAUDE, pieces) == slowly(CLAUDE, pieces)


PIECES = st.lists(
    st.lists(st.sampled_from(CHAT_FRAMES) | st.text().map(text_chunk), max_size=4).map(
        b"".join
    ),
    max_size=6,
)


@given(PIECES)
@example(
    [
        text_chunk("a") + text_chunk("b"),
        text_chunk("") + text_chunk("c"),
        text_chunk("d"),
    ]
)
@example([text_chunk("a") + chat('"content":"a"')[:-2], text_chunk("b")])
def test_no_frames_that_come_together_are_misread(pieces: list[bytes]):
    pieces = [text_chunk("a"), text_chunk("b"), *pieces, text_chunk("c")]
    assert heard(CHAT, pieces) == slowly(CHAT, pieces)


@given(st.lists(st.sampled_from(CHAT_FRAMES), max_size=8), CUTS)
def test_any_cut_of_the_bytes_gives_the_same_deltas(
    frames: Sequence[bytes], places: set[int]
):
    whole = [text_chunk("a"), text_chunk("b"), *frames, text_chunk("c")]
    pieces = cut(b"".join(whole), places)
    assert heard(CHAT, pieces) == slowly(CHAT, pieces)


@given(st.lists(st.text(), max_size=8), st.booleans())
def test_every_text_is_read_as_it_was_written(texts: list[str], escaped: bool):
    pieces = [chat(f'"content":{json.dumps(t, ensure_ascii=escaped)}') for t in texts]
    deltas, _ = heard(CHAT, pieces)
    read_texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert "".join(read_texts) == "".join(texts)


# The short way


class Counting:
    """A decoder that counts what it is fed."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.fed = 0
        self.match_plain_text = decoder.match_plain_text
        self.close = decoder.close

    def feed(self, event: ServerSentEvent) -> Iterable[Delta]:
        self.fed += 1
        return self._decoder.feed(event)


def test_of_frames_that_differ_in_their_text_only_the_text_is_read():
    decoder = Counting(CHAT.decoder())
    reader = DeltaReader(decoder)
    batches = [reader.feed(text_chunk(f"word {n}")) for n in range(100)]
    assert batches[1:] == [[TextDelta("text", f"word {n}")] for n in range(1, 100)]
    together = reader.feed(b"".join(text_chunk(f"word {n}") for n in range(100)))
    assert together == [TextDelta("text", f"word {n}") for n in range(100)]
    assert decoder.fed == 2


def test_frames_that_never_repeat_are_soon_compared_no_more():
    tried: list[Any] = []
    decoder = Counting(CHAT.decoder())
    match = decoder.match_plain_text
    decoder.match_plain_text = lambda data: tried.append(0) or match(data)
    reader = DeltaReader(decoder)
    for n in range(100):
        reader.feed(text_chunk("word").replace(b'"1"', b'"%d"' % n))
    assert decoder.fed == 100
    assert len(tried) < 10
