"""CPU time of one chunk, from received bytes to the bytes for a subscriber.

Parley's reader does what a turn does: frames, JSON, deltas, canonical events, and each
event's bytes for a WebSocket. The vendor's SDK reads the same bytes into its events and
its snapshot. Every frame arrives in a read of its own, which is the costliest case.

If RECORDINGS_DIR is set, the longest recorded stream of each wire format is measured
as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anthropic
import httpx
import httpx2
import openai
from google import genai
from google.genai import types

from benchmarks.streams import STREAMS, recorded
from benchmarks.table import ratio, show
from conversations.engine.event_log import TurnLog
from llm.providers import all_providers
from llm.wire.codec import Codec
from llm.wire.items import output_text
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import SSEDecoder

LENGTHS = (1_000, 10_000, 100_000)  # chunks
SDK_LONGEST = 10_000  # chunks; above it the SDKs' snapshots take minutes
ROUNDS = 3  # the fastest round of each reader counts

Read = Callable[[Sequence[bytes]], str]


def main() -> None:
    codecs = {c.name: c for p in all_providers().values() for c in p.codecs.values()}
    rows: list[list[object]] = []
    for name, frames_of in STREAMS.items():
        if name not in codecs:
            continue
        readers: dict[str, Read] = {"parley": _parley_reader(codecs[name])}
        readers[SDK_NAMES[name]] = SDK[name]
        rows += _compared(name, frames_of, readers)
    show(
        "Decode: CPU, µs a chunk, bytes to events",
        ["wire", "reader", *(f"{length:,} chunks" for length in LENGTHS), "at 10,000"],
        rows,
    )
    if rows := _recorded(codecs):
        show(
            "Decode: CPU, µs a chunk, longest recorded stream",
            ["wire", "chunks", "parley", "SDK", "ratio"],
            rows,
        )


def _recorded(codecs: dict[str, Codec]) -> list[list[object]]:
    """One row per recorded wire format; both readers must return the same text."""
    rows: list[list[object]] = []
    for name, frames in recorded().items():
        readers = {"parley": _parley_reader(codecs[name]), "SDK": SDK[name]}
        seconds = _fastest(readers, frames, len(frames))
        parley, sdk = (seconds[r] * 1e6 / len(frames) for r in ("parley", "SDK"))
        rows.append([name, len(frames), parley, sdk, ratio(sdk, parley)])
    return rows


def _compared(
    name: str,
    frames_of: Callable[[int], Iterable[bytes]],
    readers: dict[str, Read],
) -> list[list[object]]:
    """One row per reader of this wire format."""
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
    """CPU seconds by reader. Readers alternate, so that noise affects all of them."""
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


def _parley_reader(codec: Codec) -> Read:
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
        return output_text(builder.output)

    return read


# The SDKs


def _answered_with(frames: Sequence[bytes], http: Any = httpx2) -> Any:
    """An httpx (or httpx2) client that answers every request with `frames`."""

    def answer(request: Any) -> Any:
        headers = {"content-type": "text/event-stream"}
        return http.Response(200, headers=headers, content=iter(frames))

    return http.Client(transport=http.MockTransport(answer))


def _of_openai(frames: Sequence[bytes]) -> openai.OpenAI:
    http = _answered_with(frames)
    return openai.OpenAI(api_key="none", base_url="http://bench/v1", http_client=http)


def _openai_chat(frames: Sequence[bytes]) -> str:
    sdk = _of_openai(frames)
    with sdk.chat.completions.stream(model="bench", messages=[]) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0].message.content or ""


def _openai_responses(frames: Sequence[bytes]) -> str:
    with _of_openai(frames).responses.stream(model="bench", input="") as stream:
        for _ in stream:
            pass
        return stream.get_final_response().output_text


def _anthropic(frames: Sequence[bytes]) -> str:
    sdk = anthropic.Anthropic(
        api_key="none", base_url="http://bench", http_client=_answered_with(frames)
    )
    with sdk.messages.stream(model="bench", max_tokens=9, messages=[]) as stream:
        for _ in stream:
            pass
        content = stream.get_final_message().content
    return "".join(block.text for block in content if block.type == "text")


def _gemini(frames: Sequence[bytes]) -> str:
    """Read with a chat of Google's SDK, its only object that assembles an answer."""
    http = types.HttpOptions(
        base_url="http://bench", httpx_client=_answered_with(frames, httpx)
    )
    with genai.Client(api_key="none", http_options=http) as sdk:
        chat = sdk.chats.create(model="bench")
        for _ in chat.send_message_stream("?"):
            pass
        answer = chat.get_history()[1:]
    parts = (part for content in answer for part in content.parts or ())
    return "".join(part.text or "" for part in parts if not part.thought)


SDK: dict[str, Read] = {
    "anthropic": _anthropic,
    "gemini": _gemini,
    "openai_chat": _openai_chat,
    "openai_responses": _openai_responses,
}
SDK_NAMES = {
    "anthropic": "anthropic SDK",
    "gemini": "google-genai SDK",
    "openai_chat": "openai SDK",
    "openai_responses": "openai SDK",
}
