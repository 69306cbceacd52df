"""HTTP requests of isolated tools have bounds, and their frames survive any header."""

from __future__ import annotations

import asyncio

import orjson

from tools.http.exchange import FetchedResponse
from tools.python.fetch_frames import Frame, decode_response, encode_response
from tools.python.guarded_fetch import MAX_AT_ONCE, GuardedFetches


def a_request(number: int) -> Frame:
    """It is refused at once, as its address is private."""
    return {
        "fetch": number,
        "method": "GET",
        "url": "http://127.0.0.1/",
        "headers": {},
        "body": None,
    }


async def test_a_process_that_reads_no_answers_gets_a_bounded_number_of_them():
    sent: list[Frame] = []
    all_wait, may_read = asyncio.Event(), asyncio.Event()

    async def send(frame: Frame) -> None:
        sent.append(frame)
        if len(sent) == MAX_AT_ONCE:
            all_wait.set()
        await may_read.wait()

    fetches = GuardedFetches(send, ())
    for number in range(MAX_AT_ONCE):
        await fetches.start(a_request(number))
    one_more = asyncio.ensure_future(fetches.start(a_request(MAX_AT_ONCE)))
    await all_wait.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not one_more.done()
    may_read.set()
    await one_more
    await fetches.close()


def test_bytes_of_headers_that_are_no_text_are_replaced():
    answer = FetchedResponse(
        status=200, reason="\udcff", headers={"x": "a\udcff"}, charset="\udcff"
    )
    frame = orjson.loads(orjson.dumps(encode_response(answer)))
    read = decode_response({"answer": 1, **frame})
    assert (read.reason, read.headers, read.charset) == ("�", {"x": "a�"}, "�")
