"""generateContent of Gemini 3 and later, which wants its calls signed.

A signature vouches for its part. Of parallel calls only the first has one; at the end
of a text it is on an empty part.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import orjson

from llm.wire.items import Issuer

from .rules import PLACES, Body, Mark, Refusal, Rule, digest, refusal, seal, wish

_DATA = frozenset(
    {"text", "inlineData", "fileData", "functionCall", "functionResponse"}
)
#: The documented word for calls that Gemini did not make, in base64.
_NO_SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
#: Models that give their calls no ids.
_WITHOUT_IDS = "gemini-3-flash-preview"


def answer(body: Body, issuer: Issuer) -> Refusal | bytes:
    if refused := refusal(RULES, body, issuer):
        return refused
    parts, finish = _parts(body, issuer)
    return b"".join(_stream(parts, finish, issuer))


def assistant_content(body: Body) -> list[Any]:
    return [
        part for c in body["contents"] if c["role"] == "model" for part in c["parts"]
    ]


def issued(stream: bytes) -> list[Any]:
    chunks = [orjson.loads(f[6:]) for f in stream.split(b"\r\n\r\n") if f]
    return [
        part
        for chunk in chunks
        for part in chunk["candidates"][0]["content"].get("parts", ())
    ]


# Answers


def _marks(body: Body) -> Iterator[Mark]:
    for content in body["contents"]:
        if any("functionCall" in part for part in content["parts"]):
            yield "calls", ""
        for part in content["parts"]:
            if content["role"] == "user" and "text" in part:
                yield "user", part["text"]


def _parts(body: Body, issuer: Issuer) -> tuple[list[dict[str, Any]], str]:
    answer = digest(issuer, body["contents"])
    thought = {"text": f"Thinking about {answer}.", "thought": True}
    calls = [_call(answer, name, issuer) for name in PLACES]
    calls[0] = _signed(calls[0], issuer)
    match wish(list(_marks(body))):
        case "tools" | "cut":  # a call always comes whole
            return [thought, *calls], "STOP"
        case "halt":
            return [thought, calls[0]], "MAX_TOKENS"
        case "think":
            return [thought], "MAX_TOKENS"
        case "refuse":
            return [], "SAFETY"
    end = _signed({"text": ""}, issuer)
    return [thought, {"text": f"Said {answer}."}, end], "STOP"


def _call(answer: str, city: str, issuer: Issuer) -> dict[str, Any]:
    call: dict[str, Any] = {"name": "look", "args": {"at": city}}
    if issuer["model"] != _WITHOUT_IDS:
        call["id"] = digest(answer, city)
    return {"functionCall": call}


def _signed(part: dict[str, Any], issuer: Issuer) -> dict[str, Any]:
    return {**part, "thoughtSignature": seal(issuer, part)}


def _stream(parts: list[Any], finish: str, issuer: Issuer) -> Iterator[bytes]:
    for part in parts:
        yield _chunk({"content": {"role": "model", "parts": [part]}}, issuer)
    yield _chunk({"content": {}, "finishReason": finish}, issuer)


def _chunk(candidate: dict[str, Any], issuer: Issuer) -> bytes:
    chunk = {"candidates": [candidate], "modelVersion": issuer["model"]}
    return b"data: %b\r\n\r\n" % orjson.dumps(chunk)


# Rules


def _contents(body: Body) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    for number, content in enumerate(body["contents"]):
        yield number, content["role"], content["parts"]


def _wrong_roles(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for _, role, _ in _contents(body):
        if role not in ("user", "model"):
            yield {}


def _empty(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, _, parts in _contents(body):
        for part in parts or [{}]:
            blank = part == {"text": ""}
            if len(part.keys() & _DATA) != 1 or blank:
                yield {"number": number}


def _names(parts: list[dict[str, Any]], kind: str) -> list[tuple[str, str | None]]:
    bodies = [part[kind] for part in parts if kind in part]
    return [(call["name"], call.get("id")) for call in bodies]


def _unanswered(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    end: dict[str, Any] = {"parts": []}
    for before, after in pairwise([*body["contents"], end]):
        calls = _names(before["parts"], "functionCall")
        if len(calls) != len(_names(after["parts"], "functionResponse")) and calls:
            yield {}


def _uncalled(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    start: dict[str, Any] = {"parts": []}
    for before, after in pairwise([start, *body["contents"]]):
        responses = _names(after["parts"], "functionResponse")
        if responses and not _names(before["parts"], "functionCall"):
            yield {}


def _mismatched(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for before, after in pairwise(body["contents"]):
        calls = _names(before["parts"], "functionCall")
        if calls and calls != _names(after["parts"], "functionResponse"):
            yield {}


def _wrong_start(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    if body["contents"][0]["role"] != "user":
        yield {}
    for before, after in pairwise(body["contents"]):
        if after["role"] == before["role"] == "model":
            yield {}


def _bare_objects(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, _, parts in _contents(body):
        for part in parts:
            response = part.get("functionResponse", {"response": {}})
            if not isinstance(response["response"], dict):
                yield {"number": number}


def _unsigned(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    """Only the current turn, which begins with the last user message, is checked."""
    last = max(
        number
        for number, role, parts in _contents(body)
        if role == "user" and any("functionResponse" not in part for part in parts)
    )
    for number, _, parts in _contents(body):
        calls = [part for part in parts if "functionCall" in part]
        if number > last and calls and not calls[0].get("thoughtSignature"):
            yield {"name": calls[0]["functionCall"]["name"], "number": number}


def _corrupted(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for _, role, parts in _contents(body):
        for part in parts:
            unsigned = {k: v for k, v in part.items() if k != "thoughtSignature"}
            signature = part.get("thoughtSignature")
            own = signature == seal(issuer, unsigned) and role == "model"
            skipped = signature == _NO_SIGNATURE and "functionCall" in part
            if signature is not None and not (own or skipped):
                yield {}


RULES = [
    Rule("Please use a valid role: user, model.", _wrong_roles),
    Rule(
        "contents[{number}].parts: each must have exactly one data field, and text must"
        " not be empty.",
        _empty,
    ),
    Rule(
        "Please ensure that function call turn comes immediately after a user turn or"
        " after a function response turn.",
        _wrong_start,
    ),
    Rule(
        "Please ensure that the number of function response parts is equal to the"
        " number of function call parts of the function call turn.",
        _unanswered,
    ),
    Rule(
        "Please ensure that function response turn comes immediately after a function"
        " call turn.",
        _uncalled,
    ),
    Rule("Function responses must be in the order of their calls.", _mismatched),
    Rule(
        "Invalid value at 'contents[{number}].parts[0].function_response.response'.",
        _bare_objects,
    ),
    Rule(
        "Function call is missing a thought_signature in functionCall parts."
        " default_api:{name}, position {number}.",
        _unsigned,
    ),
    Rule("Thought signature is not valid.", _corrupted),
]
