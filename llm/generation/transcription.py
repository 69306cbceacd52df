"""Speech to text: one recording to a provider's `/audio/transcriptions`.

OpenAI's form, which Groq, Mistral, vLLM and most compatible hosts take as well. In: the
bytes of a recording. Out: its text, and a filled-in `ProviderCall` for the row.

Source: https://platform.openai.com/docs/api-reference/audio/createTranscription
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llm.errors import BadResponse, ModelNotAvailable, ProviderTimeout
from llm.http import client
from llm.http.client import ProviderCall
from llm.http.request import FormFile
from llm.provider import Route
from llm.wire.bounded_json import TooManyValues, loads, loads_lenient
from llm.wire.deltas import FinishDelta, UsageDelta
from llm.wire.sanitize import sanitize_text

PATH = "/audio/transcriptions"
PATIENCE = 60.0  # seconds for the whole call
MAX_TEXT = 100_000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioFile:
    data: bytes
    kind: str  # "webm", "mp4", …, the ending of its file name
    content_type: str


#: How the files of each kind begin, and the type they are sent with.
_BEGINNINGS = (
    ("webm", 0, b"\x1a\x45\xdf\xa3", "audio/webm"),
    ("ogg", 0, b"OggS", "audio/ogg"),
    ("wav", 8, b"WAVE", "audio/wav"),
    ("mp4", 4, b"ftyp", "audio/mp4"),
    ("mp3", 0, b"ID3", "audio/mpeg"),
    ("mp3", 0, b"\xff\xfb", "audio/mpeg"),
    ("flac", 0, b"fLaC", "audio/flac"),
)
KINDS = tuple(dict.fromkeys(kind for kind, *_ in _BEGINNINGS))


def audio_file_of(data: bytes) -> AudioFile | None:
    """By how the bytes begin, whatever a client says of them; None for no recording."""
    for kind, at, beginning, content_type in _BEGINNINGS:
        if data.startswith(beginning, at):
            return AudioFile(data=data, kind=kind, content_type=content_type)
    return None


async def transcribe(route: Route, recording: AudioFile, call: ProviderCall) -> str:
    """The text that is spoken; "" for silence. Fills in `call`.

    Raises LLMError and nothing else.
    """
    if not route.endpoint.codec.name.startswith("openai"):
        raise ModelNotAvailable("This provider has no transcription.")
    file = FormFile(
        name=f"speech.{recording.kind}",
        data=recording.data,
        content_type=recording.content_type,
    )
    form = {"model": route.model, "response_format": "json"}
    try:
        async with asyncio.timeout(PATIENCE):
            body = await client.upload(route.endpoint, PATH, form, file, call)
    except TimeoutError as exc:
        call.error = ProviderTimeout()
        raise call.error from exc
    try:
        text = _read(body, call)
    except BadResponse as exc:
        call.error = exc
        raise
    call.finish = FinishDelta("stop")
    return text


def _read(body: bytes, call: ProviderCall) -> str:
    try:
        answer = _loads(body)
    except ValueError as exc:
        raise BadResponse(detail="The answer is no JSON.") from exc
    text = answer.get("text") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        raise BadResponse(detail="The answer has no text.")
    if isinstance(usage := answer.get("usage"), dict):
        call.usage = _usage(usage)
    return sanitize_text(text[:MAX_TEXT]).strip()


def _loads(body: bytes) -> Any:
    """Some hosts send halves of characters, which are no JSON."""
    try:
        return loads(body)
    except TooManyValues:
        raise
    except ValueError:
        return loads_lenient(body.decode())


def _usage(usage: Mapping[str, Any]) -> UsageDelta:
    """Tokens; of models that are paid by the minute none are known."""
    return UsageDelta(
        input_tokens=_count(usage.get("input_tokens")),
        output_tokens=_count(usage.get("output_tokens")),
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
