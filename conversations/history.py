"""Which items fit the next request, and how the prompt is put together. Pure.

Tokens are estimated, never counted: a tokenizer a provider would be slow and still
wrong. The estimate only refuses what is hopeless; the provider has the last word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm.errors import ContextTooLarge
from llm.wire.items import Item, function_call_output, text_of
from llm.wire.past import Past, Thread, folded

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
    story: Story | None = None,
) -> Prompt:
    """System prompt first, then context, then the conversation without old system
    turns.

    `story` is what is known of how `items` begin. Raises ContextTooLarge where prompt
    and answer cannot fit `context_window` (tokens).
    """
    told, newest = _told(items, story)
    blocks = [f"### {block.title}\n\n{block.text}" for block in context if block.text]
    heading = ["## Context\n\n" + "\n\n".join(blocks)] if blocks else []
    whole = "\n\n".join(filter(None, [instructions, newest, *heading]))
    if context_window:
        room = max(context_window - (max_output_tokens or 0), context_window // 2)
        if (tokens := estimate(whole, told, tools)) > room:
            raise ContextTooLarge(
                f"The conversation needs about {tokens} tokens and the model takes"
                f" {context_window}; shorten it or choose a larger model."
            )
    return Prompt(whole, told)


@dataclass(frozen=True, slots=True)
class Story:
    """How the items of a conversation begin, as far as nothing leads across."""

    past: Past = field(default_factory=Past)  # mended, without system turns
    length: int = 0  # of the items as they were
    system: str = ""  # what the last system turn said
    ids: frozenset[str] = frozenset()  # of calls

    def longer(self, items: Sequence[Item]) -> Story:
        """Up to the last of `items`, of which these are the first; the same where a
        call or half an answer stands at the end. What does not go together with these
        begins the story anew."""
        _, rest = _parted(items[self.length :])
        if not rest or not _speaks(rest[-1], "assistant"):
            return self
        return self._with(items) or (self.length and Story()._with(items)) or self

    def is_followed_by(self, items: Sequence[Item]) -> bool:
        """Whether they say nothing about what came before them."""
        if not items or not _speaks(items[0], "user"):
            return False
        if not self.length:
            return True
        # What an approval is of, a codec may look for among all ids.
        approves = any("approval_request_id" in item for item in items)
        return not approves and self.ids.isdisjoint(_ids(items))

    def _with(self, items: Sequence[Item]) -> Story | None:
        system, rest = _parted(items[self.length :])
        if not self.is_followed_by(rest):
            return None
        told = mended(rest)
        if told[-1] is not rest[-1]:
            return None
        return Story(
            self.past.plus(told),
            len(items),
            text_of(system[-1]) if system else self.system,
            self.ids | _ids(rest),
        )


def _told(items: Sequence[Item], story: Story | None) -> tuple[Sequence[Item], str]:
    """What the model is told of them, and what the last system turn said."""
    if story and story.length:
        system, rest = _parted(items[story.length :])
        if story.is_followed_by(rest):
            newest = text_of(system[-1]) if system else story.system
            return Thread(story.past, mended(rest)), newest
    system, rest = _parted(items)
    return mended(rest), text_of(system[-1]) if system else ""


def _parted(items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    """The system turns, and the others."""
    system = [item for item in items if item.get("role") == "system"]
    if not system:
        return (), items
    return system, [item for item in items if item.get("role") != "system"]


def _ids(items: Sequence[Item]) -> frozenset[str]:
    """By which calls and their outputs name each other."""
    return frozenset(item["call_id"] for item in items if item.get("call_id"))


def _speaks(item: Item, role: str) -> bool:
    """Whether it is a message of this role that says something in words, which no
    provider leaves out or takes for another's."""
    if item["type"] != "message" or item.get("role") != role:
        return False
    if item.get("parley:interrupted") or (role == "user" and "provider_data" in item):
        return False
    return bool(text_of(item).strip())


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
    size, tokens = folded(items, "size", _sizes, _sum)
    size += byte_length(instructions) + sum(len(str(tool)) for tool in tools)
    return size // BYTES_A_TOKEN + tokens


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _sizes(items: Sequence[Item]) -> tuple[int, int]:
    """Bytes of text, and tokens of what is none."""
    size, files = 0, 0
    for item in items:
        for name in _TEXTS:
            value = item.get(name)
            if isinstance(value, str):
                size += byte_length(value)
            elif isinstance(value, list):
                for text, tokens in map(_part, value):
                    size += byte_length(text)
                    files += tokens
    return size, files + len(items) * ITEM_TOKENS


def byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _part(part: Item) -> tuple[str, int]:
    """Its text, and the tokens of what is none."""
    if part.get("type") == "input_image":
        return "", IMAGE_TOKENS
    data = part.get("file_data") or ""
    if data.startswith("data:") and not data.startswith("data:text/"):
        return "", FILE_TOKENS
    return part.get("text") or data, 0
