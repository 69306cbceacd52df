"""The items and instructions of the next request, and an estimate of its tokens. Pure.

Tokens are estimated, not counted: a tokenizer for each provider would be slow and still
wrong. The estimate only rejects requests that cannot fit; otherwise the provider
decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from llm.errors import BadRequest, ContextTooLarge
from llm.pricing.usage_estimate import measure_prompt
from llm.wire.item_prefix_cache import CachedPrefix, SplitItems, fold_items
from llm.wire.items import Item, function_call_output, text_of
from llm.wire.request import Request

BYTES_A_TOKEN = 4
#: An estimate of tokens may be wrong by this factor: a model counts between two and
#: eight bytes as a token, by language and kind of text.
ESTIMATE_ERROR = 2
IMAGE_TOKENS = 1000  # a large image at high detail
FILE_TOKENS = 1000  # a short PDF; its size does not show the number of pages
ITEM_TOKENS = 4  # role and framing
#: Item fields that contain text.
_TEXT_FIELDS = ("arguments", "output", "content", "summary")
#: Items that the client writes or answers.
_CLIENT_KINDS = frozenset(
    {
        "apply_patch_call_output",
        "computer_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call_output",
        "shell_call_output",
    }
)
_STOPPED_OUTPUT = "Error: the call was stopped before it had a result."


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """A text added to the instructions under its own heading."""

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
    prefix: HistoryPrefix | None = None,
) -> Prompt:
    """Instructions, then the newest system message, then context; and the conversation
    without system messages.

    `prefix` is the prepared beginning of `items`, if there is one. Raises
    ContextTooLarge where prompt and answer surely cannot fit `context_window` (tokens).
    """
    prompt_items, system_text = _prompt_items(items, prefix)
    blocks = [f"### {block.title}\n\n{block.text}" for block in context if block.text]
    heading = ["## Context\n\n" + "\n\n".join(blocks)] if blocks else []
    whole = "\n\n".join(filter(None, [instructions, system_text, *heading]))
    room = room_for_prompt(context_window, max_output_tokens)
    tokens = estimate_tokens(whole, prompt_items, tools) if room else 0
    if room and tokens > room * ESTIMATE_ERROR:  # otherwise the provider decides
        raise ContextTooLarge(
            f"The conversation needs about {tokens} tokens and the model accepts"
            f" {context_window}; shorten it or choose a model with a larger context"
            " window."
        )
    return Prompt(whole, prompt_items)


@dataclass(slots=True)
class History:
    """The items of a turn's requests before those of its own output. A compaction
    replaces them while the turn runs."""

    before: Sequence[Item]  # of the turns before
    question: Sequence[Item]  # the turn's own input
    prefix: HistoryPrefix | None = None  # of `before`
    covered: int = 0  # items of the turn's output that a summary replaces
    has_files: bool = False  # whose contents are among the items, also as plain text

    def replace(self, new: History) -> None:
        self.before, self.question = new.before, new.question
        self.prefix, self.covered = new.prefix, new.covered


def room_for_prompt(
    context_window: int | None, max_output_tokens: int | None
) -> int | None:
    """The tokens that a prompt may have beside its answer; None if unknown."""
    if not context_window:
        return None
    return max(context_window - (max_output_tokens or 0), context_window // 2)


@dataclass(frozen=True, slots=True)
class HistoryPrefix:
    """The prepared beginning of a conversation's items: repaired, and independent of
    the items after it."""

    cached: CachedPrefix = field(
        default_factory=CachedPrefix
    )  # repaired, without system messages
    length: int = 0  # number of the original items
    system: str = ""  # text of the last system message
    call_ids: frozenset[str] = frozenset()  # call ids

    def extend(self, items: Sequence[Item]) -> HistoryPrefix:
        """The prefix extended by the rest of `items`, which begin with this prefix.

        Unchanged where the items do not end with a complete answer. Where the rest
        refers to items of the prefix, a new prefix is built from all items.
        """
        _, rest = _split_system(items[self.length :])
        if not rest or not _is_complete_message(rest[-1], "assistant"):
            return self
        return (
            self._append(items)
            or (self.length and HistoryPrefix()._append(items))
            or self
        )

    def can_be_followed_by(self, items: Sequence[Item]) -> bool:
        """True if the items do not refer to items of the prefix."""
        if not items or not _is_complete_message(items[0], "user"):
            return False
        if not self.length:
            return True
        # A codec may look up an approval's request among all items.
        approves = any("approval_request_id" in item for item in items)
        return not approves and self.call_ids.isdisjoint(_call_ids(items))

    def _append(self, items: Sequence[Item]) -> HistoryPrefix | None:
        system, rest = _split_system(items[self.length :])
        if not self.can_be_followed_by(rest):
            return None
        repaired = repair_history(rest)
        if repaired[-1] is not rest[-1]:
            return None
        return HistoryPrefix(
            self.cached.extend(repaired),
            len(items),
            text_of(system[-1]) if system else self.system,
            self.call_ids | _call_ids(rest),
        )


def _prompt_items(
    items: Sequence[Item], prefix: HistoryPrefix | None
) -> tuple[Sequence[Item], str]:
    """The repaired items without system messages, and the last system message."""
    if prefix and prefix.length:
        system, rest = _split_system(items[prefix.length :])
        if prefix.can_be_followed_by(rest):
            system_text = text_of(system[-1]) if system else prefix.system
            return SplitItems(prefix.cached, repair_history(rest)), system_text
    system, rest = _split_system(items)
    return repair_history(rest), text_of(system[-1]) if system else ""


def _split_system(items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    """The system messages, and the other items."""
    system = [item for item in items if item.get("role") == "system"]
    if not system:
        return (), items
    return system, [item for item in items if item.get("role") != "system"]


def _call_ids(items: Sequence[Item]) -> frozenset[str]:
    """The call ids in the items."""
    return frozenset(item["call_id"] for item in items if item.get("call_id"))


def _is_complete_message(item: Item, role: str) -> bool:
    """Whether it is a complete message of this role with text, which no codec leaves
    out or merges with another message."""
    if item["type"] != "message" or item.get("role") != role:
        return False
    if item.get("parley:interrupted") or (role == "user" and "provider_data" in item):
        return False
    return bool(text_of(item).strip())


def repair_history(items: Iterable[Item]) -> list[Item]:
    """The history in a form that every provider accepts: complete calls with outputs.

    Incomplete calls, reasoning and receipts of hosted tools are left out; a stopped
    call gets an output that says so. Text that an interrupted run began and a later one
    repeated is contained once.
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
                history += _close_open_calls(open_calls)
        elif kind == "function_call":
            if item.get("status", "completed") != "completed":
                continue
            open_calls[item["call_id"]] = item
            known.add(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in known:
                continue  # its call was left out
            open_calls.pop(item["call_id"], None)
        elif kind not in _CLIENT_KINDS and _is_unfinished(item):
            continue
        history.append(item)
    if open_calls:
        history += _close_open_calls(open_calls)
    return history


def _is_unfinished(item: Item) -> bool:
    """Whether it was cut off before its provider had a proof for it: no provider
    accepts it."""
    status = item.get("status")
    if item["type"] == "reasoning":
        return status == "incomplete"
    return status in ("in_progress", "incomplete") and "provider_data" not in item


def _close_open_calls(open_calls: dict[str, Item]) -> list[Item]:
    outputs = [function_call_output(call_id, _STOPPED_OUTPUT) for call_id in open_calls]
    open_calls.clear()
    return outputs


def estimate_prompt(request: Request) -> int:
    """A rough number of the tokens of a request. Raises BadRequest."""
    if request.forwarded is not None:
        try:
            return measure_prompt(orjson.dumps(request.forwarded.fields))
        except orjson.JSONEncodeError as exc:  # it reads deeper ones than it writes
            raise BadRequest("The body is nested too deeply.") from exc
    return estimate_tokens(request.instructions, request.items, request.tools)


def estimate_tokens(
    instructions: str, items: Sequence[Item], tools: Sequence[dict[str, Any]] = ()
) -> int:
    """A rough number of tokens."""
    size, tokens = fold_items(items, "size", _sizes, _sum)
    size += byte_length(instructions) + sum(len(str(tool)) for tool in tools)
    return size // BYTES_A_TOKEN + tokens


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _sizes(items: Sequence[Item]) -> tuple[int, int]:
    """Bytes of text, and tokens of images and files."""
    size, files = 0, 0
    for item in items:
        for name in _TEXT_FIELDS:
            value = item.get(name)
            if isinstance(value, str):
                size += byte_length(value)
            elif isinstance(value, list):
                for text, tokens in map(_part_size, value):
                    size += byte_length(text)
                    files += tokens
    return size, files + len(items) * ITEM_TOKENS


def byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _part_size(part: Item) -> tuple[str, int]:
    """The part's text, and the tokens of its image or file."""
    if part.get("type") == "input_image":
        return "", IMAGE_TOKENS
    data = part.get("file_data") or ""
    if data.startswith("data:") and not data.startswith("data:text/"):
        return "", FILE_TOKENS
    return part.get("text") or data, 0
