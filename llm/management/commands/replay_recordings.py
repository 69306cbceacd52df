"""Replay recorded provider traffic through the real client and codecs.

Each recording is served over HTTP on loopback, with its body cut at random offsets, and
requested with `llm.http.client.stream`. The result is written in the recordings'
vocabulary, so that it can be compared with the result of the vendor's SDK for the same
bytes.
"""

from __future__ import annotations

import asyncio
import base64
import random
from argparse import ArgumentParser
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from django.core.management.base import BaseCommand, CommandError

from llm.errors import LLMError, ProviderDown
from llm.http import client
from llm.provider import Endpoint
from llm.providers import all_providers
from llm.wire import model_lists
from llm.wire.codecs.gemini.decoder import PROMPT_BLOCKED
from llm.wire.codecs.unshown_media import MEDIA_NOTE
from llm.wire.deltas import FinishDelta
from llm.wire.items import Item, text_of, user_message
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder

Recording = dict[str, Any]
Result = dict[str, Any]

#: By a recording's `api`: the codec's name, and a provider with this codec for
#: recordings of unknown providers. An api without a codec is skipped.
APIS = {
    "chat": ("openai_chat", "openai_compatible"),
    "responses": ("openai_responses", "openai"),
    "messages": ("anthropic", "anthropic"),
    "generateContent": ("gemini", "gemini"),
}
#: The api of model lists. Their format is detected from the body, without a codec.
LISTS = "models"
_PIECES = (1, 2, 3, 7, 19, 64, 300, 1400)  # bytes
#: Headers of the recorded connection, which do not apply to the replayed one.
_HOP_HEADERS = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "keep-alive",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
#: Fields with signatures or encrypted data that only the provider can read.
_PROOFS = frozenset(
    {
        "encrypted_content",
        "reasoning_encrypted",
        "reasoning_opaque",
        "signature",
        "thought_signature",
        "thoughtSignature",
    }
)
_CALLS = ("function_call", "custom_tool_call")  # which the client runs
_PROOF_BLOCKS = frozenset({"reasoning.encrypted", "redacted_thinking"})


class Command(BaseCommand):
    help = "Send recorded provider traffic through the client and write the results."
    requires_system_checks = ()  # the command uses neither URLs nor the database

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "folder", type=Path, help="folder of recordings, one JSON file each"
        )
        parser.add_argument("--provider", help="only recordings of this provider")
        apis = ", ".join([*APIS, LISTS])
        parser.add_argument("--api", help=f"only recordings of this API: {apis}")
        parser.add_argument("--seed", type=int, default=0, help="of the random cuts")
        parser.add_argument("--out", type=Path, required=True, help="JSON file")

    def handle(self, *, folder: Path, out: Path, seed: int, **options: Any) -> None:
        if not folder.is_dir():
            raise CommandError(f"There is no folder {str(folder)!r}.")
        chosen = list(
            recordings(folder, provider=options["provider"], api=options["api"])
        )
        served = [recording for recording in chosen if is_supported(recording)]
        results = asyncio.run(replay(served, seed))
        out.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2))
        self.stdout.write(f"{len(results)} recordings replayed into {out}.")
        skipped = Counter(r["api"] for r in chosen if not is_supported(r))
        for api, count in sorted(skipped.items()):
            self.stdout.write(f"{count} of the api {api!r} skipped: no codec yet.")


def recordings(
    folder: Path, *, provider: str | None = None, api: str | None = None
) -> Iterator[Recording]:
    """The recordings of a folder, sorted by file name; optionally filtered."""
    for path in sorted(folder.glob("*.json")):
        if path.name == "INDEX.json":
            continue
        recording = orjson.loads(path.read_bytes())
        if provider in (None, recording["provider"]) and api in (
            None,
            recording["api"],
        ):
            yield recording


def endpoint_of(recording: Recording) -> Endpoint | None:
    """The endpoint of the recorded provider; None if its format is not supported."""
    name, fallback = APIS.get(recording["api"], ("", ""))
    providers = all_providers()
    for kind in (recording["provider"], fallback):
        if kind in providers and name in providers[kind].codecs:
            provider = providers[kind]
            return Endpoint(
                provider=provider,
                codec=provider.codecs[name],
                api_key="recorded",
                allow_private_network=True,
            )
    return None


def is_supported(recording: Recording) -> bool:
    return recording["api"] == LISTS or endpoint_of(recording) is not None


