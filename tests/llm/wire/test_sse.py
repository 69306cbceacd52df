from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.wire.sse import ServerSentEvent, SSEDecoder, comment, encode

STREAM = (
    "\ufeffdata: first\n\n: comment\nevent: named\r\nid: 7\r\ndata: a\r\ndata:b\r\n\r\n"
    'data: "e\u2028\u0085ō…"\r\revent: lost\n\ndata\n\nerror: {"a":1}\n\n'
    "retry: 10\nfoo\n\ndata: without a blank line"
).encode()
EVENTS = [
    ServerSentEvent(b"first"),
    ServerSentEvent(b"a\nb", "named", "7"),
    ServerSentEvent('"e\u2028\u0085ō…"'.encode(), "message", "7"),
    ServerSentEvent(b'{"a":1}', "error", "7"),
    ServerSentEvent(b"without a blank line", "message", "7"),
]


def feed(chunks: list[bytes]) -> list[ServerSentEvent]:
    decoder = SSEDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return [*events, *decoder.close()]


def cut(data: bytes, cuts: set[int]) -> list[bytes]:
    borders = [0, *sorted(cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(borders)]


@pytest.mark.parametrize("line", [b"data:", b"data: ", b"data", b"event: ping\ndata:"])
@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_an_event_without_data_is_none(line: bytes, end: bytes):
    event = ServerSentEvent(b"1")
    assert feed([line + end]) == []
    assert feed([b"data: 1" + end, line + end, b"data: 1" + end]) == [event, event]
    assert feed([b"data: 1" + end + line + end + b"data: 1" + end]) == [event, event]


def test_a_whole_stream_gives_its_events():
    assert feed([STREAM]) == EVENTS


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_chunk_borders_do_not_matter(cuts: set[int]):
    assert feed(cut(STREAM, cuts)) == EVENTS


def test_a_stream_that_comes_byte_by_byte_is_the_same():
    assert feed([bytes([byte]) for byte in STREAM]) == EVENTS


PLAIN = (
    "data: 1\n\ndata: 2\n\nevent: named\ndata: 3\n\n: comment\n\ndata: 4\n"
    "data: 5\n\nevent: twice\nevent: said\ndata: 6\n\nevent:\ndata: 7\n\nevent: lost"
    "\n\ndata: \n\nid: 8\ndata: ō…\n\ndata:9\n\ndata: 10\n\nevent: last\ndata: 11"
).encode()
PLAIN_EVENTS = [
    ServerSentEvent(b"1"),
    ServerSentEvent(b"2"),
    ServerSentEvent(b"3", "named"),
    ServerSentEvent(b"4\n5"),
    ServerSentEvent(b"6", "said"),
    ServerSentEvent(b"7"),
    ServerSentEvent("ō…".encode(), "message", "8"),
    ServerSentEvent(b"9", "message", "8"),
    ServerSentEvent(b"10", "message", "8"),
    ServerSentEvent(b"11", "last", "8"),
]


@given(st.sets(st.integers(1, len(PLAIN) - 1)))
def test_borders_do_not_matter_where_all_lines_end_alike(cuts: set[int]):
    assert feed(cut(PLAIN, cuts)) == PLAIN_EVENTS


def test_an_object_without_a_field_is_an_event_too():
    bare = b'data: 1\r\n\r\n{\r\n  "error": {"code": 499},\r\n  "a": "b"\r\n}\r\n'
    [first, second] = feed([bare])
    assert first.data == b"1"
    assert second.json() == {"error": {"code": 499}, "a": "b"}


def test_a_bare_error_may_be_in_a_list():
    """As Gemini sends it in the middle of a stream."""
    bare = b'data: 1\r\n\r\n[{\r\n  "error": {"code": 503}\r\n}\r\n]\r\n'
    [_, second] = feed([bare])
    assert second.json() == [{"error": {"code": 503}}]
    assert len(feed([b"data: 1\n\n[DONE]\n\n"])) == 1


@pytest.mark.parametrize(
    "stream",
    [
        b"{half an object\n\ndata: a\n\n",
        b"{noise\ndata: a\n\n",
        b"data: a\n{noise\n\n",
        b"data: a\n\n{cut",
    ],
)
def test_noise_that_only_begins_like_an_object_is_none(stream: bytes):
    assert feed([stream]) == [ServerSentEvent(b"a")]


lines = st.sampled_from(
    [
        *(b"data: a", b"data:", b"event: e", b"id: 1", b": c", b"", b"\xef\xbb\xbf"),
        *(b"\xff", b"{", b"}", b"{}"),
    ]
)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
streams = st.lists(st.tuples(lines, ends)).map(
    lambda pairs: b"".join(line + end for line, end in pairs)
)


@given(streams, st.data())
def test_any_cut_of_any_stream_gives_the_same_events(stream: bytes, data):
    cuts = data.draw(st.sets(st.integers(1, max(1, len(stream) - 1))))
    assert feed(cut(stream, cuts)) == feed([stream])


@given(st.text(), st.text(alphabet="abc.", min_size=1))
def test_encoded_events_are_decoded_unchanged(id: str, type: str):
    id = "".join(character for character in id if character not in "\0\r\n")
    [event] = feed([comment("heartbeat"), encode({"type": type}, b'{"a":1}', id)])
    assert event.event == type
    assert event.json() == {"a": 1}
    assert event.id in (id, id.removeprefix(" "))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'"\\ud83d"', "\ud83d"),
        (b'"\xff"', "\ufffd"),
        (b'{"a": NaN}', None),
    ],
)
def test_json_that_hosts_send_although_it_is_none(data: bytes, value):
    parsed = ServerSentEvent(data).json()
    assert value is None or parsed == value


def test_invalid_json_is_a_value_error():
    with pytest.raises(ValueError, match="Expecting value"):
        ServerSentEvent(b"<html>").json()
