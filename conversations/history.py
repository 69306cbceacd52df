"""Which items fit the next request, and how the prompt is put together. Pure.

Tokens are estimated, never counted: a tokenizer a provider would be slow and still
wrong. The estimate only refuses what is hopeless; the provider has the last word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from llm.errors import ContextTooLarge
from llm.wire.items import Item, function_call_output, text_of

BYTES_A_TOKEN = 4
IMAGE_TOKENS = 1000  # a large image at high detail
FILE_TOKENS = 1000  # a short PDF; its bytes say nothing of its length
ITEM_TOKENS = 4  # role and framing
#: Fields in which text stands.
_TEXTS = ("arguments", "output", "content", "summary")
_STOPPED = "Error: the call was stopped before it had a result."


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """Something the model should know, under a heading of its own."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    instructions: str
    items: Sequence[Item]


def render_prompt(
    instructions: str,
    items: Sequence[Item],
    *,
    context: Sequence[ContextBlock] = (),
    tools: Sequence[dict[str, Any]] = (),
    context_window: int | None = None,
    max_output_tokens: int | None = None,
) -> Prompt:
    """System prompt first, then context, then the conversation without old system
    turns.

    Raises ContextTooLarge where prompt and answer cannot fit `context_window` (tokens).
    """
    system = [i for i in items if i.get("role") == "system"]
    if system:
        items = [i for i in items if i.get("role") != "system"]
    blocks = [f"### {block.title}\n\n{block.text}" for block in context if block.text]
    heading = ["## Context\n\n" + "\n\n".join(blocks)] if blocks else []
    newest = [text_of(item) for item in system[-1:]]
    whole = "\n\n".join(filter(None, [instructions, *newest, *heading]))
    kept = mended(items)
    if context_window:
        room = max(context_window - (max_output_tokens or 0), context_window // 2)
        if (tokens := estimate(whole, kept, tools)) > room:
            raise ContextTooLarge(
                f"The conversation needs about {tokens} tokens and the model takes"
                f" {context_window}; shorten it or choose a larger model."
            )
    return Prompt(whole, kept)


def mended(items: Iterable[Item]) -> list[Item]:
    """History as every provider takes it: whole calls, each with its output.

    A call that was cut short is left out; one that was stopped gets an output that says
    so. Text that was begun anew after an interruption is told once.
    """
    history: list[Item] = []
    open_calls: dict[str, Item] = {}
    known: set[str] = set()
    for item in items:
        if item.get("parley:interrupted"):
            continue
        kind = item["type"]
        if kind == "message":
            if open_calls and item.get("role") != "assistant":
                history += _stopped(open_calls)
        elif kind == "function_call":
            if item.get("status", "completed") != "completed":
                continue
            open_calls[item["call_id"]] = item
            known.add(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in known:
                continue  # the answer to a call that is gone
            open_calls.pop(item["call_id"], None)
        elif kind == "reasoning" and item.get("status") == "incomplete":
            continue
        history.append(item)
    return history + _stopped(open_calls)


def _stopped(open_calls: dict[str, Item]) -> list[Item]:
    outputs = [function_call_output(call_id, _STOPPED) for call_id in open_calls]
    open_calls.clear()
    return outputs


def estimate(
    instructions: str, items: Sequence[Item], tools: Sequence[dict[str, Any]] = ()
) -> int:
    """Tokens, roughly."""
    size = len(instructions.encode()) + sum(len(str(tool)) for tool in tools)
    files = 0
    for item in items:
        for field in _TEXTS:
            value = item.get(field)
            if isinstance(value, str):
                size += _size(value)
            elif isinstance(value, list):
                for text, tokens in map(_part, value):
                    size += _size(text)
                    files += tokens
    return size // BYTES_A_TOKEN + files + len(items) * ITEM_TOKENS


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _part(part: Item) -> tuple[str, int]:
    """Its text, and the tokens of what is none."""
    if part.get("type") == "input_image":
        return "", IMAGE_TOKENS
    data = part.get("file_data") or ""
    if data.startswith("data:") and not data.startswith("data:text/"):
        return "", FILE_TOKENS
    return part.get("text") or data, 0
