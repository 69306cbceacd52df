"""CPU of one chunk on its way from bytes to what a follower is sent, without network.

Ours does what a turn does: frames, JSON, deltas, canonical events, and each event's
bytes for one door. The SDK reads the same bytes into its own events and its own
snapshot. Every frame comes in a read of its own, which is the dearest way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import httpx
import openai

from benchmarks.streams import STREAMS
from benchmarks.table import ratio, show
from conversations.engine.log import TurnLog
from llm.providers import all_providers
from llm.wire.codec import Codec
from llm.wire.response import ResponseBuilder
from llm.wire.sse import SSEDecoder

LENGTHS = (1_000, 10_000, 100_000)  # chunks
SDK_LONGEST = 10_000  # chunks; beyond them its snapshots take minutes
ROUNDS = 3  # of all; the fastest of each counts

Read = Callable[[Sequence[bytes]], str]


def main() -> None:
    codecs = {c.name: c for p in all_providers().values() for c in p.codecs.values()}
    rows: list[list[object]] = []
    for name, frames_of in STREAMS.items():
        if name not in codecs:
            continue
        readers: dict[str, Read] = {"parley": _ours(codecs[name])}
        if name in SDK:
            readers["openai SDK"] = SDK[name]
        rows += _compared(name, frames_of, readers)
    show(
        "Decode: CPU, µs a chunk, bytes to events",
        ["wire", "reader", *(f"{length:,} chunks" for length in LENGTHS), "at 10,000"],
        rows,
    )


def _compared(
    name: str,
    frames_of: Callable[[int], Iterable[bytes]],
    readers: dict[str, Read],
) -> list[list[object]]:
    """A row for each reader of this wire format."""
    cost: dict[str, list[float | None]] = {reader: [] for reader in readers}
    for length in LENGTHS:
        frames = list(frames_of(length))
        seconds = _fastest(readers, frames, length)
        for reader in readers:
            spent = seconds.get(reader)
            cost[reader].append(None if spent is None else spent * 1e6 / length)
    base = cost["parley"][1]
    assert base
    return [
        [name, reader, *costs, ratio(costs[1] or 0.0, base)]
        for reader, costs in cost.items()
    ]


def _fastest(
    readers: dict[str, Read], frames: Sequence[bytes], length: int
) -> dict[str, float]:
    """CPU seconds by reader, taken in turns so that a noise falls on all."""
    seconds: dict[str, float] = {}
    texts: set[str] = set()
    for _ in range(ROUNDS):
        for reader, read in readers.items():
            if reader != "parley" and length > SDK_LONGEST:
                continue
            begun = time.process_time()
            texts.add(read(frames))
            spent = time.process_time() - begun
            seconds[reader] = min(spent, seconds.get(reader, spent))
    assert len(texts) == 1, "all read the same text"
    return seconds


def _ours(codec: Codec) -> Read:
    def read(frames: Sequence[bytes]) -> str:
        sse, decoder = SSEDecoder(), codec.decoder()
        builder = ResponseBuilder(id="resp_bench", model="bench")
        log, sent = TurnLog("resp_bench"), 0
        log.append(1, builder.start())
        builder.begin_call()
        for frame in frames:
            deltas = [d for event in sse.feed(frame) for d in decoder.feed(event)]
            if deltas:
                log.append(1, builder.feed(deltas))
                for entry in log.entries[sent:]:
                    assert entry.ws
                sent = len(log.entries)
        builder.feed(list(decoder.close()))
        log.append(1, builder.complete())
        text: str = builder.output[0]["content"][0]["text"]
        return text

    return read


# The SDK


def _sdk(frames: Sequence[bytes]) -> openai.OpenAI:
    """A client to which every request is answered with `frames`."""

    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, content=iter(frames))

    http = httpx.Client(transport=httpx.MockTransport(answer))
    return openai.OpenAI(api_key="none", base_url="http://bench/v1", http_client=http)


def _sdk_chat(frames: Sequence[bytes]) -> str:
    with _sdk(frames).chat.completions.stream(model="bench", messages=[]) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0].message.content or ""


def _sdk_responses(frames: Sequence[bytes]) -> str:
    with _sdk(frames).responses.stream(model="bench", input="") as stream:
        for _ in stream:
            pass
        return stream.get_final_response().output_text


SDK: dict[str, Read] = {"openai_chat": _sdk_chat, "openai_responses": _sdk_responses}