def body_of(recording: Recording) -> bytes:
    response = recording["response"]
    if (text := response.get("body_text")) is not None:
        return str(text).encode()
    return base64.b64decode(response["body_base64"])


def pieces(body: bytes, chance: random.Random) -> Iterator[bytes]:
    """`body` cut at random offsets, also inside characters, line ends and keywords."""
    start = 0
    while start < len(body):
        end = start + chance.choice(_PIECES)
        yield body[start:end]
        start = end


# Replaying


async def replay(chosen: Iterable[Recording], seed: int) -> dict[str, Result]:
    """The results by recording id."""
    by_id = {recording["id"]: recording for recording in chosen}
    try:
        async with _serve(by_id, seed) as address:
            return {
                id: await (_list if r["api"] == LISTS else _ask)(r, f"{address}/{id}")
                for id, r in by_id.items()
            }
    finally:
        await client.aclose()


async def _ask(recording: Recording, base_url: str) -> Result:
    recorded = endpoint_of(recording)
    assert recorded is not None
    endpoint = Endpoint(
        provider=recorded.provider,
        codec=recorded.codec,
        api_key=recorded.api_key,
        base_url=base_url,
        allow_private_network=True,
    )
    transcript = ReplayedCall(recording["api"])
    call = client.ProviderCall()
    try:
        stream = client.stream(endpoint, request_of(recording), call)
        async with aclosing(stream) as batches:
            async for deltas in batches:
                transcript.builder.feed(deltas)
    except LLMError as exc:
        transcript.error = exc
    return transcript.result(
        http_status=call.http_status, request_id=call.request_id or None
    )


async def _list(recording: Recording, base_url: str) -> Result:
    providers = all_providers()
    host = providers.get(recording["provider"], providers["openai_compatible"])
    endpoint = Endpoint(
        provider=host,
        codec=host.codec(),
        api_key="recorded",
        base_url=base_url,
        allow_private_network=True,
    )
    transcript, ids = ReplayedCall(), []
    try:
        body = await client.get(endpoint, "/models")
        ids = [info.id for info in model_lists.parse_models(body)]
    except LLMError as exc:
        transcript.error = exc
    return {**transcript.result(http_status=None, request_id=None), "model_ids": ids}


def request_of(recording: Recording) -> Request:
    return Request(
        model=recording["model"] or "unknown",
        items=[user_message("The recorded question.")],
        stream=recording["stream"],
    )


