"""Gemini's streamGenerateContent: thought signatures, hosted search, CONTINUATION."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.chaos.answers import Answer, Call, Part, Say, Search, Think, pieces
from tests.chaos.prompt import (
    Called,
    Entry,
    Output,
    Prompt,
    Text,
    Thought,
    entry_of_user,
    prompt_of,
)
from tests.chaos.prompt import Search as Searched

from .wire import Frame, event

#: The placeholder for a missing signature, from Google's documentation.
SENTINELS = (
    "skip_thought_signature_validator",
    "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
)


class GeminiWire:
    name = "gemini"

    def is_at(self, path: str) -> bool:
        return ":generateContent" in path or ":streamGenerateContent" in path

    def read(self, path: str, body: Any) -> Prompt | None:
        entries = [e for content in body["contents"] for e in _entries(content)]
        token = body.get("continuationToken") or ""
        return prompt_of(entries, streams="stream" in path, continues=token)

    def frames(self, answer: Answer, id: str) -> Iterator[Frame]:
        proof = next((p.proof for p in answer.parts if isinstance(p, Think)), "")
        signed = not any(isinstance(part, Call) for part in answer.parts)
        for part in answer.parts:
            for part_body in _parts(part):
                if "functionCall" in part_body and not signed and proof:
                    part_body, signed = {**part_body, "thoughtSignature": proof}, True
                yield _chunk(id, [part_body], is_content=True)
        if proof and not any(isinstance(part, Call) for part in answer.parts):
            yield _chunk(id, [{"text": "", "thoughtSignature": proof}], is_content=True)
        yield _chunk(id, [], finish="STOP", ends=True)

    def continuation(self, id: str, token: str) -> Frame:
        """The end of a portion: the same request with the token gets the rest."""
        return _chunk(id, [], finish="CONTINUATION", token=token)

    def error(self, status: int) -> Mapping[str, Any]:
        word = {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 400: "INVALID_ARGUMENT"}
        error = {"code": status, "message": "Chaos."}
        return {"error": {**error, "status": word.get(status, "INTERNAL")}}

    def error_frames(self) -> Sequence[Frame]:
        return [Frame(event(self.error(503), end=b"\r\n"))]

    def unfinished(self) -> bytes:
        return b""


def _entries(content: Mapping[str, Any]) -> Iterator[Entry]:
    for part in content["parts"]:
        proof = part.get("thoughtSignature")
        if proof and proof not in SENTINELS:
            yield Thought(proof)
        if call := part.get("functionCall"):
            yield Called(call["id"])
        elif response := part.get("functionResponse"):
            yield Output(response["id"])
        elif hosted := part.get("toolCall"):
            yield Searched(hosted["id"])
        elif (text := part.get("text")) and not part.get("thought"):
            is_user = content.get("role") == "user"
            yield entry_of_user(text) if is_user else Text(text)


def _parts(part: Part) -> Iterator[dict[str, Any]]:
    match part:
        case Think(text):
            for piece in pieces(text):
                yield {"text": piece, "thought": True}
        case Say(text):
            for piece in pieces(text):
                yield {"text": piece}
        case Call(id, name, arguments):
            yield {"functionCall": {"id": id, "name": name, "args": arguments}}
        case Search(id, query, url):
            kind = {"id": id, "toolType": "GOOGLE_SEARCH_WEB"}
            yield {"toolCall": {**kind, "args": {"queries": [query]}}}
            yield {"toolResponse": {**kind, "response": {"sources": [url]}}}


def _chunk(
    id: str,
    parts: list[dict[str, Any]],
    *,
    finish: str = "",
    token: str = "",
    is_content: bool = False,
    ends: bool = False,
) -> Frame:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}}
    if finish:
        candidate |= {"finishReason": finish}
    if token:
        candidate |= {"continuationToken": token}
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12}
    chunk = {"candidates": [candidate], "usageMetadata": usage, "responseId": id}
    return Frame(event(chunk, end=b"\r\n"), is_content=is_content, ends=ends)
