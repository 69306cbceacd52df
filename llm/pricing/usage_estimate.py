"""Tokens that a host did not report, or counts apart from an answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llm.wire.deltas import (
    Delta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)

BYTES_A_TOKEN = 4
FILE_TOKENS = 1000  # of a picture or a file
MIN_FILE = 2000  # bytes of data in a request that count as a file
#: How the data of a file begins in the bodies of requests.
_FILE_STARTS = (b";base64,", b'"data":"')


def measure_prompt(body: bytes) -> int:
    """Tokens of a request's body: its text by the byte, its files by the piece."""
    size, files = len(body), 0
    if size > MIN_FILE:
        for start in _FILE_STARTS:
            at = body.find(start)
            while at >= 0:
                at += len(start)
                end = body.find(b'"', at)
                if (length := (end if end >= 0 else len(body)) - at) >= MIN_FILE:
                    size, files = size - length, files + 1
                at = body.find(start, at + length)
    return size // BYTES_A_TOKEN + files * FILE_TOKENS


def measure_answer(deltas: Sequence[Delta]) -> int:
    """Bytes of text, reasoning and arguments of calls."""
    size = 0
    for delta in deltas:
        match delta:
            case TextDelta() | ReasoningDelta() | RefusalDelta():
                text = delta.text
            case ToolCallDelta():
                text = delta.arguments
            case _:
                continue
        size += len(text) if text.isascii() else len(text.encode(errors="replace"))
    return size


def estimate_usage(
    usage: UsageDelta, *, prompt_tokens: int, answer_bytes: int, has_ended: bool
) -> tuple[UsageDelta, bool]:
    """`usage` with what is missing, and whether something was.

    A host reports too few tokens of an answer that it could not end, or none.
    """
    output = usage.output_tokens
    written = -(-answer_bytes // BYTES_A_TOKEN)
    if output is None or (not has_ended and output < written):
        output = written
    prompt = prompt_tokens if usage.input_tokens is None else usage.input_tokens
    if (prompt, output) == (usage.input_tokens, usage.output_tokens):
        return usage, False
    return replace(usage, input_tokens=prompt, output_tokens=output), True


_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    "web_searches",
    "file_searches",
)


def include_apart(usage: UsageDelta) -> UsageDelta:
    """`usage` with the tokens that the host bills but counts apart in its counts."""
    total = usage
    for apart in usage.apart or ():
        counts = {
            name: (getattr(total, name) or 0) + more
            for name in _COUNTS
            if (more := getattr(apart.usage, name)) is not None
        }
        total = replace(total, **counts)
    return replace(total, apart=None)


def billed_tokens(usage: UsageDelta) -> int:
    """All tokens of a call, those that the host counts apart included."""
    whole = include_apart(usage) if usage.apart else usage
    return (whole.input_tokens or 0) + (whole.output_tokens or 0)
