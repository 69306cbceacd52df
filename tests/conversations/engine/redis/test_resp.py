from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ResponseError

from conversations.engine.redis.resp import Replies, pack

REPLIES = (
    b"+OK\r\n:42\r\n$-1\r\n$0\r\n\r\n*0\r\n*-1\r\n$5\r\na\r\nb!\r\n-ERR no: 1\r\n"
    b"*2\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\ne\r\n$2\r\n{}\r\n*0\r\n+PONG\r\n"
)
MEANT = [
    b"OK",
    42,
    None,
    b"",
    [],
    None,
    b"a\r\nb!",
    "ERR no: 1",
    [[b"1-0", [b"e", b"{}"]], []],
    b"PONG",
]


def plain(reply: object) -> object:
    return str(reply) if isinstance(reply, ResponseError) else reply


@given(st.sets(st.integers(1, len(REPLIES) - 1)))
def test_chunk_borders_do_not_matter(cuts: set[int]):
    replies, borders = Replies(), [0, *sorted(cuts), len(REPLIES)]
    found = [
        reply for a, b in pairwise(borders) for reply in replies.feed(REPLIES[a:b])
    ]
    assert [plain(reply) for reply in found] == MEANT


def test_commands_are_packed_with_the_length_of_their_bytes():
    assert pack([("SET", "ä", b"\r\n"), ("EXPIRE", "ä", 5)]) == (
        b"*3\r\n$3\r\nSET\r\n$2\r\n\xc3\xa4\r\n$2\r\n\r\n\r\n"
        b"*3\r\n$6\r\nEXPIRE\r\n$2\r\n\xc3\xa4\r\n$1\r\n5\r\n"
    )