@asynccontextmanager
async def _serve(by_id: Mapping[str, Recording], seed: int) -> AsyncIterator[str]:
    """Serve each recording under `/<its id>`, whatever the request; yield the URL."""

    async def answer(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            recording = by_id[head.split("/", 2)[1]]
            chance = random.Random(f"{seed} {recording['id']}")
            await _send(writer, recording, chance)
        except ConnectionError:
            pass  # the client may close an error response early
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _send(
    writer: asyncio.StreamWriter, recording: Recording, chance: random.Random
) -> None:
    response = recording["response"]
    lines = [f"HTTP/1.1 {response['status']} Recorded"]
    lines += [
        f"{name}: {value}"
        for name, value in response["headers"].items()
        if name.lower() not in _HOP_HEADERS
    ]
    lines += ["transfer-encoding: chunked", "connection: close", "", ""]
    writer.write("\r\n".join(lines).encode())
    for piece in pieces(body_of(recording), chance):
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(0)  # let the reader see the cut
    if not recording.get("cut"):
        writer.write(b"0\r\n\r\n")  # without it the response is incomplete
    await writer.drain()


# Results


@dataclass(slots=True)
class ReplayedCall:
    """The decoded result of one call, in the recordings' vocabulary."""

    builder: ResponseBuilder
    api: str = ""
    error: LLMError | None = None

    def __init__(self, api: str = "") -> None:
        self.api = api
        self.builder = ResponseBuilder(id="resp_replay", model="")
        self.error = None
        self.builder.begin_call()

    def result(self, *, http_status: int | None, request_id: str | None) -> Result:
        self.builder.end_call(whole=self.error is None)
        items = self.builder.output
        signatures = sum(_proofs(raw) for raw in self.builder.proofs.values())
        thoughts = [item for item in items if item["type"] == "reasoning"]
        return {
            "outcome": self._outcome(http_status),
            "text": MEDIA_NOTE.sub("", _text_of_parts(items, "output_text", "text")),
            "refusal": self._refusal(),
            "reasoning_present": bool(thoughts or signatures),
            "reasoning_text": "".join(_thought(item) for item in thoughts),
            "signatures": signatures,
            "tool_calls": [_call(item) for item in items if item["type"] in _CALLS],
            "items": [item["type"] for item in items],
            "finish": _finish(self.builder.finish),
            "usage": _usage(self.builder.call_usage.raw),
            "request_id": request_id or (self.error and self.error.request_id),
            "response_id": self.builder.start_delta.response_id,
            "model": self.builder.start_delta.model,
            "error": _error(self.error),
        }

    def _refusal(self) -> str:
        """The refusal's text; "" for Anthropic, whose SDK has none in the content (our
        decoder takes it from `stop_details`)."""
        if self.api == "messages":
            return ""
        return _text_of_parts(self.builder.output, "refusal", "refusal")

    def _outcome(self, http_status: int | None) -> str:
        finish, error = self.builder.finish, self.error
        if error is None:
            cut = finish is not None and finish.reason in ("length", "content_filter")
            return "incomplete" if cut else "completed"
        if http_status is None or http_status >= 400:
            return "error"
        if error.upstream_code or error.upstream_type:
            return "stream_error"
        if isinstance(error, ProviderDown):
            return "connection_lost" if error.__cause__ else "no_finish"
        return "error_in_200"


def _text_of_parts(items: Iterable[Item], kind: str, field: str) -> str:
    return "".join(
        part[field]
        for item in items
        if item["type"] == "message" and text_of(item)
        for part in item["content"]
        if part["type"] == kind
    )


def _thought(item: Item) -> str:
    parts = [*item.get("summary", ()), *item.get("content", ())]
    return "".join(part["text"] for part in parts)


def _call(item: Item) -> dict[str, Any]:
    custom = item["type"] == "custom_tool_call"
    raw = item["input"] if custom else item.get("arguments", "")
    return {
        "id": item["call_id"],
        "name": item.get("name"),
        "arguments": None if custom else _parse_json(raw),
        "arguments_raw": raw,
        "kind": "custom" if custom else "function",
        "maybe_truncated": item["status"] == "incomplete",
    }


def _parse_json(text: str) -> Any:
    try:
        return orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return None


def _proofs(raw: Any) -> int:
    if isinstance(raw, list):
        return sum(_proofs(value) for value in raw)
    if not isinstance(raw, dict) or _is_sealed(str(raw.get("type"))):
        return 0
    if raw.get("type") in _PROOF_BLOCKS:
        return 1
    own = sum(bool(raw.get(name)) for name in _PROOFS)
    return own + sum(_proofs(value) for value in raw.values())


def _is_sealed(kind: str) -> bool:
    """Whether the content is encrypted but no proof."""
    return kind == "compaction" or kind.endswith("_tool_result")


def _finish(finish: FinishDelta | None) -> str | None:
    """Why the answer ended; None if the provider blocked the prompt."""
    if finish is None or (finish.raw or "").startswith(PROMPT_BLOCKED):
        return None
    return finish.raw


def _usage(raw: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The vendor's own token counts, not the canonical ones."""
    if raw is None:
        return None
    if any(name.endswith("TokenCount") for name in raw):  # Google's
        return {
            "input": raw.get("promptTokenCount"),
            "output": raw.get("candidatesTokenCount"),
            "total": raw.get("totalTokenCount"),
            "cached": raw.get("cachedContentTokenCount"),
            "reasoning": raw.get("thoughtsTokenCount"),
            "cache_write": None,
            "raw": raw,
        }
    into = raw.get("prompt_tokens_details") or raw.get("input_tokens_details") or {}
    out = raw.get("completion_tokens_details") or raw.get("output_tokens_details") or {}
    return {
        "input": raw.get("prompt_tokens", raw.get("input_tokens")),
        "output": raw.get("completion_tokens", raw.get("output_tokens")),
        "total": raw.get("total_tokens"),
        "cached": into.get("cached_tokens", raw.get("cache_read_input_tokens")),
        "reasoning": out.get("reasoning_tokens", out.get("thinking_tokens")),
        "cache_write": into.get(
            "cache_write_tokens", raw.get("cache_creation_input_tokens")
        ),
        "raw": raw,
    }


def _error(error: LLMError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {
        "class": error.code,
        "status": error.upstream_status,
        "code": error.upstream_code,
        "type": error.upstream_type,
        "message": error.detail,
        "retry_after": error.retry_after,
    }
